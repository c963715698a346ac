"""A GPU that only one member may use, without a limit, waits for none of its other GPUs."""

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from core.token.collectives import Collectives
from core.token.simulation import HALF, MS, SECOND, Simulation
from kubeshare.core.token import Action, Amounts, Arbiter, Close, Extend, Open, Shut

MICROS = 1_000_000
A, B, C = GPUS = ("gpu-a", "gpu-b", "gpu-c")
WHOLE = (MICROS, MICROS)


def wide_beside(amounts: Amounts = WHOLE) -> Arbiter:
    """`wide` has A and B, of these amounts, and half of C; `b` holds C, and has the rest."""
    arbiter = Arbiter()
    arbiter.add("b", {C: HALF}, 0)
    arbiter.add("wide", {A: amounts, B: amounts, C: HALF}, 0)
    arbiter.want("b", 0)
    return arbiter


def opened(actions: list[Action]) -> list[tuple[str, str]]:
    return [(action.member, action.gpu) for action in actions if isinstance(action, Open)]


def test_whole_gpus_open_at_once_while_the_other_is_waited_for() -> None:
    arbiter = wide_beside()

    assert opened(arbiter.want("wide", MS)) == [("wide", A), ("wide", B)]
    assert Close("b", C) in arbiter.tick(100 * MS)
    assert opened(arbiter.drained("b", C, 101 * MS, 101 * MS)) == [("wide", C)]


def test_whole_gpus_stay_open_when_the_other_is_given_on() -> None:
    arbiter = wide_beside()
    arbiter.want("wide", MS)
    arbiter.tick(100 * MS)
    arbiter.drained("b", C, 101 * MS, 101 * MS)
    arbiter.want("b", 101 * MS)

    actions = [*arbiter.tick(101 * MS), *arbiter.tick(202 * MS)]

    assert Close("wide", C) in actions
    assert {Extend("wide", A, 302 * MS), Extend("wide", B, 302 * MS)} <= set(actions)
    arbiter.drained("wide", C, 203 * MS, 203 * MS)
    assert arbiter.want("wide", 204 * MS) == []
    assert [view.state for view in arbiter.views(204 * MS)] == ["open", "open", "open", "waiting"]


@pytest.mark.parametrize(
    ("amounts", "whole"),
    [
        (HALF, True),
        ((300_000, 300_000, MICROS), True),
        ((300_000, 300_000), False),
        ((300_000, 300_000, 900_000), False),
    ],
    ids=["a request", "no limit while alone", "a limit", "a limit while alone"],
)
def test_a_gpu_is_whole_whose_only_share_has_no_limit_in_force(
    amounts: Amounts, whole: bool
) -> None:
    arbiter = wide_beside(amounts)

    assert opened(arbiter.want("wide", MS)) == ([("wide", A), ("wide", B)] if whole else [])


def test_a_neighbour_of_a_whole_gpu_gets_it_after_one_quota_and_from_then_on_in_turns() -> None:
    arbiter = wide_beside()
    arbiter.want("wide", MS)
    arbiter.remove("b", 10 * MS)
    arbiter.add("n", {A: (0, MICROS)}, 20 * MS)
    arbiter.want("n", 20 * MS)

    assert Close("wide", A) in arbiter.tick(101 * MS)
    assert opened(arbiter.drained("wide", A, 102 * MS, 102 * MS)) == [("n", A)]
    assert arbiter.want("wide", 103 * MS) == []
    assert arbiter.holder(B) == arbiter.holder(C) == "wide"


def test_a_limit_that_is_set_holds_a_whole_gpu_back() -> None:
    arbiter = wide_beside()
    arbiter.want("wide", MS)
    limited = (300_000, 300_000)
    arbiter.change("wide", {A: limited, B: WHOLE, C: HALF}, 50 * MS)

    at_the_end = [*arbiter.tick(101 * MS), *arbiter.tick(201 * MS)]

    assert Close("wide", A) in at_the_end
    assert Close("wide", B) not in at_the_end
    arbiter.drained("wide", A, 201 * MS, 201 * MS)
    assert opened(arbiter.want("wide", 202 * MS)) == []


def test_a_gpu_that_a_neighbour_leaves_opens_by_itself() -> None:
    arbiter = wide_beside()
    arbiter.add("n", {A: HALF}, 0)
    arbiter.want("n", 0)
    assert opened(arbiter.want("wide", MS)) == [("wide", B)]

    assert opened(arbiter.remove("n", 50 * MS)) == [("wide", A)]


def test_a_whole_gpu_is_given_back_by_itself_when_it_is_idle() -> None:
    arbiter = wide_beside()
    arbiter.want("wide", MS)
    arbiter.tick(101 * MS)

    assert arbiter.idle("wide", A, 110 * MS)[0] == Close("wide", A)
    assert arbiter.drained("wide", A, 105 * MS, 110 * MS)[0] == Shut("wide", A)
    used = {view.gpu: view.charged_ns for view in arbiter.views(110 * MS) if view.name == "wide"}
    assert used == {A: 104 * MS, B: 109 * MS, C: 0}


