"""What accounts add up to."""

from typing import Any

import pytest

from kubeshare.core.units import GI
from kubeshare.core.usage.allocation import AllocatedShare, Allocation
from kubeshare.core.usage.report import KEYS, UNHEARD_NS, Row, report

SECOND = 10**9
HOUR = 3600 * SECOND


def share(request: float = 0.5, **fields: Any) -> AllocatedShare:
    default = {"uuid": "GPU-a", "model": "V100", "memory_bytes": 4 * GI, "used_ns": 0}
    return AllocatedShare(request_micros=int(request * 1_000_000), **{**default, **fields})


def allocation(
    *shares: AllocatedShare, start: int = 0, end: int = HOUR, **fields: Any
) -> Allocation:
    default: dict[str, Any] = {
        "namespace": "a",
        "pod": "p",
        "owner": "Job/j",
        "group": "",
        "node": "n1",
    }
    default |= {"ended": True, "complete": True}
    default |= {"start_ns": start, "end_ns": end}
    return Allocation(shares=shares or (share(),), **{**default, **fields})


def sums(*allocations: Allocation, by: str = "namespace", since: int = 0, now: int = HOUR) -> Row:
    (row,) = report(allocations, by.split(","), since, now)
    return row


def numbers(row: Row) -> list[float]:
    """Requested, held and used GPU-seconds, and GiB-hours."""
    seconds = (row.requested_gpu_seconds, row.held_gpu_seconds, row.used_gpu_seconds)
    return [float(each) for each in (*seconds, row.memory_gib_hours)]


def test_an_hour_of_half_a_gpu_is_1800_gpu_seconds() -> None:
    row = sums(allocation(share(0.5, used_ns=900 * SECOND)))
    assert numbers(row) == [1800, 1800, 900, 4]
    assert (row.allocations, row.running, row.complete, row.cost) == (1, 0, True, None)


def test_a_share_counts_from_the_given_time_on_with_that_part_of_its_use() -> None:
    row = sums(allocation(share(1, used_ns=600 * SECOND)), since=HOUR * 3 // 4)
    assert numbers(row) == [900, 900, 150, 1]


def test_what_ended_before_does_not_count() -> None:
    assert report([allocation()], ["namespace"], HOUR + 1, 2 * HOUR) == []


def test_a_grant_of_no_duration_counts_with_its_use() -> None:
    assert sums(allocation(share(used_ns=5 * SECOND), end=0)).used_gpu_seconds == 5


def test_rows_are_by_the_keys_and_sorted() -> None:
    both = allocation(share(0.1), share(0.2, model="A100", uuid="GPU-b"))
    rows = report([both, allocation(namespace="b")], ["namespace", "model"], 0, HOUR)
    assert [row.keys for row in rows] == [("a", "A100"), ("a", "V100"), ("b", "V100")]
    assert [numbers(row)[0] for row in rows] == [720, 360, 1800]


def test_each_key_is_a_field_of_the_allocation() -> None:
    one = allocation(group="g")
    (row,) = report([one], [*KEYS], 0, HOUR)
    assert dict(zip(KEYS, row.keys, strict=True)) == {
        "namespace": "a",
        "owner": "Job/j",
        "group": "g",
        "pod": "p",
        "model": "V100",
        "node": "n1",
    }


def test_a_gpu_under_an_exclusion_label_is_held_whole_and_once() -> None:
    exclusive = share(0.2, exclusive=True, price_micros=2_000_000)
    first = allocation(exclusive, end=HOUR)
    second = allocation(exclusive, start=HOUR // 2, end=2 * HOUR, pod="q")
    row = sums(first, second, now=2 * HOUR)
    assert numbers(row)[:2] == [720 + 1080, 7200]
    assert row.cost == 4
    by_pod = report([first, second], ["pod"], 0, 2 * HOUR)
    assert [numbers(each)[1] for each in by_pod] == [3600, 5400]


def test_the_cost_is_of_what_was_held_and_unknown_without_a_price() -> None:
    priced = allocation(share(0.5, price_micros=3_000_000))
    assert sums(priced).cost == 1.5
    assert sums(priced, allocation()).cost is None


@pytest.mark.parametrize(("age", "running", "complete"), [(0, 1, True), (1, 0, False)])
def test_an_account_that_goes_on_is_incomplete_once_its_node_is_unheard(
    age: int, running: int, *, complete: bool
) -> None:
    row = sums(allocation(ended=False), now=HOUR + UNHEARD_NS + age)
    assert (row.running, row.complete) == (running, complete)


def test_what_is_missing_of_one_is_missing_of_the_sum() -> None:
    row = sums(allocation(), allocation(complete=False))
    assert (row.complete, row.allocations) == (False, 2)
