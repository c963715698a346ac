"""What the arbiter counts and shows of its members, and what of it outlives a change."""

from typing import Any

import pytest
from msgspec.structs import asdict

from core.token.simulation import GPU, MS
from kubeshare.core.token import WAIT_BOUNDS_NS, Arbiter, Close, Extend, Open, Shut, Waits, Watch

OTHER_GPU = "gpu-1"
NOTHING_YET: dict[str, int] = dict.fromkeys(
    (
        *("charged_ns", "grants", "drains", "drain_ns", "overruns", "bypasses"),
        *("waits", "waited_ns", "longest_wait_ns"),
    ),
    0,
) | {"owes_report": False}


def shown(arbiter: Arbiter, name: str, now: int) -> dict[str, Any]:
    """All that is shown of a member's only part but its measures."""
    (view,) = (asdict(view) for view in arbiter.views(now) if view.name == name)
    del view["share"], view["recent_share"]
    return view


def test_all_that_a_member_held_and_waited_for_is_counted() -> None:
    arbiter = Arbiter()
    arbiter.add("a", {GPU: (300_000, 600_000)}, 0)
    arbiter.add("b", {GPU: (400_000, 1_000_000)}, 0)
    of_a = {"name": "a", "gpu": GPU, "request_micros": 300_000, "limit_micros": 600_000}
    of_b = {"name": "b", "gpu": GPU, "request_micros": 400_000, "limit_micros": 1_000_000}
    assert shown(arbiter, "a", 5 * MS) == {**of_a, **NOTHING_YET, "state": "idle"}

    arbiter.want("a", 10 * MS)
    arbiter.want("b", 20 * MS)
    now_a = {**of_a, **NOTHING_YET, "waits": 1, "grants": 1}
    now_b = {**of_b, **NOTHING_YET, "waits": 1}
    assert shown(arbiter, "a", 50 * MS) == {**now_a, "charged_ns": 40 * MS, "state": "open"}
    assert shown(arbiter, "b", 50 * MS) == {**now_b, "waited_ns": 30 * MS, "state": "waiting"}

    assert arbiter.tick(110 * MS) == [Close("a", GPU)]
    assert shown(arbiter, "a", 112 * MS) == {**now_a, "charged_ns": 102 * MS, "state": "closing"}

    arbiter.drained("a", GPU, 115 * MS, 116 * MS)
    arbiter.want("a", 117 * MS)
    # A drain as long as the shortest grant is no overrun.
    now_a |= {"charged_ns": 105 * MS, "drains": 1, "drain_ns": 5 * MS, "waits": 2}
    now_b |= {"grants": 1, "waited_ns": 96 * MS, "longest_wait_ns": 96 * MS}
    assert shown(arbiter, "a", 120 * MS) == {**now_a, "waited_ns": 3 * MS, "state": "waiting"}
    assert shown(arbiter, "b", 120 * MS) == {**now_b, "charged_ns": 4 * MS, "state": "open"}

    assert arbiter.tick(216 * MS) == [Close("b", GPU)]
    arbiter.drained("b", GPU, 222 * MS, 223 * MS)
    now_a |= {"grants": 2, "waited_ns": 106 * MS, "longest_wait_ns": 106 * MS}
    now_b |= {"charged_ns": 106 * MS, "drains": 1, "drain_ns": 6 * MS, "overruns": 1}
    assert shown(arbiter, "a", 236 * MS) == {**now_a, "charged_ns": 118 * MS, "state": "open"}
    assert shown(arbiter, "b", 236 * MS) == {**now_b, "state": "idle"}
    counted = dict(zip(WAIT_BOUNDS_NS, arbiter.waits.counts, strict=False))
    assert {bound: count for bound, count in counted.items() if count} == {
        MS: 1,
        100 * MS: 1,
        200 * MS: 1,
    }
    assert arbiter.waits.total_ns == (96 + 106) * MS
    arbiter.want("b", 246 * MS)
    assert arbiter.tick(323 * MS) == [Close("a", GPU)]
    # It was idle before it was asked to be: there was no drain.
    arbiter.drained("a", GPU, 322 * MS, 324 * MS)
    now_a |= {"charged_ns": 204 * MS, "drains": 2}
    now_b |= {"grants": 2, "waits": 2, "waited_ns": 174 * MS}
    assert shown(arbiter, "a", 328 * MS) == {**now_a, "state": "idle"}
    assert shown(arbiter, "b", 328 * MS) == {**now_b, "charged_ns": 110 * MS, "state": "open"}

    assert arbiter.gone("b", 330 * MS) == [Shut("b", GPU)]
    assert shown(arbiter, "b", 333 * MS) == {**now_b, "charged_ns": 112 * MS, "state": "idle"}


