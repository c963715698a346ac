"""Where gpushare and gpu-manager placed a pod: good annotations, and each bad one."""

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeshare.core.errors import InvalidValueError
from kubeshare.core.units import GI, MICROS, Memory
from kubeshare.dialects.families import FAMILIES, GPUSHARE, VCUDA
from kubeshare.dialects.legacy_placement import LegacyPlacement

Raw = dict[str, Any]
IDX, POD = "ALIYUN_COM_GPU_MEM_IDX", "ALIYUN_COM_GPU_MEM_POD"
ALLOCATION = "scheduler.framework.gpushare.allocation"
INDEX, ASSIGNED = "tencent.com/predicate-gpu-idx-", "tencent.com/gpu-assigned"


def a_pod(annotations: Raw, *limits: Raw) -> Raw:
    containers = [
        {"name": f"c{at}", "resources": {"limits": each}} for at, each in enumerate(limits)
    ]
    metadata = {"name": "a", "namespace": "team", "uid": "1-2", "annotations": annotations}
    return {"metadata": metadata, "spec": {"nodeName": "n1", "containers": containers}}


def by_gpushare(units: list[Any], only: int | None = None, **annotations: str) -> LegacyPlacement:
    limits = [{"aliyun.com/gpu-mem": each} for each in units]
    names = {"idx": IDX, "pod": POD, "allocation": ALLOCATION}
    pod = a_pod({names[key]: value for key, value in annotations.items()}, *limits)
    return GPUSHARE.legacy_placement_of(pod, GI, only)


def by_vcuda(*containers: tuple[int, int], **annotations: str) -> LegacyPlacement:
    limits = [
        {"tencent.com/vcuda-core": cores, "tencent.com/vcuda-memory": blocks} if cores else {}
        for cores, blocks in containers
    ]
    written = {ASSIGNED: "true"} | {
        key.replace("gpus_", INDEX).replace("_", "-") if "/" not in key else key: value
        for key, value in annotations.items()
    }
    return VCUDA.legacy_placement_of(a_pod(written, *limits), GI, None)


def test_a_gpushare_pod_has_the_sum_of_its_containers_on_one_gpu() -> None:
    found = by_gpushare(["3", 5], idx="1", pod="8")
    assert found.gpus == (("", 1),)
    demand = found.demand
    assert (demand.uid, demand.namespace, demand.name) == ("1-2", "team", "a")
    assert (demand.memory, demand.proportional) == (Memory(bytes=8 * GI), True)
    assert (demand.limit_micros, demand.family) == (MICROS, "gpushare")


def test_the_allocation_of_several_gpus_is_a_share_each_and_wins_over_the_index() -> None:
    found = by_gpushare(["3", "4"], idx="5", allocation='{"0": {"1": 3}, "1": {"0": 2, "1": 2}}')
    assert found.gpus == (("gpu-0", 0), ("gpu-1", 1))
    memory = {share.name: share.memory.bytes for share in found.demand.shares}
    assert memory == {"gpu-0": 2 * GI, "gpu-1": 5 * GI}
    assert len(found.demand.per_gpu()) == 2


def test_without_an_index_only_the_only_gpu_of_a_node_is_certain() -> None:
    assert by_gpushare(["3"], only=4).gpus == (("", 4),)


