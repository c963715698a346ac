"""Lets controllers miss all changes."""

from collections.abc import Callable, Collection, Iterable
from typing import Any

import pytest

from kubeshare.kube.cache.reflector import Reflector
from kubeshare.kube.controller.controller import Controller


def deafen(monkeypatch: pytest.MonkeyPatch, names: Collection[str]) -> None:
    """Let the handlers of these controllers queue nothing."""
    watch_changes = Controller.watch_changes

    def deaf(self: Any, reflector: Reflector[Any], keys: Callable[[Any], Iterable[Any]]) -> None:
        watch_changes(self, reflector, (lambda _: ()) if self.name in names else keys)

    monkeypatch.setattr(Controller, "watch_changes", deaf)
