"""Work that may wait for a launch on another GPU: it is served next, and charged by the clock."""

import pytest

from core.token.collectives import Collectives
from core.token.long_kernels import LongKernels
from core.token.simulation import GPU, HALF, MS, SECOND
from kubeshare.core.token import Action, Amounts, Arbiter, Close, Open, Shut

OTHER_GPU = "gpu-1"
BOTH = (GPU, OTHER_GPU)


def split(amounts: Amounts = HALF) -> Arbiter:
    """`g` is bypassed at 300 ms: it waits for the other GPU, which `b` has since 100 ms."""
    arbiter = Arbiter()
    for name, gpus in (("g", BOTH), ("a", (GPU,)), ("b", (OTHER_GPU,))):
        arbiter.add(name, dict.fromkeys(gpus, amounts if name == "g" else HALF), 0)
        arbiter.want(name, 0)
    arbiter.tick(100 * MS)
    arbiter.drained("g", OTHER_GPU, 100 * MS, 100 * MS)
    arbiter.want("g", 101 * MS)
    assert Shut("g", GPU, bypassed=True) in arbiter.tick(300 * MS)
    return arbiter


@pytest.mark.parametrize("limit", [1_000_000, 100_000])
def test_it_gets_both_gpus_after_the_present_leases_though_it_has_had_its_request_and_limit(
    limit: int,
) -> None:
    arbiter = split((100_000, limit))
    actions = arbiter.tick(arbiter.deadline() or 0)
    for name, gpu in (("a", GPU), ("b", OTHER_GPU)):
        actions = arbiter.drained(name, gpu, 402 * MS, 402 * MS)

    assert [a.gpu for a in actions if isinstance(a, Open) and a.member == "g"] == [*BOTH]


def test_it_is_charged_by_the_clock_while_a_limit_of_nothing_keeps_it_waiting() -> None:
    arbiter = split()
    arbiter.change("g", {GPU: HALF, OTHER_GPU: (0, 0)}, 300 * MS)
    arbiter.gone("a", 500 * MS)
    arbiter.gone("b", 500 * MS)

    view = arbiter.views(30 * SECOND)[0]

    assert (view.state, view.charged_ns) == ("hung", 30 * SECOND)
    assert arbiter.deadline() is None
    arbiter.drained("g", GPU, 40 * SECOND, 40 * SECOND)
    assert arbiter.views(41 * SECOND)[0].charged_ns == 40 * SECOND


@pytest.mark.parametrize(
    ("overtime_s", "kept_s"), [(2, 20), (16, 146), (60, 146)], ids=["short", "longest", "longer"]
)
def test_its_limit_counts_sixteen_seconds_of_what_it_used_while_it_waited(
    overtime_s: int, kept_s: int
) -> None:
    arbiter = split((100_000, 100_000))
    arbiter.change("g", {OTHER_GPU: (0, 0)}, 300 * MS)
    end = 300 * MS + overtime_s * SECOND
    arbiter.drained("g", GPU, end, end)
    arbiter.gone("a", end)
    arbiter.gone("b", end)
    arbiter.want("g", end, [GPU])

    assert (arbiter.deadline() or 0) - end == pytest.approx(kept_s * SECOND, abs=3 * SECOND)


@pytest.mark.parametrize(
    ("limit", "kernel_ms", "seconds"),
    [(0.1, 1000, 60), (0.1, 5000, 200), (0.3, 1000, 60), (0.3, 5000, 100)],
)
def test_long_kernels_of_a_claim_that_waits_for_its_other_gpu_keep_its_limit(
    limit: float, kernel_ms: int, seconds: int
) -> None:
    simulation = LongKernels()
    simulation.join("n", 1 - limit, 1)
    simulation.join("m", 0.5, 1, gpus=(OTHER_GPU,))
    simulation.start("long", limit, limit, BOTH, kernel_ms * MS)
    neighbours = simulation.shares(seconds * SECOND)["n"]

    ran = simulation.ran_ns["long"] / simulation.now
    charged = simulation.charged_ns("long", GPU) / simulation.now
    assert ran <= limit + 0.03
    assert charged == pytest.approx(ran, abs=0.03)
    assert neighbours >= 1 - limit - 0.03