@pytest.mark.parametrize(
    ("units", "annotations", "field", "words"),
    [
        (["3"], {}, IDX, "is missing"),
        (["3"], {"idx": "none"}, IDX, 'is "none", which names no GPU'),
        (["3"], {"idx": "-1"}, IDX, "names no GPU"),
        (["3"], {"idx": ""}, IDX, "names no GPU"),
        (["3"], {"idx": "\u0661"}, IDX, "names no GPU"),
        (["3"], {"idx": "1" * 999}, IDX, "names no GPU"),
        (["3"], {"idx": "0,1"}, IDX, "the pod asks for 1 GPUs"),
        (["3"], {"idx": "0", "pod": "4"}, POD, "is 4, and the containers ask for 3"),
        (["3"], {"idx": "0", "pod": "x"}, POD, "is not a number"),
        (["0"], {"idx": "0"}, "aliyun.com/gpu-mem", "asks for no GPU memory"),
        (["0.5"], {"idx": "0"}, "aliyun.com/gpu-mem of container c0", "not a whole number"),
        (["3"], {"allocation": '{"0": {"0": 2}}'}, ALLOCATION, "ask for 3"),
        (["3"], {"allocation": '{"0": {"0": 4, "1": -1}}'}, ALLOCATION, "ask for 3"),
        (["3"], {"allocation": "[]"}, ALLOCATION, "is not a JSON object"),
        (["3"], {"allocation": '{"0": {"x": 3}}'}, ALLOCATION, "is not a JSON object"),
        (["3"], {"allocation": "[" * 99_999}, ALLOCATION, "is not a JSON object"),
    ],
)
def test_what_does_not_agree_with_a_gpushare_pod_is_refused_by_name(
    units: list[str], annotations: dict[str, str], field: str, words: str
) -> None:
    with pytest.raises(InvalidValueError) as refused:
        by_gpushare(units, None, **annotations)
    assert refused.value.field == field
    assert words in refused.value.message


def test_a_vcuda_pod_has_a_share_for_each_asking_container() -> None:
    found = by_vcuda((50, 4), (0, 0), (200, 4), gpus_0="3", gpus_2="0,1")
    assert found.gpus == (("c0", 3), ("c2", 0), ("c2", 1))
    assert len(found.demand.per_gpu()) == 3
    assert by_vcuda((50, 4), gpus_0="3").gpus == (("", 3),)


@pytest.mark.parametrize(
    ("containers", "annotations", "field", "words"),
    [
        ([(50, 4)], {}, INDEX + "0", "is missing"),
        ([(50, 4)], {"gpus_0": "x"}, INDEX + "0", "names no GPU"),
        ([(200, 4)], {"gpus_0": "1"}, INDEX + "0", "asks for 2 GPUs"),
        ([(200, 4)], {"gpus_0": "1,1"}, INDEX + "0", "asks for 2 GPUs"),
        ([(50, 4)], {"gpus_0": "1", ASSIGNED: "false"}, ASSIGNED, "is not true"),
        (
            [(50, 4)],
            {"gpus_0": "1", "tencent.com/predicate-node": "n2"},
            "tencent.com/predicate-node",
            "is n2, and the pod runs on n1",
        ),
        ([(150, 4)], {"gpus_0": "1"}, "tencent.com/vcuda-core", "multiple of 100"),
    ],
)
def test_what_does_not_agree_with_a_vcuda_pod_is_refused_by_name(
    containers: list[tuple[int, int]], annotations: dict[str, str], field: str, words: str
) -> None:
    with pytest.raises(InvalidValueError) as refused:
        by_vcuda(*containers, **annotations)
    assert field in refused.value.field
    assert words in refused.value.message


def test_every_family_reads_placements() -> None:
    assert all(callable(family.legacy_placement_of) for family in FAMILIES)


@given(
    st.dictionaries(
        st.sampled_from([IDX, POD, ALLOCATION, INDEX + "0", INDEX + "1", ASSIGNED]),
        st.text() | st.from_regex(r"[0-9]{1,3}(,[0-9])?") | st.just("true"),
    ),
    st.lists(st.integers(-1, 300), min_size=2, max_size=2),
)
def test_annotations_are_read_or_refused_and_never_give_more_than_was_asked_for(
    annotations: Raw, amounts: list[int]
) -> None:
    units, cores = amounts
    memory = {"aliyun.com/gpu-mem": units}
    compute = {"tencent.com/vcuda-core": cores, "tencent.com/vcuda-memory": 4}
    with suppress(InvalidValueError):
        found = GPUSHARE.legacy_placement_of(a_pod(annotations, memory, {}), GI, None)
        shares = [found.demand.named(name) for name, _ in found.gpus]
        assert sum(share.memory.on(1 << 50) for share in shares if share) == units * GI
    with suppress(InvalidValueError):
        found = VCUDA.legacy_placement_of(a_pod(annotations, compute, {}), GI, None)
        assert len({gpu for _, gpu in found.gpus}) == len(found.demand.per_gpu())
