"""The scheduler as a program: its options, and what it is built of."""

import asyncio
import socket
import sys
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from kubeshare.core.policies import policy
from kubeshare.kube.controller.gc_tuning import freeze_live_objects
from kubeshare.scheduler import __main__ as program


class Built:
    """What the program was built with, without a cluster."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.given: dict[str, Any] = {}
        connect = SimpleNamespace(connect=lambda kubeconfig: ("client", kubeconfig))
        monkeypatch.setattr(program, "Client", connect)
        monkeypatch.setattr(program, "configure_logging", lambda: None)
        monkeypatch.setattr(program, "scheduler_program", self._build)
        monkeypatch.setattr(program, "run_program", self._run)

    def _build(self, client: Any, chosen: Any, **more: Any) -> Any:
        self.given = {"client": client, "policy": chosen, **more}
        return "program"

    def _run(self, build: Callable[[], Awaitable[Any]]) -> int:
        async def built() -> Any:
            return await build()

        assert asyncio.run(built()) == "program"
        return 3


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["scheduler", *arguments])
    return program.main()


def test_without_options_it_runs_in_its_pod(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POD_NAME", "scheduler-1")
    built = Built(monkeypatch)
    assert run(monkeypatch) == 3
    assert built.given == {
        "client": ("client", None),
        "policy": policy("locality"),
        "instance": "scheduler-1",
        "port": 8080,
        "elect": True,
        "built": freeze_live_objects,
    }


def test_options(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("POD_NAME", raising=False)
    monkeypatch.setattr(socket, "gethostname", lambda: "here")
    built = Built(monkeypatch)
    arguments = ["--kubeconfig", "k", "--policy", "binpack", "--port", "9", "--no-election"]
    run(monkeypatch, *arguments)
    assert built.given["client"] == ("client", "k")
    assert built.given["policy"] == policy("binpack")
    assert (built.given["instance"], built.given["port"]) == ("here", 9)
    assert built.given["elect"] is False


def test_an_unknown_policy_is_wrong_use(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        run(monkeypatch, "--policy", "best")
    assert ended.value.code == 2
    assert "best" in capsys.readouterr().err


def test_help_explains_each_option(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    with pytest.raises(SystemExit) as ended:
        run(monkeypatch, "--help")
    text = capsys.readouterr().out
    assert ended.value.code == 0
    assert text.startswith("usage: kubeshare.scheduler [-h]")
    for words in (
        "Runs until SIGTERM.\n",
        "default: the pod's service account, or $KUBECONFIG\n",
        " places demands; default: locality\n",
        " of /livez, /readyz and /metrics\n",
        " work without the Lease, as the only replica\n",
    ):
        assert words in text
