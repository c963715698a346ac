"""Which accounts are removed."""

import pytest

from kubeshare.core.usage.retention import to_remove

ACCOUNTS = [(30, "c"), (10, "a"), (40, "d"), (20, "b")]


@pytest.mark.parametrize(
    ("before", "most", "at_once", "removed"),
    [
        (0, 4, 9, []),
        (20, 4, 9, ["a"]),
        (0, 1, 9, ["a", "b", "c"]),
        (35, 2, 9, ["a", "b", "c"]),
        (99, 4, 2, ["a", "b"]),
        (99, 4, 9, ["a", "b", "c", "d"]),
    ],
)
def test_the_oldest_go_first(before: int, most: int, at_once: int, removed: list[str]) -> None:
    found = to_remove(ACCOUNTS, before_ns=before, most=most, at_once=at_once)
    assert found == removed
