"""Each GPU with its nearest cores; N1 to N5 are the cases of the conformance table.

The machine: two NUMA nodes of 14 cores with two threads each; GPUs 0 and 1 on node 0.
"""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubeshare.core.errors import InvalidValueError
from kubeshare.core.topology.cpus import choose_cpus, read_cpu_list

NODE_0 = read_cpu_list("0-13,28-41", "cpus")
NODE_1 = read_cpu_list("14-27,42-55", "cpus")
SIBLINGS = [frozenset([core, core + 28]) for core in range(28)]


def test_n1_a_gpu_gets_cores_of_its_own_numa_node() -> None:
    assert choose_cpus([NODE_0], 0, {}, SIBLINGS) == NODE_0


def test_n2_gpus_of_two_sockets_get_the_union() -> None:
    assert choose_cpus([NODE_0, NODE_1], 0, {}, SIBLINGS) == NODE_0 | NODE_1
    assert choose_cpus([NODE_1, NODE_0], 1, {}, SIBLINGS) == frozenset([0, 28, 14, 42])


def test_n3_n_cores_are_exactly_so_many_and_local() -> None:
    assert choose_cpus([NODE_0], 2, {}, SIBLINGS) == frozenset([0, 28, 1, 29])


def test_n4_tenants_of_one_gpu_stay_apart_while_there_are_enough_cores() -> None:
    tenants: dict[str, frozenset[int]] = {}
    for number in range(7):
        chosen = choose_cpus([NODE_0], 2, tenants, SIBLINGS)
        assert chosen
        assert not any(chosen & others for others in tenants.values())
        tenants[str(number)] = chosen
    assert choose_cpus([NODE_0], 2, tenants, SIBLINGS) == tenants["0"]


def test_n5_a_gpu_whose_place_is_not_known_changes_nothing() -> None:
    assert choose_cpus([frozenset()], 2, {}, SIBLINGS) is None
    assert choose_cpus([NODE_0, frozenset()], 2, {}, SIBLINGS) is None
    assert choose_cpus([], 2, {}, SIBLINGS) is None


def test_two_gpus_of_one_socket_get_twice_as_many_cores() -> None:
    assert choose_cpus([NODE_0, NODE_0], 1, {}, SIBLINGS) == frozenset([0, 28, 1, 29])


def test_a_core_of_which_somebody_has_one_thread_is_not_free() -> None:
    assert choose_cpus([NODE_0], 1, {"q": {28}}, SIBLINGS) == frozenset([1, 29])


def test_where_fewer_cores_are_near_all_of_them_are_taken() -> None:
    assert choose_cpus([frozenset([0, 1, 28])], 5, {}, SIBLINGS) == frozenset([0, 1, 28])


def test_a_cpu_without_siblings_is_a_core() -> None:
    assert choose_cpus([NODE_0], 2, {}, []) == frozenset([0, 1])


def test_less_than_no_core_is_refused() -> None:
    with pytest.raises(ValueError, match="-1 cores"):
        choose_cpus([NODE_0], -1, {}, SIBLINGS)


def test_the_gpu_with_fewer_cores_around_chooses_first() -> None:
    few, many = frozenset([0, 5]), frozenset([0, 1, 2])
    assert choose_cpus([few, many], 1, {}, []) == frozenset([0, 1])
    assert choose_cpus([many, few], 1, {}, []) == frozenset([0, 1])


def test_of_gpus_with_as_many_cores_around_the_lowest_choose_first() -> None:
    low, high = frozenset([0, 1, 9]), frozenset([1, 2, 9])
    assert choose_cpus([high, low], 2, {"q": [1]}, []) == frozenset([0, 9, 2, 1])
    assert choose_cpus([low, high], 2, {"q": [1]}, []) == frozenset([0, 9, 2, 1])


@settings(deadline=None)
@given(
    st.lists(st.sampled_from([NODE_0, NODE_1]), min_size=1, max_size=4),
    st.integers(1, 20),
    st.dictionaries(st.text(max_size=2), st.frozensets(st.integers(0, 55)), max_size=4),
    st.randoms(use_true_random=False),
)
def test_the_order_of_gpus_cores_and_tenants_never_matters(
    gpus: list[frozenset[int]],
    cores: int,
    tenants: dict[str, frozenset[int]],
    source: random.Random,
) -> None:
    chosen = choose_cpus(gpus, cores, tenants, SIBLINGS)
    assert chosen is not None
    assert chosen <= frozenset[int]().union(*gpus)
    assert all(core <= chosen or not core & chosen for core in SIBLINGS)
    again = choose_cpus(
        source.sample(gpus, len(gpus)),
        cores,
        dict(source.sample(list(tenants.items()), len(tenants))),
        source.sample(SIBLINGS, len(SIBLINGS)),
    )
    assert again == chosen


@pytest.mark.parametrize(
    ("text", "cpus"),
    [("", set()), (" \n", set()), ("3", {3}), ("0-2, 7", {0, 1, 2, 7}), ("65535", {65535})],
)
def test_a_list_of_cpus_is_read(text: str, cpus: set[int]) -> None:
    assert read_cpu_list(text, "cpus") == cpus


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a", '"a" is not a CPU such as 3, or several as 0-13'),
        ("1-", '"1-" is not a CPU such as 3, or several as 0-13'),
        ("1,,2", '"" is not a CPU such as 3, or several as 0-13'),
        ("-1", '"-1" is not a CPU such as 3, or several as 0-13'),
        ("0, 3-1", '" 3-1" is not within 0-65535'),
        ("65536", '"65536" is not within 0-65535'),
        ("1" + " " * 65_536, "is longer than 65536 characters"),
    ],
)
def test_what_is_no_list_of_cpus_is_refused_by_name(text: str, words: str) -> None:
    with pytest.raises(InvalidValueError) as caught:
        read_cpu_list(text, "cpus")
    assert str(caught.value) == f"cpus: {words}"


def test_a_list_of_cpus_may_be_as_long_as_the_bound() -> None:
    assert read_cpu_list("1" + " " * 65_535, "cpus") == {1}
