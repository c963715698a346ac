"""What is owed after work whose end nobody reported, and by whom."""

import pytest

from core.token.simulation import GPU, MS, SECOND, Job, Simulation
from kubeshare.core.token import Arbiter

OTHER_GPU = "gpu-1"


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
    arbiter = Arbiter()
    arbiter.add("a", {GPU: (100_000, 100_000)}, 0)
    arbiter.want("a", 0)
    now = 100 * MS
    arbiter.tick(now)
    while now < 15 * SECOND:
        now += 50 * MS
        arbiter.busy("a", GPU, now)
    arbiter.drained("a", GPU, now, now)
    arbiter.want("a", now)

    assert (arbiter.deadline() or now) - now >= 130 * SECOND


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
