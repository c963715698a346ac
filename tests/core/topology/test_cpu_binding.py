"""Each GPU with its nearest cores; N1 to N5 are the cases of the conformance table.

The machine: two NUMA nodes of 14 cores with two threads each; GPUs 0 and 1 on node 0.
"""

import math
import random
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubeshare.core.topology.cpu_binding import Tenant, bind_cpus
from kubeshare.core.topology.cpus import Cpus, read_cpu_list

NODE_0 = read_cpu_list("0-13,28-41", "cpus")
NODE_1 = read_cpu_list("14-27,42-55", "cpus")
ALL = NODE_0 | NODE_1
CORES = [frozenset([core, core + 28]) for core in range(28)]
NOTHING: Cpus = frozenset()


def bound(tenants: dict[str, Tenant], cores: list[Cpus] = CORES) -> dict[str, Cpus]:
    return dict(bind_cpus(tenants, cores).cpus)


def again(tenants: dict[str, Tenant], chosen: dict[str, Cpus]) -> dict[str, Tenant]:
    """The same tenants, bound as chosen."""
    return {
        name: Tenant(
            near=each.near,
            allowed=each.allowed,
            cores=each.cores,
            bound=chosen.get(name, NOTHING),
            cpu_request=each.cpu_request,
        )
        for name, each in tenants.items()
    }


def of(*near: Cpus, cores: int | None = None, cpus: float = 0, allowed: Cpus = ALL) -> Tenant:
    return Tenant(near=near, allowed=allowed, cores=cores, cpu_request=round(1000 * cpus))


def cpus(text: str) -> Cpus:
    return read_cpu_list(text, "cpus")


@pytest.mark.parametrize(
    ("tenant", "expected"),
    [
        pytest.param(of(NODE_0), "0-13,28-41", id="N1 near the GPU"),
        pytest.param(of(NODE_0, NODE_1, allowed=ALL | {56}), "0-55", id="N2 two sockets"),
        pytest.param(of(NODE_0, NODE_1, cores=1), "0,14,28,42", id="N2 a core each"),
        pytest.param(of(NODE_0, cores=2), "0-1,28-29", id="N3 two cores"),
        pytest.param(of(NOTHING, cores=2), None, id="N5 unknown"),
        pytest.param(of(NODE_0, NOTHING), None, id="N5 one of them unknown"),
        pytest.param(of(), None, id="no GPU"),
        pytest.param(of(ALL), None, id="one NUMA node"),
        pytest.param(of(NODE_0, NODE_1), None, id="GPUs on both"),
        pytest.param(of(NODE_0, allowed=NODE_1), None, id="not allowed near the GPU"),
        pytest.param(of(NODE_0, allowed=cpus("5,14,33")), "5,33", id="allowed a few"),
        pytest.param(of(NODE_0, cores=1, allowed=cpus("5,14,20")), "5", id="allowed a thread"),
        pytest.param(of(NODE_0, NODE_0, cores=1), "0-1,28-29", id="two GPUs of a socket"),
        pytest.param(of(NODE_0, cores=20), "0-13,28-41", id="more than are near"),
        pytest.param(of(NODE_0, cores=1, cpus=2), "0,28", id="requests what it gets"),
        pytest.param(of(NODE_0, cores=1, cpus=2.5), "0-1,28-29", id="requests more"),
        pytest.param(of(NODE_0, cores=1, cpus=28), "0-13,28-41", id="requests all"),
        pytest.param(of(NODE_0, cores=1, cpus=28.001), None, id="requests more than there is"),
        pytest.param(of(NODE_0, cpus=28.001), None, id="requests more than is near"),
    ],
)
def test_one_container(tenant: Tenant, expected: str | None) -> None:
    assert bound({"a": tenant}) == ({} if expected is None else {"a": cpus(expected)})


