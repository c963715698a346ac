"""The device manager as a program: its options, and what it is built of."""

import socket

import pytest

from fakes.program import BuiltProgram
from kubeshare.core.policies import policy
from kubeshare.device_manager import __main__ as program
from kubeshare.kube.controller.gc_tuning import freeze_live_objects


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> BuiltProgram:
    return BuiltProgram(monkeypatch, program, "device_manager_program")


def test_without_options_it_runs_in_its_pod(
    monkeypatch: pytest.MonkeyPatch, built: BuiltProgram
) -> None:
    monkeypatch.setenv("POD_NAME", "devices-1")
    assert built.main() == BuiltProgram.EXIT_CODE
    assert built.given == {
        "client": ("client", None),
        "policy": policy("locality"),
        "placeholder_image": "kubeshare:dev",
        "instance": "devices-1",
        "port": 8080,
        "elect": True,
        "built": freeze_live_objects,
    }


def test_options(monkeypatch: pytest.MonkeyPatch, built: BuiltProgram) -> None:
    monkeypatch.delenv("POD_NAME", raising=False)
    monkeypatch.setattr(socket, "gethostname", lambda: "here")
    built.main(
        "--kubeconfig",
        "k",
        "--placeholder-image",
        "i:1",
        "--policy",
        "binpack",
        "--port",
        "9",
        "--no-election",
    )
    given = built.given
    assert given["policy"] == policy("binpack")
    assert given["client"] == ("client", "k")
    assert given["placeholder_image"] == "i:1"
    assert (given["instance"], given["port"], given["elect"]) == ("here", 9, False)


def test_an_unknown_policy_is_wrong_use(
    built: BuiltProgram, capsys: pytest.CaptureFixture[str]
) -> None:
    assert built.exit_code("--policy", "best") == 2
    assert "best" in capsys.readouterr().err


def test_it_logs_from_the_severity_that_is_asked_for(built: BuiltProgram) -> None:
    built.main()
    assert built.log_level == "info"
    built.main("--log-level", "warning")
    assert built.log_level == "warning"
    assert built.exit_code("--log-level", "loud") == 2


def test_help_explains_each_option(built: BuiltProgram, capsys: pytest.CaptureFixture[str]) -> None:
    assert built.exit_code("--help") == 0
    text = capsys.readouterr().out
    assert text.startswith("usage: kubeshare.device_manager [-h]")
    for words in (
        "Runs until SIGTERM.\n",
        " default: the pod's service account, or $KUBECONFIG\n",
        " of /livez, /readyz and /metrics\n",
        " of the pods that keep a GPU: any that has sh and sleep, such as this program's own\n",
        " work without the Lease, as the only replica\n",
    ):
        assert words in text
