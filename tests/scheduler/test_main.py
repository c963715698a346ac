"""The scheduler as a program: its options, and what it is built of."""

import socket

import pytest

from fakes.program import BuiltProgram
from kubeshare.core.policies import policy
from kubeshare.kube.controller.gc_tuning import freeze_live_objects
from kubeshare.scheduler import __main__ as program


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> BuiltProgram:
    return BuiltProgram(monkeypatch, program, "scheduler_program")


def test_without_options_it_runs_in_its_pod(
    monkeypatch: pytest.MonkeyPatch, built: BuiltProgram
) -> None:
    monkeypatch.setenv("POD_NAME", "scheduler-1")
    assert built.main() == BuiltProgram.EXIT_CODE
    assert built.given == {
        "client": ("client", None),
        "policy": policy("locality"),
        "instance": "scheduler-1",
        "port": 8080,
        "elect": True,
        "built": freeze_live_objects,
    }


def test_options(monkeypatch: pytest.MonkeyPatch, built: BuiltProgram) -> None:
    monkeypatch.delenv("POD_NAME", raising=False)
    monkeypatch.setattr(socket, "gethostname", lambda: "here")
    built.main("--kubeconfig", "k", "--policy", "binpack", "--port", "9", "--no-election")
    assert built.given["client"] == ("client", "k")
    assert built.given["policy"] == policy("binpack")
    assert (built.given["instance"], built.given["port"]) == ("here", 9)
    assert built.given["elect"] is False


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
    assert text.startswith("usage: kubeshare.scheduler [-h]")
    for words in (
        "Runs until SIGTERM.\n",
        "default: the pod's service account, or $KUBECONFIG\n",
        " places demands; default: locality\n",
        " of /livez, /readyz and /metrics\n",
        " work without the Lease, as the only replica\n",
    ):
        assert words in text
