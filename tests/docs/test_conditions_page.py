"""The page about conditions knows every reason.

That programs use no other is seen to by the types, and by the cluster in which they are tested.
"""

import re
from pathlib import Path

import pytest

from kubeshare.api.types.reasons import Reason

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "conditions.md").read_text()
CODE = "".join(
    path.read_text()
    for folder in ("scheduler", "device_manager", "api")
    for path in sorted((ROOT / "src" / "kubeshare" / folder).rglob("*.py"))
)
CONDITIONS = ["Scheduled", "Allocated", "Degraded", "Owned", "Matched", "Shareable", "Ready"]


def listed(condition: str) -> list[str]:
    """The reasons in the table of a condition."""
    _, _, section = PAGE.partition(f"\n## {condition}\n")
    return re.findall(r"^\| `(\w+)` \|", section.partition("\n## ")[0], flags=re.MULTILINE)


def test_the_page_lists_all_reasons_and_no_other() -> None:
    found = {reason for condition in CONDITIONS for reason in listed(condition)}
    assert found == set(Reason)


@pytest.mark.parametrize("condition", CONDITIONS)
def test_no_reason_is_listed_twice_for_one_condition(condition: str) -> None:
    assert len(listed(condition)) == len(set(listed(condition)))


@pytest.mark.parametrize("reason", Reason)
def test_every_reason_is_given_by_a_program(reason: Reason) -> None:
    assert f"Reason.{reason.name}" in CODE
