"""Members that want several GPUs: all or none, without starvation, with little idle time."""

from itertools import cycle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.token.simulation import HALF, MS, SECOND, Job, Simulation
from kubeshare.core.token import Arbiter, Close, Extend, Open, Shut, Watch

MICROS = 1_000_000
A, B, C = "gpu-a", "gpu-b", "gpu-c"


class AsksWhileItDrains(Simulation):
    """Jobs that launch without waiting for their kernels: the next launch waits at the gate."""

    def _close(self, name: str, job: Job, gpu: str) -> None:
        super()._close(name, job, gpu)
        self.at(MS // 20, lambda: self._binder(self.arbiter.want(name, self.now)))


def settled(simulation: Simulation) -> None:
    simulation.run(5 * SECOND)


def shared(*gpus: str) -> Arbiter:
    """An arbiter of GPUs on each of which a member that never wants any has a share."""
    arbiter = Arbiter()
    arbiter.add("idle", dict.fromkeys(gpus, (0, MICROS)), 0)
    return arbiter


def test_gates_of_a_gang_open_in_the_order_of_the_gpus() -> None:
    arbiter = shared(A, B)
    arbiter.add("g", {B: HALF, A: HALF}, 0)

    assert arbiter.want("g", 0)[:2] == [Open("g", A, 100 * MS), Open("g", B, 100 * MS)]


def test_a_member_holds_those_gpus_only_that_it_wants() -> None:
    arbiter = shared(A, B)
    arbiter.add("g", {A: HALF, B: HALF}, 0)

    assert arbiter.want("g", 0, [B]) == [Open("g", B, 100 * MS), Watch("g", B)]
    assert arbiter.want("g", 1, [B]) == []


def test_a_member_that_wants_one_more_gives_up_what_it_has_and_gets_all() -> None:
    arbiter = shared(A, B)
    arbiter.add("g", {A: HALF, B: HALF}, 0)
    arbiter.want("g", 0, [A])

    assert arbiter.want("g", 10 * MS, [A, B]) == [Close("g", A)]
    assert arbiter.drained("g", A, 11 * MS, 11 * MS)[:3] == [
        Shut("g", A),
        Open("g", A, 111 * MS),
        Open("g", B, 111 * MS),
    ]


def test_a_member_that_wants_another_gpu_is_done_with_the_one_it_has_before() -> None:
    arbiter = shared(A, B)
    arbiter.add("g", {A: HALF, B: HALF}, 0)
    arbiter.want("g", 0, [A])

    assert arbiter.want("g", 10 * MS, [B]) == [Close("g", A)]
    assert Open("g", B, 111 * MS) in arbiter.drained("g", A, 11 * MS, 11 * MS)
    assert arbiter.gone("g", 20 * MS) == [Shut("g", B)]
    assert (arbiter.holder(A), arbiter.holder(B)) == (None, None)


def had_turns(shares: dict[str, dict[str, tuple[int, int]]], *names: str) -> Arbiter:
    """These members, of which some have had all their GPUs for 1 ms, one after the other."""
    arbiter = Arbiter()
    for name, spec in shares.items():
        arbiter.add(name, spec, 0)
    for turn, name in enumerate(names):
        arbiter.want(name, turn * MS)
        arbiter.gone(name, (turn + 1) * MS)
    return arbiter


def booked() -> Arbiter:
    """`a` holds one GPU till 100 ms, `b` the other till 130 ms, and `g` is to have both then."""
    arbiter = Arbiter()
    for name, gpus in (("a", [A]), ("b", [B]), ("g", [A, B])):
        arbiter.add(name, dict.fromkeys(gpus, HALF), 0)
    arbiter.want("a", 0)
    arbiter.want("b", 30 * MS)
    assert arbiter.want("g", 40 * MS) == []
    return arbiter


def test_the_lease_that_ends_first_is_extended_till_the_gang_can_have_all() -> None:
    arbiter = booked()

    assert arbiter.tick(100 * MS) == [Extend("a", A, 130 * MS)]
    assert arbiter.tick(130 * MS) == [Close("a", A), Close("b", B)]
    assert arbiter.drained("a", A, 131 * MS, 131 * MS) == [Shut("a", A)]
    opened = arbiter.drained("b", B, 132 * MS, 132 * MS)
    assert [action.gpu for action in opened if isinstance(action, Open)] == [A, B]


def test_what_a_gang_has_booked_is_lent_to_others_till_then() -> None:
    arbiter = booked()
    arbiter.add("c", {A: HALF}, 41 * MS)
    arbiter.want("c", 42 * MS)

    arbiter.idle("a", A, 50 * MS)

    assert Open("c", A, 130 * MS) in arbiter.drained("a", A, 50 * MS, 51 * MS)


def test_a_rest_too_short_for_a_grant_is_not_lent() -> None:
    arbiter = booked()
    arbiter.tick(100 * MS)
    arbiter.add("c", {A: HALF}, 101 * MS)
    arbiter.want("c", 102 * MS)

    arbiter.idle("a", A, 127 * MS)

    assert arbiter.drained("a", A, 127 * MS, 127 * MS) == [Shut("a", A)]


@pytest.mark.parametrize("kernel_ms", [50, 100, 300])
def test_a_gang_beside_kernels_on_one_of_its_gpus_gets_its_request_and_leaves_others_theirs(
    kernel_ms: int,
) -> None:
    simulation = Simulation()
    simulation.join("a", 0.5, 1, gpus=[A])
    simulation.join("g", 0.5, 1, gpus=[A, B])
    simulation.join("kernels", 0.5, 1, gpus=[B]).overrun_ns = lambda: kernel_ms * MS
    settled(simulation)

    for gpu in (A, B):
        for share in simulation.shares(30 * SECOND, gpu).values():
            assert share == pytest.approx(0.5, abs=0.02)


@pytest.mark.parametrize("kernel_s", [1, 3])
@pytest.mark.parametrize("jobs", [Simulation, AsksWhileItDrains])
def test_a_gang_is_kept_waiting_by_few_long_kernels(jobs: type[Simulation], kernel_s: int) -> None:
    """Whoever owes it time gets its GPU only if that does not drain longer than it waits anyway."""
    simulation = jobs()
    simulation.join("a", 0.5, 1, gpus=[A])
    simulation.join("g", 0.5, 1, gpus=[A, B])
    simulation.join("kernels", 0.5, 1, gpus=[B]).overrun_ns = lambda: kernel_s * SECOND
    settled(simulation)

    shares = simulation.shares(60 * SECOND, A)

    assert shares["a"] >= 0.45
    assert shares["g"] >= 0.4


@pytest.mark.parametrize("is_busy", [True, False])
@pytest.mark.parametrize("drains_ms", [(1, 190), (1, 1000), (1, 15_500), (1, 1, 15_500)])
def test_drains_now_short_now_long_keep_nobody_elsewhere_from_a_request(
    drains_ms: tuple[int, ...], *, is_busy: bool
) -> None:
    """The gang of `g` gets its two GPUs together: that of `a`, and the one whose drains differ.

    Whoever says nothing of a long drain is bypassed.
    """
    simulation, drains = Simulation(), cycle(drains_ms)
    simulation.busy_interval_ns = 50 * MS if is_busy else 60 * SECOND
    simulation.join("a", 0.9, 1, gpus=[A])
    simulation.join("g", 0.05, 1, gpus=[A, B])
    simulation.join("differs", 0.9, 1, gpus=[B]).overrun_ns = lambda: next(drains) * MS
    simulation.run(20 * SECOND)

    assert simulation.shares(60 * SECOND, A)["a"] >= 0.88


@pytest.mark.parametrize("drains_ms", [(1, 300), (1, 3000), (1, 15_000), (1, 1, 15_000)])
def test_a_gang_gets_its_request_between_two_whose_drains_are_now_short_now_long(
    drains_ms: tuple[int, ...],
) -> None:
    """Neither is lent a GPU again and again while the other one drains."""
    simulation = Simulation()
    simulation.join("g", 0.4, 1, gpus=[A, B], drain_ms=1)
    for gpu, order in ((A, drains_ms), (B, drains_ms[::-1])):
        drains = cycle(order)
        job = simulation.join(f"on {gpu}", 0.5, 1, gpus=[gpu])
        job.overrun_ns = lambda drains=drains: next(drains) * MS  # type: ignore[misc]
    simulation.run(60 * SECOND)

    assert simulation.shares(120 * SECOND, A)["g"] >= 0.37


def test_a_gang_without_a_request_is_not_served_before_one_that_is_expected_back() -> None:
    """Else it begins a long kernel while the other one, which is behind, is between two turns."""
    simulation = Simulation()
    simulation.join("a", 0.1, 1, gpus=[A], drain_ms=1)
    simulation.join("g", 0.8, 1, gpus=[A, B], drain_ms=1)
    simulation.join("long", 0, 1, gpus=[A, B]).overrun_ns = lambda: 15 * SECOND
    simulation.run(100 * SECOND)

    assert simulation.shares(600 * SECOND, A)["g"] >= 0.78


def test_a_latency_sensitive_member_is_not_kept_waiting_for_its_drains() -> None:
    """Though a gang that has waited long is near the other of its GPUs."""
    arbiter = Arbiter()
    arbiter.add("prompt", {A: (500_000, MICROS, 0, True)}, 0)
    arbiter.add("a", {A: (0, MICROS)}, 0)
    for name in ("b", "next on b"):
        arbiter.add(name, {B: (300_000, MICROS)}, 0)
        arbiter.want(name, 0)
    arbiter.add("g", {A: (300_000, MICROS), B: (300_000, MICROS)}, 0)
    arbiter.want("prompt", 0)
    arbiter.idle("prompt", A, 5 * MS)
    arbiter.drained("prompt", A, 25 * MS, 25 * MS)
    arbiter.want("a", 26 * MS)
    arbiter.want("g", 27 * MS)
    assert (arbiter.holder(A), arbiter.holder(B)) == ("a", "b")

    arbiter.want("prompt", 90 * MS)
    arbiter.drained("a", A, 91 * MS, 91 * MS)

    assert arbiter.holder(A) == "prompt"


def test_what_a_gang_has_booked_is_lent_while_another_of_its_gpus_drains() -> None:
    """`b` took 60 ms to drain the last time."""
    arbiter = booked()
    arbiter.tick(130 * MS)
    arbiter.drained("a", A, 130 * MS, 130 * MS)
    arbiter.drained("b", B, 190 * MS, 190 * MS)
    arbiter.want("a", 191 * MS)
    arbiter.want("b", 191 * MS)
    arbiter.gone("g", 192 * MS)
    assert (arbiter.holder(A), arbiter.holder(B)) == ("a", "b")
    arbiter.connected("g", 193 * MS)
    arbiter.want("g", 193 * MS)
    assert arbiter.tick(292 * MS) == [Extend("a", A, 352 * MS), Close("b", B)]


def test_a_booking_ends_with_the_gang_that_made_it() -> None:
    arbiter = booked()

    arbiter.gone("g", 50 * MS)

    assert arbiter.tick(100 * MS) == [Extend("a", A, 200 * MS)]


@pytest.mark.parametrize(
    ("wants", "served"),
    [((A, B), ["g", "g"]), ((B,), ["c"])],
    ids=["it still wants both", "it wants one only"],
)
def test_a_gang_goes_before_a_newcomer_for_what_it_has_booked_and_still_wants(
    wants: tuple[str, ...], served: list[str]
) -> None:
    arbiter = had_turns({"a": {A: HALF}, "b": {B: HALF}, "g": {A: HALF, B: HALF}}, "g")
    arbiter.want("a", 10 * MS)
    arbiter.want("b", 30 * MS)
    arbiter.want("g", 40 * MS)
    arbiter.add("c", {B: HALF}, 41 * MS)
    arbiter.gone("a", 50 * MS)
    arbiter.want("g", 55 * MS, wants)
    arbiter.want("c", 60 * MS)
    arbiter.want("g", 65 * MS, wants)

    opened = arbiter.gone("b", 70 * MS)

    assert [a.member for a in opened if isinstance(a, Open)] == served


def test_what_a_gang_does_not_want_any_more_is_given_to_who_waits_at_once() -> None:
    arbiter = booked()
    arbiter.tick(100 * MS)
    arbiter.add("c", {A: HALF}, 101 * MS)
    arbiter.want("c", 102 * MS)
    arbiter.gone("a", 127 * MS)

    assert Open("c", A, 228 * MS) in arbiter.want("g", 128 * MS, [B])


@pytest.mark.parametrize(
    ("limit", "at_the_end"),
    [(0, Extend("a", A, 130 * MS)), (MICROS // 2, Close("a", A))],
    ids=["at its limit", "within its limit"],
)
def test_who_waited_longer_keeps_a_gang_from_booking_unless_it_is_at_its_limit(
    limit: int, at_the_end: Extend | Close
) -> None:
    arbiter = had_turns(
        {"a": {A: HALF}, "b": {B: HALF}, "single": {A: (0, limit)}, "g": {A: HALF, B: HALF}}
    )
    arbiter.want("a", 0)
    arbiter.want("b", 30 * MS)
    arbiter.want("single", 35 * MS)
    arbiter.want("g", 40 * MS)

    assert arbiter.tick(100 * MS) == [at_the_end]


def test_nothing_is_booked_on_a_gpu_whose_holder_would_be_chosen_again() -> None:
    behind, served = (900_000, MICROS), (0, MICROS)
    arbiter = had_turns({"a": {A: behind}, "b": {B: served}, "g": {A: served, B: served}}, "g")
    arbiter.want("a", 20 * MS)
    arbiter.want("b", 30 * MS)
    arbiter.want("g", 55 * MS)

    assert Extend("a", A, 220 * MS) in arbiter.tick(120 * MS)


def test_a_holder_that_drains_is_in_nobodys_way() -> None:
    """Though it is behind, it has had its turn: its GPU can be booked, and lent till then."""
    behind, served = (900_000, MICROS), (0, MICROS)
    arbiter = had_turns({"a": {A: behind}, "b": {B: served}, "g": {A: served, B: served}}, "g")
    arbiter.want("a", 10 * MS)
    arbiter.want("b", 30 * MS)
    arbiter.idle("a", A, 50 * MS)
    arbiter.want("g", 55 * MS)
    arbiter.add("c", {A: HALF}, 56 * MS)
    arbiter.want("c", 57 * MS)

    assert Open("c", A, 130 * MS) in arbiter.drained("a", A, 60 * MS, 60 * MS)


def test_a_gang_that_cannot_be_next_keeps_no_other_gang_from_booking() -> None:
    behind, served = (900_000, MICROS), (0, MICROS)
    arbiter = had_turns(
        {
            "a": {A: served},
            "b": {B: served},
            "c": {C: behind},
            "first": {A: served, C: served},
            "second": {A: served, B: served},
        },
        "first",
        "second",
    )
    arbiter.want("a", 10 * MS)
    arbiter.want("b", 30 * MS)
    arbiter.want("c", 30 * MS)
    arbiter.want("first", 40 * MS)
    arbiter.want("second", 40 * MS)

    assert Extend("a", A, 130 * MS) in arbiter.tick(110 * MS)


def test_a_gang_at_one_of_its_limits_waits_for_itself_once_its_gpus_are_free() -> None:
    arbiter = had_turns({"g": {A: (0, 900_000), B: HALF}, "b": {B: HALF}})
    arbiter.want("g", 0)
    arbiter.tick(100 * MS)
    for gpu in (A, B):
        arbiter.drained("g", gpu, 100 * MS, 100 * MS)
    arbiter.want("g", 100 * MS)

    assert Open("b", B, 205 * MS) in arbiter.want("b", 105 * MS)
    assert arbiter.deadline() == 205 * MS
    arbiter.gone("b", 106 * MS)
    ready = arbiter.deadline()
    assert ready == 111_111_112
    assert [a.gpu for a in arbiter.tick(ready) if isinstance(a, Open)] == [A, B]


def test_a_gang_with_a_limit_of_nothing_on_one_gpu_never_runs_and_never_wakes_anyone() -> None:
    arbiter = had_turns({"g": {A: (0, MICROS // 2), B: (0, 0)}})

    assert arbiter.want("g", 0) == []
    assert arbiter.deadline() is None


def test_a_gang_is_idle_when_it_is_on_all_its_gpus_at_about_the_same_time() -> None:
    arbiter = shared(A)
    arbiter.add("g", {A: HALF, B: HALF}, 0)
    arbiter.add("b", {B: HALF}, 0)
    arbiter.want("g", 0)
    arbiter.want("b", 1)

    assert arbiter.idle("g", A, 10 * MS) == []
    asked_again = arbiter.idle("g", B, 40 * MS)
    assert [type(action).__name__ for action in asked_again] == ["Watch", "Watch"]
    assert arbiter.idle("g", A, 43 * MS) == []
    assert arbiter.idle("g", B, 44 * MS) == [Close("g", A), Close("g", B)]


def test_a_gang_and_its_rivals_get_their_requests() -> None:
    simulation = Simulation()
    simulation.join("a", 0.7, 1, gpus=(A,))
    simulation.join("b", 0.4, 1, gpus=(B,))
    simulation.join("g", 0.3, 0.3, gpus=(A, B))
    settled(simulation)

    on_a = simulation.shares(20 * SECOND, A)
    on_b = simulation.shares(20 * SECOND, B)

    assert on_a == pytest.approx({"a": 0.7, "g": 0.3}, abs=0.02)
    assert on_b == pytest.approx({"b": 0.7, "g": 0.3}, abs=0.03)


def test_a_gang_gets_its_request_also_where_one_of_its_gpus_is_wanted_by_nobody_else() -> None:
    simulation = Simulation()
    simulation.join("a", 0.5, 1, gpus=(A,))
    simulation.join("g", 0.5, 1, gpus=(A, B))
    settled(simulation)

    assert simulation.shares(20 * SECOND, A) == pytest.approx({"a": 0.5, "g": 0.5}, abs=0.01)


def test_gangs_of_the_same_gpus_share_them_as_single_members_do() -> None:
    simulation = Simulation()
    for name, request in (("a", 0.5), ("b", 0.3), ("c", 0.2)):
        simulation.join(name, request, 1, gpus=(A, B))
    settled(simulation)

    assert simulation.shares(20 * SECOND, A) == pytest.approx(
        {"a": 0.5, "b": 0.3, "c": 0.2}, abs=0.02
    )


def test_gangs_in_a_circle_can_have_a_third_each_and_do() -> None:
    """Any two of them share a GPU, so one at a time is all there can be."""
    simulation = Simulation()
    for name, gpus in (("ab", (A, B)), ("bc", (B, C)), ("ca", (A, C))):
        simulation.join(name, 0.3, 1, gpus=gpus)
    settled(simulation)

    assert simulation.shares(20 * SECOND, A) == pytest.approx({"ab": 1 / 3, "ca": 1 / 3}, abs=0.02)


Asked = list[tuple[tuple[str, ...], int]]
"""Which GPUs members want together, and their requests in hundredths."""


def joined(asked: Asked, seed: int) -> tuple[Simulation, dict[str, float]]:
    """All of them on a machine; requests are cut to what is left of each GPU."""
    simulation, requests = Simulation(seed), {}
    left = dict.fromkeys((A, B, C), 100)
    for number, (gpus, request) in enumerate(asked):
        share = min(request, *(left[gpu] for gpu in gpus))
        if share < 5:
            continue
        for gpu in gpus:
            left[gpu] -= share
        requests[str(number)] = share / 100
        simulation.join(str(number), share / 100, 1, gpus=sorted(gpus))
    return simulation, requests


def members(sets: list[tuple[str, ...]]) -> st.SearchStrategy[Asked]:
    return st.lists(st.tuples(st.sampled_from(sets), st.integers(5, 60)), min_size=1, max_size=7)


ANY = [(A,), (B,), (C,), (A, B), (B, C), (A, C), (A, B, C)]
NESTED = [(A,), (B,), (C,), (A, B), (A, B, C)]


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(members(ANY), st.integers(0, 99))
def test_nobody_with_a_request_starves_whoever_wants_what_together(asked: Asked, seed: int) -> None:
    simulation, _ = joined(asked, seed)

    simulation.run(20 * SECOND)

    assert simulation.longest_wait_ns() < 4 * SECOND


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(members(NESTED), st.integers(0, 99))
def test_requests_are_met_where_gangs_are_nested(asked: Asked, seed: int) -> None:
    simulation, requests = joined(asked, seed)
    simulation.run(5 * SECOND)

    shares = simulation.shares(20 * SECOND, A)

    for name, share in shares.items():
        assert share >= requests[name] - 0.03, shares
