"""What the published versions write back, in their own format, and never for other spellings."""

from datetime import UTC, datetime
from typing import Any

import pytest

from kubeshare.core.units import GI, MI
from kubeshare.dialects.write_back import (
    GPUSHARE_ANNOTATIONS,
    PlacedGpu,
    gpu_annotations,
    gpuid_annotation,
    gpushare_placement,
    is_of_vcuda,
    vcuda_placement,
)

AMOUNTS = {"kubeshare/gpu_request": "0.5", "kubeshare/gpu_limit": "1", "kubeshare/gpu_mem": "1"}
V100 = PlacedGpu("GPU-1", "Tesla V100", 1000)


@pytest.mark.parametrize(
    ("annotations", "gpuids", "written"),
    [
        (AMOUNTS, ["abcde"], {"kubeshare/GPUID": "abcde"}),
        (AMOUNTS, ["a", "b"], {}),
        (AMOUNTS | {"kubeshare/GPUID": "mine"}, ["mine"], {}),
        ({"kubeshare/sched_affinity": "red"}, ["abcde"], {}),
        ({"kubeshare.nthu/request": "0.5"}, ["abcde"], {}),
        ({}, ["abcde"], {}),
    ],
)
def test_the_first_version_writes_the_gpuid(
    annotations: dict[str, str], gpuids: list[str], written: dict[str, str]
) -> None:
    assert gpuid_annotation(annotations, gpuids) == written


@pytest.mark.parametrize(
    ("labels", "gpus", "written"),
    [
        (
            {"sharedgpu/gpu_limit": "0.5"},
            [V100],
            {
                "sharedgpu/gpu_uuid": "GPU-1",
                "sharedgpu/gpu_model": "Tesla-V100",
                "sharedgpu/gpu_mem": "1000",
            },
        ),
        (
            {"sharedgpu/gpu_limit": "2"},
            [V100, PlacedGpu("GPU-2", "Tesla V100", 1000)],
            {
                "sharedgpu/gpu_uuid": "GPU-1,GPU-2,",
                "sharedgpu/gpu_model": "Tesla-V100,Tesla-V100,",
                "sharedgpu/gpu_mem": "2000",
            },
        ),
        ({"sharedgpu/gpu_limit": "0.5"}, [PlacedGpu("", "", 7)], {"sharedgpu/gpu_mem": "7"}),
        ({"sharedgpu/priority": "1"}, [V100], {}),
        ({}, [V100], {}),
        ({"sharedgpu/gpu_limit": "0.5"}, [], {}),
    ],
)
def test_the_second_version_writes_uuid_model_and_memory(
    labels: dict[str, str], gpus: list[PlacedGpu], written: dict[str, str]
) -> None:
    assert gpu_annotations(labels, gpus) == written


# gpushare

NOW = datetime(2026, 1, 1, tzinfo=UTC)
A_SPEC: dict[str, Any] = {
    "containers": [
        {"name": "proxy"},
        {"name": "main", "resources": {"limits": {"aliyun.com/gpu-mem": "4"}}},
    ]
}


def a_gpu(index: int | None, memory: int) -> PlacedGpu:
    uuid = f"GPU-{index}"
    return PlacedGpu(uuid, "V100", memory * GI, index=index, total_bytes=16276 * MI)


def test_gpushare_names_one_gpu_by_its_index() -> None:
    assert gpushare_placement(A_SPEC, [a_gpu(1, 4)], GI, NOW) == {
        "ALIYUN_COM_GPU_MEM_IDX": "1",
        "ALIYUN_COM_GPU_MEM_POD": "4",
        "ALIYUN_COM_GPU_MEM_DEV": "15",
        "ALIYUN_COM_GPU_MEM_ASSUME_TIME": "1767225600000000000",
        "ALIYUN_COM_GPU_MEM_ASSIGNED": "false",
    }


def test_gpushare_maps_the_first_container_to_several_gpus() -> None:
    written = gpushare_placement(A_SPEC, [a_gpu(0, 2), a_gpu(3, 2)], GI, NOW)
    assert written["scheduler.framework.gpushare.allocation"] == '{"1": {"0": 2, "3": 2}}'
    assert written["ALIYUN_COM_GPU_MEM_POD"] == "4"
    assert "ALIYUN_COM_GPU_MEM_IDX" not in written


def test_gpushare_is_told_nothing_while_the_index_is_unknown() -> None:
    assert gpushare_placement(A_SPEC, [a_gpu(None, 4)], GI, NOW) == {}
    assert gpushare_placement(A_SPEC, [], GI, NOW) == {}


def test_every_annotation_of_gpushare_is_removed_with_the_others() -> None:
    one = gpushare_placement(A_SPEC, [a_gpu(0, 2)], GI, NOW)
    several = gpushare_placement(A_SPEC, [a_gpu(0, 2), a_gpu(3, 2)], GI, NOW)
    assert one.keys() | several.keys() == GPUSHARE_ANNOTATIONS


# vcuda


def cores(amount: str) -> dict[str, Any]:
    return {"resources": {"limits": {"tencent.com/vcuda-core": amount}}}


SEVERAL: dict[str, Any] = {
    "containers": [
        {"name": "proxy"},
        {"name": "main"} | cores("200"),
        {"name": "none"} | cores("0"),
        {"name": "side"} | cores("50"),
    ]
}


def minor(number: int | None, share: str = "") -> PlacedGpu:
    """A GPU whose device file has this number, and whose index is another."""
    return PlacedGpu(f"GPU-{number}", "V100", GI, index=40, minor=number, share=share)


def test_vcuda_names_the_gpus_of_each_container_by_their_device_files() -> None:
    gpus = [minor(10, "main"), minor(3, "side"), minor(2, "main")]
    written = vcuda_placement(SEVERAL, gpus, "n1", NOW)
    assert written == {
        "tencent.com/predicate-gpu-idx-1": "2,10",
        "tencent.com/predicate-gpu-idx-3": "3",
        "tencent.com/predicate-node": "n1",
        "tencent.com/predicate-time": "1767225600000000000",
        "tencent.com/gpu-assigned": "false",
    }
    assert all(map(is_of_vcuda, written))
    assert not is_of_vcuda("tencent.com/vcuda-core-limit")


def test_vcuda_gives_the_only_share_to_the_container_that_asks() -> None:
    spec = {"containers": [{"name": "proxy"}, {"name": "main"} | cores("200")]}
    written = vcuda_placement(spec, [minor(1), minor(0)], "n1", NOW)
    assert {key: value for key, value in written.items() if "idx" in key} == {
        "tencent.com/predicate-gpu-idx-1": "0,1"
    }


def test_vcuda_is_told_nothing_while_a_device_file_is_unknown() -> None:
    assert vcuda_placement(SEVERAL, [minor(None)], "n1", NOW) == {}
    assert vcuda_placement(SEVERAL, [], "n1", NOW) == {}
