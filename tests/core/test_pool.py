"""The pool's arithmetic: examples, and what holds in every state."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubeshare.core.pool import (
    FOREVER,
    IdleVGPU,
    NodePool,
    PendingPod,
    Plan,
    PoolSettings,
    claimed_gpus,
    plan,
)

ON_DEMAND = PoolSettings()
RESERVATION = PoolSettings(keep=FOREVER)
HYBRID = PoolSettings(keep=300.0, minimum=1)
HYBRID_OF_NONE = PoolSettings(keep=300.0)


def idle(*ids: str, seconds: float = 0.0, not_before: float = 0.0) -> tuple[IdleVGPU, ...]:
    return tuple(IdleVGPU(id=gpuid, seconds=seconds, not_before=not_before) for gpuid in ids)


def test_on_demand_an_idle_one_goes_at_once() -> None:
    assert plan(NodePool(idle=(IdleVGPU(id="a"),)), ON_DEMAND) == Plan(release=("a",))


def test_one_that_has_just_become_idle_is_kept_for_its_whole_time() -> None:
    assert plan(NodePool(idle=(IdleVGPU(id="a"),)), HYBRID_OF_NONE) == Plan(again=300)


def test_one_that_somebody_is_about_to_take_stays_for_a_while() -> None:
    pool = NodePool(idle=idle("a", seconds=1, not_before=5))
    assert plan(pool, ON_DEMAND) == Plan(again=4)


def test_by_reservation_all_are_kept_and_none_is_made() -> None:
    assert plan(NodePool(idle=idle("a", "b", seconds=9e9)), RESERVATION) == Plan()
    assert plan(NodePool(idle=idle("a", "b", seconds=9e9), free=2), RESERVATION) == Plan()


def test_hybrid_keeps_a_minimum_for_ever_and_the_rest_for_a_time() -> None:
    assert plan(NodePool(idle=idle("a", "b", seconds=100)), HYBRID) == Plan(again=200)
    late = plan(NodePool(idle=idle("a", "b", seconds=300)), HYBRID)
    assert late == Plan(release=("a",))
    assert plan(NodePool(idle=idle("b", seconds=300)), HYBRID) == Plan()


def test_held_ones_count_for_the_minimum() -> None:
    assert plan(NodePool(held=1, idle=idle("a", seconds=300)), HYBRID).release == ("a",)


def test_the_minimum_is_made_and_warm_ones_beside_it() -> None:
    terms = PoolSettings(keep=FOREVER, minimum=2, warm=1)
    assert plan(NodePool(free=4), terms).make == 2
    assert plan(NodePool(held=2, free=2), terms).make == 1
    assert plan(NodePool(held=2, free=0), terms).make == 0
    assert plan(NodePool(held=2, free=2, makes=False), terms).make == 0


def test_the_longest_idle_goes_first_and_before_it_what_has_no_gpu_yet() -> None:
    pool = NodePool(
        idle=(
            IdleVGPU(id="new", seconds=1, ready=False),
            IdleVGPU(id="old", seconds=9),
            IdleVGPU(id="young", seconds=2),
        )
    )
    assert plan(pool, RESERVATION, claimed=2).release == ("new", "old")


def test_one_whose_time_is_over_goes_before_any_that_is_still_kept() -> None:
    kept = IdleVGPU(id="new", seconds=1, ready=False)
    over = IdleVGPU(id="over", seconds=300)
    young = IdleVGPU(id="young", seconds=2)
    pool = NodePool(idle=(young, kept, over))
    assert plan(pool, HYBRID_OF_NONE) == Plan(release=("over",), again=298)
    assert plan(pool, HYBRID_OF_NONE, claimed=3).release == ("over", "new", "young")


def test_no_more_give_way_than_pods_are_to_get_beyond_what_is_free() -> None:
    pool = NodePool(idle=idle("a", "b", "c"), free=1, freeing=1)
    released = [len(plan(pool, RESERVATION, claimed=claimed).release) for claimed in range(6)]
    assert released == [0, 0, 0, 1, 2, 3]


def test_reserved_ones_give_way_to_no_pod() -> None:
    pool = NodePool(idle=idle("a", "b"))
    assert plan(pool, PoolSettings(keep=FOREVER, minimum=2), claimed=1) == Plan()


def test_an_idle_one_gives_its_gpu_to_a_vgpu_that_was_promised_one() -> None:
    pool = NodePool(held=1, idle=idle("a"), free=-1)
    assert plan(pool, PoolSettings(keep=FOREVER, minimum=2)).release == ("a",)


def test_what_can_take_nobody_goes_whatever_the_policy() -> None:
    pool = NodePool(idle=(IdleVGPU(id="a", useless=True), IdleVGPU(id="b")))
    assert plan(pool, PoolSettings(keep=FOREVER, minimum=2)).release == ("a",)


def test_nothing_is_made_warm_while_a_pod_waits_that_could_run_there() -> None:
    terms = PoolSettings(keep=FOREVER, warm=2)
    assert plan(NodePool(free=2), terms).make == 2
    assert plan(NodePool(free=2), terms, claimed=1).make == 0
    assert plan(NodePool(free=2), terms, claimed=0).make == 0


def test_a_pod_claims_free_gpus_before_any_idle_vgpu_gives_way() -> None:
    pools = {"n1": NodePool(idle=idle("a")), "n2": NodePool(free=1)}
    both = frozenset(pools)
    assert claimed_gpus([PendingPod(gpus=1, nodes=both)], pools, all_of(pools)) == {
        "n1": 0,
        "n2": 1,
    }
    assert claimed_gpus([PendingPod(gpus=1, nodes=both)] * 2, pools, all_of(pools)) == {
        "n2": 1,
        "n1": 1,
    }


def test_pods_claim_one_after_the_other() -> None:
    pools = {"n1": NodePool(idle=idle("a", "b"), free=1)}
    three = [PendingPod(gpus=1, nodes=frozenset(pools))] * 3
    assert claimed_gpus(three, pools, all_of(pools)) == {"n1": 3}
    assert claimed_gpus([*three, *three], pools, all_of(pools)) == {"n1": 3}


def test_a_pod_leaves_the_larger_hole_to_the_larger_pod() -> None:
    pools = {"n1": NodePool(free=3), "n2": NodePool(free=2), "n3": NodePool(idle=idle("a", "b"))}
    small = PendingPod(gpus=1, nodes=frozenset(pools))
    assert claimed_gpus([small], pools, all_of(pools)) == {"n1": 0, "n2": 1, "n3": 0}


def test_the_fewest_possible_give_way_to_a_pod() -> None:
    pools = {"n1": NodePool(idle=idle("a", "b")), "n2": NodePool(idle=idle("c"), free=1)}
    large = PendingPod(gpus=2, nodes=frozenset(pools))
    assert claimed_gpus([large], pools, all_of(pools)) == {"n1": 0, "n2": 2}


def test_those_that_are_held_let_idle_ones_give_way_above_the_minimum() -> None:
    terms = PoolSettings(keep=FOREVER, minimum=2)
    pool = NodePool(held=1, idle=(*idle("a", "b"), IdleVGPU(id="gone", useless=True)))
    assert [pool.yielding(terms), pool.available] == [1, 1]
    about_to_be_taken = NodePool(held=3, idle=idle("a", seconds=1, not_before=5))
    assert about_to_be_taken.yielding(terms) == 0
    assert NodePool(held=1).yielding(terms) == 0


def test_a_pod_that_could_not_run_all_the_same_claims_nothing() -> None:
    pools = {"n1": NodePool(idle=idle("a")), "n2": NodePool(idle=idle("b", "c"))}
    waiting = [
        PendingPod(gpus=3, nodes=frozenset(pools)),
        PendingPod(gpus=1, nodes=frozenset(["elsewhere"])),
    ]
    assert claimed_gpus(waiting, pools, all_of(pools)) == {}


def all_of(pools: dict[str, NodePool]) -> dict[str, PoolSettings]:
    return dict.fromkeys(pools, RESERVATION)


FEW = settings(max_examples=60, deadline=None)
"""Each state is small, and there are not many."""

COUNTS = st.integers(0, 4)
TERMS = st.builds(
    PoolSettings, keep=st.sampled_from([0.0, 10.0, FOREVER]), minimum=COUNTS, warm=COUNTS
)


@st.composite
def pools(draw: st.DrawFn) -> NodePool:
    idle = tuple(
        IdleVGPU(
            id=f"v{number}",
            seconds=draw(st.sampled_from([0.0, 3.0, 20.0])),
            not_before=draw(st.sampled_from([0.0, 5.0])),
            ready=draw(st.booleans()),
            useless=draw(st.integers(0, 5)) == 0,
        )
        for number in range(draw(COUNTS))
    )
    return NodePool(
        held=draw(COUNTS), idle=idle, free=draw(st.integers(-2, 4)), freeing=draw(st.integers(0, 2))
    )


def done(pool: NodePool, what: Plan) -> NodePool:
    """The node once a plan has been carried out, at the same moment."""
    left = tuple(each for each in pool.idle if each.id not in what.release)
    made = tuple(IdleVGPU(id=f"w{number}", ready=False) for number in range(what.make))
    return msgspec.structs.replace(
        pool,
        idle=left + made,
        free=pool.free - what.make,
        freeing=pool.freeing + len(what.release),
    )


@FEW
@given(pools(), TERMS, COUNTS)
def test_a_plan_that_was_carried_out_leaves_nothing_to_do(
    pool: NodePool, terms: PoolSettings, claimed: int
) -> None:
    terms = _consistent(terms)
    after = plan(done(pool, plan(pool, terms, claimed)), terms, claimed)
    assert (after.make, after.release) == (0, ())


@FEW
@given(pools(), TERMS, COUNTS)
def test_the_minimum_is_kept_from_pods_that_wait(
    pool: NodePool, terms: PoolSettings, claimed: int
) -> None:
    """Beyond what the policy lets go by itself, only those above the minimum give way."""
    without = len(plan(pool, terms).release)
    more = plan(pool, terms, claimed).release[without:]
    useless = sum(each.useless for each in pool.idle)
    left = pool.held + len(pool.idle) - useless
    assert not more or left - (without - useless) - len(more) >= terms.minimum


@FEW
@given(pools(), TERMS)
def test_no_more_is_made_than_is_free(pool: NodePool, terms: PoolSettings) -> None:
    assert plan(pool, terms).make <= max(0, pool.free)


@FEW
@given(pools(), TERMS, COUNTS)
def test_no_vgpu_goes_that_somebody_is_about_to_take(
    pool: NodePool, terms: PoolSettings, claimed: int
) -> None:
    by_id = {each.id: each for each in pool.idle}
    for gpuid in plan(pool, terms, claimed).release:
        assert by_id[gpuid].useless or by_id[gpuid].seconds >= by_id[gpuid].not_before


@FEW
@given(pools(), TERMS)
def test_what_time_alone_changes_is_looked_at_then(pool: NodePool, terms: PoolSettings) -> None:
    """Until the time that a plan names, it stays as it is."""
    first = plan(pool, terms)
    if first.release or first.make:
        return
    wait = 60.0 if first.again is None else first.again
    assert wait > 0
    nearly = tuple(
        msgspec.structs.replace(each, seconds=each.seconds + wait * 0.999) for each in pool.idle
    )
    later = plan(msgspec.structs.replace(pool, idle=nearly), terms)
    assert (later.make, later.release) == (0, ())


NODES = st.dictionaries(st.sampled_from(["n1", "n2", "n3"]), pools(), min_size=1)
WAITERS = st.lists(
    st.builds(
        PendingPod,
        gpus=st.integers(1, 3),
        nodes=st.frozensets(st.sampled_from(["n1", "n2", "n3", "gone"])),
    ),
    max_size=4,
)


@FEW
@given(NODES, WAITERS, TERMS)
def test_what_is_claimed_is_there_once_the_plans_were_carried_out(
    nodes: dict[str, NodePool], waiting: list[PendingPod], terms: PoolSettings
) -> None:
    terms = _consistent(terms)
    each = dict.fromkeys(nodes, terms)
    claimed = claimed_gpus(waiting, nodes, each)
    for name, count in claimed.items():
        after = done(nodes[name], plan(nodes[name], terms, count))
        assert after.available >= count


@FEW
@given(NODES, WAITERS, TERMS)
def test_warm_up_and_yield_do_not_undo_each_other(
    nodes: dict[str, NodePool], waiting: list[PendingPod], terms: PoolSettings
) -> None:
    """While pods wait, what gave way is not made again, and what is made does not give way."""
    terms = _consistent(terms)
    each = dict.fromkeys(nodes, terms)
    first = claimed_gpus(waiting, nodes, each)
    after = {name: done(pool, plan(pool, terms, first.get(name))) for name, pool in nodes.items()}
    again = claimed_gpus(waiting, after, each)
    for name, pool in after.items():
        next_plan = plan(pool, terms, again.get(name))
        before = plan(nodes[name], terms, first.get(name))
        made_before = before.make
        useless = {one.id for one in nodes[name].idle if one.useless}
        gave_way = set(before.release) - useless
        assert not (gave_way and next_plan.make)
        assert not (made_before and next_plan.release)


def _consistent(terms: PoolSettings) -> PoolSettings:
    """On demand nothing is kept."""
    return terms if terms.keep else PoolSettings()


@pytest.mark.parametrize("free", [0, 1, 2])
def test_a_pod_that_comes_and_goes_moves_each_gpu_once(free: int) -> None:
    """Yield, bind, end, warm up: four steps, and the state is the first again."""
    terms = PoolSettings(keep=FOREVER, warm=2 - free)
    start = NodePool(idle=idle(*"ab"[free:]), free=0)
    waiter = [PendingPod(gpus=1, nodes=frozenset(["n"]))]
    claimed = claimed_gpus(waiter, {"n": start}, {"n": terms}).get("n")
    assert len(plan(start, terms, claimed).release) == (claimed or 0)
    bound = msgspec.structs.replace(done(start, plan(start, terms, claimed)), freeing=0)
    assert plan(bound, terms).make == 0
    ended = msgspec.structs.replace(bound, free=claimed or 0)
    assert plan(ended, terms).make == (claimed or 0)