def test_what_was_counted_before_is_counted_on() -> None:
    first = Arbiter()
    first.add("a", {GPU: (300_000, 1_000_000), OTHER_GPU: (300_000, 1_000_000)}, 0)
    first.want("a", 0, [GPU])
    first.gone("a", 20 * MS)
    tally = first.tally("a", GPU)
    assert (tally.grants, tally.charged_ns) == (1, 20 * MS)

    second = Arbiter()
    second.add("a", {GPU: (300_000, 1_000_000), OTHER_GPU: (1, 1)}, 0, tallies={GPU: tally})
    second.want("a", 5 * MS, [GPU])
    counted = {view.gpu: (view.grants, view.charged_ns) for view in second.views(8 * MS)}
    assert counted == {GPU: (2, 23 * MS), OTHER_GPU: (0, 0)}


def test_a_member_has_an_own_quota_and_other_bounds_when_they_change() -> None:
    arbiter = Arbiter()
    arbiter.add("a", {GPU: (300_000, 1_000_000)}, 0, quota_ns=40 * MS)
    assert arbiter.want("a", 0) == [Open("a", GPU, 40 * MS)]
    assert arbiter.change("a", {GPU: (500_000, 1_000_000)}, 10 * MS, quota_ns=60 * MS) == []
    assert arbiter.tick(40 * MS) == [Extend("a", GPU, 100 * MS), Watch("a", GPU)]
    (view,) = arbiter.views(50 * MS)
    assert (view.request_micros, view.limit_micros, view.charged_ns) == (
        500_000,
        1_000_000,
        50 * MS,
    )
    arbiter.change("a", {GPU: (500_000, 1_000_000)}, 60 * MS)
    assert arbiter.tick(100 * MS) == [Extend("a", GPU, 200 * MS)]


def test_a_member_keeps_its_gpus() -> None:
    arbiter = Arbiter()
    arbiter.add("a", {GPU: (300_000, 1_000_000)}, 0)
    with pytest.raises(ValueError, match=r"^a has shares of other GPUs$"):
        arbiter.change("a", {OTHER_GPU: (300_000, 1_000_000)}, 0)


def test_a_limit_that_is_set_within_a_turn_counts_from_then_on() -> None:
    arbiter = Arbiter()
    arbiter.add("a", {GPU: (300_000, 1_000_000)}, 0)
    arbiter.want("a", 0)
    arbiter.change("a", {GPU: (300_000, 500_000)}, 90 * MS)

    # It may run for a quota from the change on, and not from the turn's begin.
    assert arbiter.tick(100 * MS) == [Extend("a", GPU, 190 * MS), Watch("a", GPU)]
    assert arbiter.tick(190 * MS) == [Close("a", GPU)]


@pytest.mark.parametrize(
    ("waited_ns", "bucket"),
    [(0, 0), (MS, 0), (MS + 1, 1), (30_000 * MS, -2), (30_000 * MS + 1, -1), (1 << 70, -1)],
)
def test_a_wait_is_counted_in_the_bucket_whose_bound_it_does_not_exceed(
    waited_ns: int, bucket: int
) -> None:
    waits = Waits()
    waits.add(waited_ns)
    assert (waits.counts[bucket], sum(waits.counts), waits.total_ns) == (1, 1, waited_ns)
