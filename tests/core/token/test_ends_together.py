"""Leases of a machine's GPUs that are about to end do so with the one that ends."""

import pytest

from core.token.simulation import HALF, MS, SECOND, Simulation
from kubeshare.core.token import Action, Arbiter, Close, Extend, Open

A, B = "gpu-a", "gpu-b"
QUOTA_MS = 100


def both_held(apart_ms: int, *, b_is_wanted: bool = True) -> Arbiter:
    """`a` has held A since 0, and `b` B since later; another waits for each."""
    arbiter = Arbiter(QUOTA_MS * MS)
    for name, gpu in (("a", A), ("a2", A), ("b", B), ("b2", B)):
        arbiter.add(name, {gpu: HALF}, 0)
    arbiter.want("a", 0)
    arbiter.want("a2", 1)
    arbiter.want("b", apart_ms * MS)
    if b_is_wanted:
        arbiter.want("b2", apart_ms * MS + 1)
    return arbiter


def closed(actions: list[Action]) -> list[str]:
    return [action.member for action in actions if isinstance(action, Close)]


@pytest.mark.parametrize(("apart_ms", "ended"), [(6, ["a", "b"]), (7, ["a"])])
def test_a_lease_of_which_a_sixteenth_is_left_ends_with_another(
    apart_ms: int, ended: list[str]
) -> None:
    arbiter = both_held(apart_ms)

    assert closed(arbiter.tick(QUOTA_MS * MS)) == ended
    open_until = (QUOTA_MS + apart_ms) * MS
    assert (arbiter.deadline() == open_until) is (ended == ["a"])


def test_where_nobody_waits_a_lease_goes_on() -> None:
    arbiter = both_held(3, b_is_wanted=False)

    assert closed(arbiter.tick(QUOTA_MS * MS)) == ["a"]
    assert arbiter.tick((QUOTA_MS + 3) * MS) == [Extend("b", B, (2 * QUOTA_MS + 3) * MS)]


def test_a_message_between_two_ends_ends_none() -> None:
    arbiter = both_held(3)

    assert arbiter.idle("a2", A, (QUOTA_MS - 2) * MS) == []


def test_a_lease_of_the_shortest_length_is_not_cut() -> None:
    arbiter = Arbiter(5 * MS)
    for name, gpu in (("a", A), ("a2", A), ("b", B), ("b2", B)):
        arbiter.add(name, {gpu: HALF}, 0)
        arbiter.want(name, 0 if gpu == A else 100_000)

    assert closed(arbiter.tick(5 * MS)) == ["a"]


@pytest.mark.parametrize("gang", [(A,), (A, B)], ids=["no gang", "a gang"])
def test_while_a_gang_waits_leases_keep_their_times(gang: tuple[str, ...]) -> None:
    arbiter = both_held(3)
    arbiter.add("gang", dict.fromkeys(gang, HALF), 4 * MS)
    arbiter.want("gang", 4 * MS)

    assert closed(arbiter.tick(QUOTA_MS * MS)) == (["a"] if len(gang) > 1 else ["a", "b"])


@pytest.mark.parametrize(
    ("apart_ms", "b_is_wanted"),
    [(90, False), (9, True)],
    ids=["it ends with no other", "no other ends with it"],
)
def test_what_a_gang_holds_it_keeps_until_the_end_of_its_lease(
    apart_ms: int, *, b_is_wanted: bool
) -> None:
    arbiter = both_held(apart_ms, b_is_wanted=b_is_wanted)
    arbiter.add("gang", {"gpu-c": HALF, "gpu-d": HALF}, 0)
    arbiter.add("c", {"gpu-c": HALF}, 0)
    arbiter.add("d", {"gpu-d": HALF}, 0)
    arbiter.want("gang", 3 * MS)
    arbiter.want("d", 4 * MS)

    assert closed(arbiter.tick(QUOTA_MS * MS)) == ["a"]
    assert closed(arbiter.tick((QUOTA_MS + 3) * MS)) == ["gang", "gang"]


def test_eight_gpus_whose_jobs_always_want_end_their_leases_in_few_wake_ups() -> None:
    simulation = Simulation(seed=1)
    for gpu in range(8):
        for job in range(8):
            simulation.join(f"{gpu}-{job}", 0.125, 1, gpus=(f"gpu-{gpu}",), drain_ms=1)
    simulation.run(10 * SECOND)

    ends = [at for at, action in simulation.actions if isinstance(action, Close)]
    assert len(ends) > 700
    assert len(set(ends)) < len(ends) / 2


def test_a_gpu_whose_leases_end_all_the_time_takes_nothing_from_another() -> None:
    def run(beside: bool) -> tuple[dict[str, float], int]:
        simulation = Simulation(seed=2)
        simulation.join("most", 0.7, 1, gpus=(A,))
        simulation.join("rest", 0.3, 1, gpus=(A,))
        simulation.arbiter.quota_ns = 5 * MS
        for name in ("x", "y"):
            simulation.join(name, 0.5, 1, gpus=(B,), drain_ms=0, is_idle=not beside)
        shares = simulation.shares(60 * SECOND, A)
        opened = [action.gpu for _, action in simulation.actions if isinstance(action, Open)]
        assert opened.count(B) > 5000 or not beside
        return shares, opened.count(A)

    (alone, turns_alone), (beside, turns_beside) = run(beside=False), run(beside=True)

    assert beside == {name: pytest.approx(share, abs=0.01) for name, share in alone.items()}
    assert beside["most"] == pytest.approx(0.7, abs=0.01)
    assert turns_alone < turns_beside < turns_alone * 16 / 15
