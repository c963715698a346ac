"""What is owed after work whose end nobody reported, and by whom."""

import pytest

from core.token.liars import EndlessElsewhere
from core.token.simulation import GPU, MS, SECOND, Job, Simulation, contended
from kubeshare.core.token import Arbiter

OTHER_GPU = "gpu-1"


def after_a_long_kernel() -> Arbiter:
    """`a`, limited to .1, has had a kernel that ended after 15 s."""
    arbiter = Arbiter()
    arbiter.add("a", {GPU: (100_000, 100_000)}, 0)
    arbiter.want("a", 0)
    now = 100 * MS
    arbiter.tick(now)
    while now < 15 * SECOND:
        now += 50 * MS
        arbiter.busy("a", GPU, now)
    arbiter.drained("a", GPU, now, now)
    return arbiter


@pytest.mark.parametrize("limit", [100_000, 500_000])
@pytest.mark.parametrize("stopped_s", [60, 600, 3600])
@pytest.mark.parametrize("ends", ["reports", "is gone"])
def test_a_share_that_was_stopped_is_kept_from_the_gpu_by_its_limit_for_a_minute_at_most(
    limit: int, stopped_s: int, ends: str
) -> None:
    arbiter = Arbiter()
    arbiter.add("a", {GPU: (limit, limit)}, 0)
    arbiter.want("a", 0)
    arbiter.tick(100 * MS)
    arbiter.tick(arbiter.deadline() or 0)
    now = stopped_s * SECOND
    assert arbiter.views(now)[0].state == "hung"
    assert arbiter.views(now)[0].charged_ns == now

    if ends == "reports":
        arbiter.drained("a", GPU, 100 * MS, now)
    else:
        arbiter.gone("a", now)
    arbiter.want("a", now)
    ready = arbiter.deadline() or now
    arbiter.tick(ready)

    assert arbiter.holder(GPU) == "a"
    assert 50 * SECOND <= ready - now <= 61 * SECOND


def test_a_long_kernel_whose_end_was_reported_is_paid_back_to_the_limit_in_full() -> None:
    arbiter = after_a_long_kernel()

    arbiter.want("a", 15 * SECOND)

    assert (arbiter.deadline() or 0) - 15 * SECOND >= 130 * SECOND


@pytest.mark.parametrize(
    ("limits", "quota_ns"),
    [((110_000,), 100 * MS), ((1_000_000, 100_000), 100 * MS), ((100_000,), 50 * MS)],
    ids=["another limit", "no limit for a moment", "another quota"],
)
def test_what_is_owed_beyond_a_limit_is_owed_after_a_change(
    limits: tuple[int, ...], quota_ns: int
) -> None:
    arbiter = after_a_long_kernel()
    for limit in limits:
        arbiter.change("a", {GPU: (100_000, limit)}, 15 * SECOND, quota_ns=quota_ns)

    arbiter.want("a", 15 * SECOND)

    assert (arbiter.deadline() or 0) - 15 * SECOND >= 120 * SECOND


def test_a_gang_at_its_limit_on_one_gpu_puts_no_neighbour_of_its_other_gpu_in_debt() -> None:
    simulation = Simulation()
    gang = Job((GPU, OTHER_GPU), lambda: simulation.random.randint(0, 10 * MS))
    simulation.jobs["gang"] = gang
    simulation.arbiter.add("gang", {GPU: (500_000, 1_000_000), OTHER_GPU: (50_000, 50_000)}, 0)
    simulation._want("gang")
    simulation.join("neighbour", 0.3, 1)
    simulation.run(120 * SECOND)
    simulation.leave("gang")
    for name in ("b", "c", "d"):
        simulation.join(name, 0.2, 1)

    shares = simulation.shares(10 * SECOND)

    assert shares["neighbour"] >= 0.27, shares


def test_a_kernel_that_never_ends_while_its_member_waits_for_another_gpu_is_charged() -> None:
    simulation = EndlessElsewhere(GPU)
    simulation.join("liar", 0.2, 1, gpus=(GPU, OTHER_GPU))
    simulation.join("a", 0.5, 1)
    simulation.join("b", 0.5, 1, gpus=(OTHER_GPU,))
    simulation.run(20 * SECOND)
    before = simulation.worked("liar"), simulation.arbiter.tally("liar", GPU).charged_ns

    shares = simulation.shares(60 * SECOND)

    worked = simulation.worked("liar") - before[0]
    charged = simulation.arbiter.views(simulation.now)[0].charged_ns - before[1]
    assert worked == 60 * SECOND
    assert charged >= 0.95 * worked
    assert shares["a"] >= 0.5


@pytest.mark.parametrize("is_closing", [False, True])
def test_what_a_closed_connection_owes_is_charged_from_the_next_one_on(*, is_closing: bool) -> None:
    arbiter = contended()
    if is_closing:
        arbiter.tick(100 * MS)
    arbiter.gone("a", 110 * MS)
    assert arbiter.holder(GPU) == "b"
    assert arbiter.views(SECOND)[0].state == "idle"
    assert not arbiter.views(SECOND)[0].owes_report

    arbiter.connected("a", 2 * SECOND)

    assert arbiter.views(3 * SECOND)[0].state == "hung"
    assert arbiter.views(3 * SECOND)[0].charged_ns == 1110 * MS
    arbiter.drained("a", GPU, 0, 3 * SECOND)
    assert arbiter.views(4 * SECOND)[0].charged_ns == pytest.approx(1110 * MS, abs=20 * MS)
    assert not arbiter.views(4 * SECOND)[0].owes_report


def test_a_connection_that_is_closed_and_made_again_earns_no_patience() -> None:
    arbiter = contended()
    arbiter.tick(100 * MS)
    arbiter.tick(300 * MS)
    arbiter.gone("a", 400 * MS)
    arbiter.connected("a", 401 * MS)
    arbiter.want("a", 402 * MS)
    arbiter.gone("b", 403 * MS)
    arbiter.want("b", 404 * MS)
    closed = arbiter.deadline() or 0
    arbiter.tick(closed)
    now = closed
    while arbiter.holder(GPU) == "a":
        now += 50 * MS
        arbiter.busy("a", GPU, now)

    assert now - closed <= 400 * MS


def test_the_last_to_drain_that_leaves_frees_the_gpu_and_owes_the_end_of_its_work() -> None:
    arbiter = contended()
    arbiter.tick(100 * MS)

    arbiter.left("a", GPU, 101 * MS)

    assert arbiter.holder(GPU) == "b"
    assert arbiter.views(SECOND)[0].charged_ns == 101 * MS
    arbiter.connected("a", SECOND)
    assert arbiter.views(2 * SECOND)[0].charged_ns == SECOND + 101 * MS
    arbiter.left("a", GPU, 2 * SECOND)
    assert arbiter.views(3 * SECOND)[0].charged_ns == SECOND + 101 * MS
