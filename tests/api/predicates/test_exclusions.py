"""What a SharePod says of nodes that could not take its pod, its author's own words included."""

from datetime import UTC, datetime

import pytest

from kubeshare.api.predicates import exclusions
from kubeshare.api.types.v1 import ExcludedNode

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("until", "counts"),
    [
        ("9999-12-31T23:59:59Z", True),
        ("9999-12-31T23:59:59-14:00", True),
        ("2025-12-31T23:59:59Z", True),
        ("2025-12-31T22:59:59Z", False),
        ("0001-01-01T00:00:00+14:00", False),
        ("0000-01-01T00:00:00Z", False),
        ("tomorrow", False),
    ],
)
def test_an_entry_counts_until_it_is_forgotten_whatever_time_it_names(
    until: str, *, counts: bool
) -> None:
    entries = (ExcludedNode(node="n1", until=until, times=3),)
    assert exclusions.reschedules(entries, NOW) == (3 if counts else 0)
    assert (entries == exclusions.retained(entries, NOW)) is counts