def test_n4_tenants_of_one_gpu_stay_apart_while_there_are_enough_cores() -> None:
    tenants = {str(number): of(NODE_0, cores=2) for number in range(7)}
    chosen = bound(tenants)
    assert sorted(map(len, chosen.values())) == [4] * 7
    assert not any(one & other for one, other in combinations(chosen.values(), 2))
    assert bound(again(tenants, chosen)) == chosen


def test_where_there_are_too_few_cores_they_are_shared_evenly() -> None:
    chosen = bound({str(number): of(NODE_0, cores=2) for number in range(10)})
    shared = [sum(core <= each for each in chosen.values()) for core in CORES[:14]]
    assert sorted(shared) == [1] * 8 + [2] * 6


def test_who_shared_a_core_gets_one_of_those_that_leave() -> None:
    tenants = {str(number): of(NODE_0, cores=7) for number in range(3)}
    chosen = bound(tenants)
    [alone] = [
        name
        for name in chosen
        if not any(chosen[name] & chosen[other] for other in chosen if other != name)
    ]
    del tenants[alone]
    left = bound(again(tenants, chosen))
    one, other = left.values()
    assert one.isdisjoint(other)
    # One of them stays where it is.
    assert sum(left[name] == chosen[name] for name in left) == 1


def test_the_tenant_with_a_choice_leaves_the_core_to_the_one_without() -> None:
    tenants = {"a": of(cpus("0-1"), cores=1), "b": of(cpus("0"), cores=1)}
    assert bound(tenants) == {"a": cpus("1"), "b": cpus("0")}


def test_a_core_of_which_another_has_one_thread_is_not_free() -> None:
    tenants = {"a": of(NODE_0, cores=1, allowed=cpus("28,50")), "b": of(NODE_0, cores=1)}
    assert bound(tenants) == {"a": cpus("28"), "b": cpus("1,29")}


def test_a_core_that_somebody_from_elsewhere_has_to_use_is_not_free() -> None:
    tenants = {"a": of(NODE_1, cores=1, allowed=cpus("0")), "b": of(NODE_0, cores=1)}
    assert bound(tenants) == {"b": cpus("1,29")}


def test_newcomers_move_nobody() -> None:
    tenants = again({"z": of(NODE_0, cores=2)}, {"z": cpus("0-1,28-29")})
    joined = bound(tenants | {"a": of(NODE_0, cores=2), "b": of(NODE_0)})
    assert joined == {"z": cpus("0-1,28-29"), "a": cpus("2-3,30-31"), "b": NODE_0}


def test_with_another_number_present_cores_are_kept() -> None:
    tenant = {"a": of(NODE_0, cores=3)}
    assert bound(again(tenant, {"a": cpus("5-6,33-34")})) == {"a": cpus("0,5-6,28,33-34")}
    assert bound(again({"a": of(NODE_0, cores=1)}, {"a": cpus("5-6,33-34")})) == {"a": cpus("5,33")}


def test_requests_that_do_not_fit_near_the_gpu_leave_the_last_one_unbound() -> None:
    tenants = {name: of(NODE_0, cpus=10) for name in "abc"}
    choice = bind_cpus(tenants, CORES)
    assert choice.cpus == {"a": NODE_0, "b": NODE_0}
    assert choice.without_room == {"c"}
    # Who is bound stays bound.
    choice = bind_cpus(again(tenants, {"b": NODE_0, "c": NODE_0}), CORES)
    assert choice.without_room == {"a"}


def test_requests_of_gpus_on_both_sockets_count_for_each() -> None:
    tenants = {"a": of(NODE_0, NODE_1, cpus=30, allowed=ALL | {56}), "b": of(NODE_0, cpus=20)}
    choice = bind_cpus(tenants | {"c": of(NODE_1, cpus=7)}, CORES)
    assert choice.without_room == {"c"}