def test_a_drain_that_waits_for_a_launch_on_a_gpu_of_others_gives_way_and_gets_both_later() -> None:
    """Half of a collective runs on A, and the other half waits at the gate of C."""
    arbiter = Arbiter()
    for name, gpus in (("g", [A, C]), ("a", [A]), ("c", [C])):
        arbiter.add(name, dict.fromkeys(gpus, HALF), 0)
    for name in ("g", "a", "c"):
        arbiter.want(name, 0)
    arbiter.tick(100 * MS)
    assert opened(arbiter.drained("g", C, 100 * MS, 100 * MS)) == [("c", C)]
    arbiter.want("g", 101 * MS)
    arbiter.busy("g", A, 290 * MS)

    assert Shut("g", A, bypassed=True) in arbiter.tick(300 * MS)
    arbiter.gone("c", 301 * MS)
    assert opened(arbiter.gone("a", 302 * MS)) == [("g", A), ("g", C)]


def test_two_and_a_half_gpus_beside_half_a_gpu() -> None:
    simulation = Simulation()
    simulation.join("wide", 0.5, 1, gpus=(C,), whole=(A, B))
    simulation.join("b", 0.5, 1, gpus=(C,))
    simulation.run(5 * SECOND)

    assert simulation.shares(10 * SECOND, A) == {"wide": 1}
    assert simulation.shares(10 * SECOND, B) == {"wide": 1}
    assert simulation.shares(10 * SECOND, C) == pytest.approx({"wide": 0.5, "b": 0.5}, abs=0.01)


def test_a_gpu_is_whole_before_a_neighbour_comes_and_after_it_has_gone() -> None:
    simulation = Simulation()
    simulation.join("wide", 0.5, 1, gpus=(A, C))
    simulation.join("b", 0.5, 1, gpus=(C,))
    simulation.run(5 * SECOND)
    for expected in ({"wide": 1}, {"wide": 0.5, "n": 0.5}):
        assert simulation.shares(10 * SECOND, A) == pytest.approx(expected, abs=0.02)
        if "n" not in simulation.jobs:
            simulation.join("n", 0.5, 1, gpus=(A,))
            simulation.run(2 * SECOND)
    simulation.leave("n")
    simulation.run(SECOND)

    assert simulation.shares(10 * SECOND, A) == {"wide": 1}
    assert simulation.shares(10 * SECOND, C) == pytest.approx({"wide": 0.5, "b": 0.5}, abs=0.02)


WITHOUT_SHRINKING = [Phase.explicit, Phase.reuse, Phase.generate]
"""An example runs for a second of the test's time."""

Asked = list[tuple[tuple[str, ...], int]]
"""Which GPUs members want, and what of each they request, in hundredths."""

SETS = [(A,), (B,), (C,), (A, B), (B, C), (A, C), (A, B, C)]


def fitting(asked: Asked) -> dict[str, tuple[tuple[str, ...], float]]:
    """Names of members with their GPUs and requests, which are cut to what is left of each GPU."""
    left, members = dict.fromkeys(GPUS, 100), {}
    for number, (gpus, request) in enumerate(asked):
        share = min(request, *(left[gpu] for gpu in gpus))
        if share >= 5:
            members[str(number)] = gpus, share / 100
            left = {gpu: left[gpu] - share * (gpu in gpus) for gpu in GPUS}
    return members


def neighbours(members: dict[str, tuple[tuple[str, ...], float]], gpu: str) -> list[str]:
    return [name for name, (gpus, _) in members.items() if gpu in gpus]


@pytest.mark.slow
@settings(max_examples=25, deadline=None, phases=WITHOUT_SHRINKING)
@given(
    st.lists(st.tuples(st.sampled_from(SETS), st.integers(5, 60)), min_size=1, max_size=4),
    st.integers(0, 99),
)
def test_whole_gpus_are_used_all_the_time_and_cost_no_request(asked: Asked, seed: int) -> None:
    simulation, members = Simulation(seed), fitting(asked)
    for name, (gpus, request) in members.items():
        simulation.join(name, request, 1, gpus=gpus)
    simulation.run(5 * SECOND)

    at = {gpu: simulation.shares(20 * SECOND, gpu) for gpu in GPUS}

    contended = {gpu for gpu in GPUS if len(neighbours(members, gpu)) > 1}
    for gpu in [gpu for gpu in GPUS if len(neighbours(members, gpu)) == 1]:
        assert set(at[gpu].values()) == {1}
    if all(len(contended.intersection(gpus)) <= 1 for gpus, _ in members.values()):
        for name, (gpus, request) in members.items():
            assert all(at[gpu][name] >= request - 0.03 for gpu in gpus), at


@pytest.mark.slow
@settings(max_examples=20, deadline=None, phases=WITHOUT_SHRINKING)
@given(
    st.lists(st.tuples(st.sampled_from(SETS), st.integers(5, 60)), min_size=1, max_size=5),
    st.lists(st.integers(100, 3000), min_size=5, max_size=5),
    st.integers(0, 99),
)
def test_collectives_come_to_their_end_whoever_comes_and_goes(
    asked: Asked, pauses: list[int], seed: int
) -> None:
    """Halves of collectives spin on one GPU until the others have begun: no circle may form."""
    simulation, members = Collectives(seed), fitting(asked)
    for (name, (gpus, request)), pause in zip(members.items(), pauses, strict=False):
        simulation.start(name, request, 1, gpus)
        simulation.run(pause * MS)
    for name in [*members][::2]:
        simulation.leave(name)
        before = simulation.done()
        simulation.run(5 * SECOND)
        assert all(count > before[each] for each, count in simulation.done().items())
