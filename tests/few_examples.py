"""Limits how many examples tests of properties draw."""

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import settings

_SETTINGS = "_hypothesis_internal_use_settings"
"""Where hypothesis keeps the settings of a test function."""


def drawing_few() -> bool:
    """Whether this run draws few examples, as ``make test-fast`` does."""
    return settings.get_current_profile_name() == "few"


def limit_examples(items: Iterable[pytest.Item], *, examples: int, episodes: int) -> None:
    """Limit the examples of each test and the episodes of each state machine."""
    for item in items:
        function = getattr(item, "obj", None)
        asked = getattr(function, _SETTINGS, None)
        if isinstance(asked, settings):
            few = settings(asked, max_examples=min(asked.max_examples, examples))
            vars(function)[_SETTINGS] = few
        machine: Any = getattr(item, "cls", None)
        asked = getattr(machine, "settings", None)
        if isinstance(asked, settings):
            machine.settings = settings(asked, max_examples=min(asked.max_examples, episodes))