# A smaller machine of the same form: two NUMA nodes of four cores.
SMBOTH = [frozenset([core, core + 8]) for core in range(8)]
LEFT, RIGHT = cpus("0-3,8-11"), cpus("4-7,12-15")
BOTH = LEFT | RIGHT
# A smaller machine of the same form: two NUMA nodes of four cores.
SMALL = [frozenset([core, core + 8]) for core in range(8)]
LEFT, RIGHT = cpus("0-3,8-11"), cpus("4-7,12-15")
BOTH = LEFT | RIGHT
SOCKETS = st.lists(st.sampled_from([LEFT, RIGHT]), min_size=1, max_size=4)
TENANTS = st.dictionaries(
    st.sampled_from("abcdef"),
    st.builds(
        lambda near, cores, bound, allowed, request: Tenant(
            near=tuple(near),
            allowed=allowed,
            cores=cores,
            bound=bound & allowed,
            cpu_request=request,
        ),
        SOCKETS,
        st.integers(1, 5) | st.none(),
        st.frozensets(st.integers(0, 15), max_size=4) | st.just(NOTHING),
        st.just(BOTH) | st.frozensets(st.integers(0, 15), min_size=1),
        st.integers(0, 6_000),
    ),
    max_size=6,
)


@settings(deadline=None)
@given(TENANTS)
def test_every_binding_is_near_its_gpus_allowed_and_of_whole_cores(
    tenants: dict[str, Tenant],
) -> None:
    choice = bind_cpus(tenants, SMALL)
    for name, found in choice.cpus.items():
        tenant = tenants[name]
        usable = NOTHING.union(*tenant.near) & tenant.allowed
        assert NOTHING != found <= usable
        assert found != tenant.allowed
        assert all(core & usable <= found or not core & found for core in SMALL)
        assert 1000 * len(found) >= tenant.cpu_request
        if tenant.cores is not None and tenant.allowed == BOTH:
            requested = 2 * math.ceil(tenant.cpu_request / 2000)
            assert len(found) <= max(2 * tenant.cores * len(tenant.near), requested)


@settings(deadline=None)
@given(TENANTS)
def test_what_is_bound_stays_so(tenants: dict[str, Tenant]) -> None:
    chosen = bound(tenants, SMALL)
    assert bound(again(tenants, chosen), SMALL) == chosen


@settings(deadline=None)
@given(TENANTS)
def test_no_core_is_shared_while_one_nearby_is_free(tenants: dict[str, Tenant]) -> None:
    choice = bind_cpus(tenants, SMALL)
    users = {
        name: choice.cpus.get(name, each.allowed)
        for name, each in tenants.items()
        if each.cores is not None and name not in choice.without_room
    }
    for name in users.keys() & choice.cpus.keys():
        near = set(tenants[name].near)
        shares = any(users[name] & users[other] for other in users if other != name)
        if shares and tenants[name].allowed == BOTH and len(near) == 1:
            cores = [core for core in SMALL if any(core <= one for one in near)]
            assert all(any(core & used for used in users.values()) for core in cores)


@settings(deadline=None)
@given(TENANTS, SOCKETS, st.integers(1, 4))
def test_a_newcomer_moves_only_who_may_not_use_all_that_is_near(
    tenants: dict[str, Tenant], near: list[Cpus], cores: int
) -> None:
    free = {name: each for name, each in tenants.items() if each.allowed == BOTH}
    chosen = bound(free, SMALL)
    joined = bound({**again(free, chosen), "new": of(*near, cores=cores, allowed=BOTH)}, SMALL)
    assert {name: joined[name] for name in chosen} == chosen


@settings(deadline=None)
@given(TENANTS, st.randoms(use_true_random=False))
def test_the_order_of_tenants_gpus_and_cores_never_matters(
    tenants: dict[str, Tenant], source: random.Random
) -> None:
    shuffled = {
        name: Tenant(
            near=tuple(source.sample(each.near, len(each.near))),
            allowed=each.allowed,
            cores=each.cores,
            bound=each.bound,
            cpu_request=each.cpu_request,
        )
        for name, each in source.sample(list(tenants.items()), len(tenants))
    }
    expected = bind_cpus(tenants, SMALL)
    assert bind_cpus(shuffled, source.sample(SMALL, len(SMALL))) == expected