@pytest.mark.parametrize(("request_share", "kernel_ms"), [(0.1, 2000), (0.1, 14_000), (0.3, 5000)])
def test_neighbours_keep_their_requests_though_they_share_the_gpu_with_such_kernels(
    request_share: float, kernel_ms: int
) -> None:
    """While two have the GPU each has half of it, so what the neighbour lost it gets back."""
    simulation = LongKernels()
    simulation.join("n", 1 - request_share, 1)
    simulation.join("m", 0.5, 1, gpus=(OTHER_GPU,))
    simulation.start("long", request_share, 1, BOTH, kernel_ms * MS)

    had = simulation.shares(280 * SECOND)["n"]

    ran = simulation.ran_ns["long"] / simulation.now
    assert had - max(0.0, had + ran - 1) / 2 >= 1 - request_share - 0.03


_GANG_AND_TWO = {"g": (0.5, 1, ("a", "b")), "a": (0.5, 1, ("a",)), "b": (0.5, 1, ("b",))}
_TWO_GANGS = {"g": (0.5, 1, ("a", "b")), "h": (0.5, 1, ("a", "b"))}
_LIMITED = {"g": (0.1, 0.1, ("a", "b")), "a": (0.9, 1, ("a",)), "b": (0.9, 1, ("b",))}


@pytest.mark.parametrize(
    ("jobs", "collectives"),
    [(_GANG_AND_TWO, 9125), (_TWO_GANGS, 9400), (_LIMITED, 1770)],
    ids=["beside one on each GPU", "beside another", "at a limit"],
)
def test_collectives_are_as_fast_as_when_they_spun_without_a_charge_and_pay_for_it(
    jobs: dict[str, tuple[float, float, tuple[str, ...]]], collectives: int
) -> None:
    """The numbers of that time, in half a minute; a collective takes about 1.3 ms.

    By when a gate closes between the two halves of one, the number varies by a tenth and more.
    """
    simulation = Collectives()
    for name, (request, limit, gpus) in jobs.items():
        simulation.start(name, request, limit, gpus)
    simulation.run(30 * SECOND)

    assert simulation.done()["g"] >= 0.8 * collectives
    charged, worked = simulation.charged_ns("g", "a"), simulation.worked("g", "a")
    assert charged == pytest.approx(worked, abs=0.01 * simulation.now)
    assert charged <= (jobs["g"][0] + 0.1) * simulation.now


def test_collectives_without_a_request_are_not_served_last_for_ever() -> None:
    """What their work used beside others no request pays back."""
    simulation = Collectives()
    simulation.start("g", 0, 1, ("a", "b"))
    simulation.start("a", 0.5, 1, ("a",))
    simulation.start("b", 0.5, 1, ("b",))
    simulation.run(60 * SECOND)
    before = simulation.done()["g"]
    simulation.run(20 * SECOND)

    assert simulation.done()["g"] > before


def end_others(arbiter: Arbiter, actions: list[Action], now: int) -> None:
    """End at once the work of all others than `g` that are asked to, who then want to go on."""
    for action in actions:
        if isinstance(action, Close) and action.member != "g":
            arbiter.drained(action.member, action.gpu, now, now)
            arbiter.want(action.member, now)


def next_holder(arbiter: Arbiter) -> str | None:
    """Who has the GPU after the present leases of others, which end without work."""
    if arbiter.holder(GPU) != "g":
        now = arbiter.deadline() or 0
        end_others(arbiter, arbiter.tick(now), now)
    return arbiter.holder(GPU)


def test_an_excuse_is_used_up_by_the_next_turn_also_of_a_process_that_leaves() -> None:
    """Else who connects again and again goes first for ever, whatever its limit says."""
    arbiter = split((100_000, 100_000))
    assert next_holder(arbiter) == "g"
    now = arbiter.deadline() or 0

    arbiter.gone("g", now)
    arbiter.connected("g", now)
    arbiter.want("g", now)

    assert next_holder(arbiter) != "g"


def test_who_reports_the_end_of_earlier_work_in_its_turn_is_excused_no_more_often() -> None:
    arbiter = split((100_000, 100_000))
    excused = 0
    while excused < 20 and next_holder(arbiter) == "g":
        excused += 1
        now = arbiter.deadline() or 0
        arbiter.drained("g", GPU, now - 1, now - 1)
        arbiter.tick(now)
        arbiter.drained("g", OTHER_GPU, now, now)
        arbiter.want("g", now)
        actions = arbiter.tick(now + 400 * MS)
        assert Shut("g", GPU, bypassed=True) in actions
        end_others(arbiter, actions, now + 400 * MS)

    assert excused == 8
