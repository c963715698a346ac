"""Runs the main function of a program without a cluster, and keeps what it builds."""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from types import ModuleType, SimpleNamespace
from typing import Any, Final

import pytest


class BuiltProgram:
    """The ``__main__`` of a controller, with everything replaced that it calls.

    Args:
        monkeypatch: of the test.
        module: the ``__main__``.
        builder: the name of the function by which it builds the program.

    Attributes:
        given: what that function was called with; ``client`` and ``policy`` are its first two.
        log_level: the severity from which on it logs.
    """

    EXIT_CODE: Final = 3

    def __init__(self, monkeypatch: pytest.MonkeyPatch, module: ModuleType, builder: str) -> None:
        self.given: dict[str, Any] = {}
        self.log_level = ""
        self._monkeypatch = monkeypatch
        self._main: Callable[[], int] = module.main
        monkeypatch.setenv("COLUMNS", "200")
        connect = SimpleNamespace(connect=lambda kubeconfig: ("client", kubeconfig))
        monkeypatch.setattr(module, "Client", connect)
        monkeypatch.setattr(module, "configure_logging", partial(setattr, self, "log_level"))
        monkeypatch.setattr(module, builder, self._build)
        monkeypatch.setattr(module, "run_program", self._run)

    def main(self, *arguments: str) -> int:
        """Run it; returns its exit code."""
        self._monkeypatch.setattr(sys, "argv", ["program", *arguments])
        return self._main()

    def exit_code(self, *arguments: str) -> object:
        """The exit code with which it ends because of its options."""
        with pytest.raises(SystemExit) as ended:
            self.main(*arguments)
        return ended.value.code

    def _build(self, client: Any, chosen: Any, **more: Any) -> str:
        self.given = {"client": client, "policy": chosen, **more}
        return "program"

    def _run(self, build: Callable[[], Awaitable[Any]]) -> int:
        async def built() -> Any:
            return await build()

        assert asyncio.run(built()) == "program"
        return self.EXIT_CODE
