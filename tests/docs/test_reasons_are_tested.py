"""Each reason of a condition and of an event is expected by a test of what gives it."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from kubeshare.api.types.reasons import Reason

ROOT: Final = Path(__file__).parents[2]
SOURCES: Final = ROOT / "src" / "kubeshare"
EMITTERS: Final = {"emit": 1, "_emit": 1, "_vgpu": 1}
"""Methods that record an event, and which of their arguments is its reason."""
TESTS: Final = "".join(
    path.read_text()
    for path in sorted((ROOT / "tests").rglob("*.py"))
    if path.parent.name not in ("docs", "e2e")
)


def event_reasons() -> Iterator[str]:
    """The reasons of events that stand in the programs' text."""
    called = re.compile(rf"\.({'|'.join(EMITTERS)})\(")
    texts = [path.read_text() for path in sorted(SOURCES.rglob("*.py"))]
    for text in filter(called.search, texts):  # to parse all takes a second in each worker
        for node in ast.walk(ast.parse(text)):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
                continue
            place = EMITTERS.get(node.func.attr)
            if place is not None and len(node.args) > place:
                reason = node.args[place]
                if isinstance(reason, ast.Constant) and isinstance(reason.value, str):
                    yield reason.value


def is_tested(reason: str) -> bool:
    return re.search(rf"[\"' ]{reason}[\"',:]", TESTS) is not None


EVENT_REASONS: Final = sorted(set(event_reasons()))


def test_there_are_events_of_every_program() -> None:
    found = set(EVENT_REASONS)
    assert {"Bound", "Invalid", "InvalidQuotas", "GrantRevoked", "BindFailed"} <= found
    assert len(found) > 20


@pytest.mark.parametrize("reason", EVENT_REASONS)
def test_each_reason_of_an_event_is_expected_by_a_test(reason: str) -> None:
    assert is_tested(reason)


@pytest.mark.parametrize("reason", Reason)
def test_each_reason_of_a_condition_is_expected_by_a_test(reason: Reason) -> None:
    assert is_tested(reason.value) or f"Reason.{reason.name}" in TESTS
