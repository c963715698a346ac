"""What the published versions write back, in their own format, and never for other spellings."""

import pytest

from kubeshare.dialects.write_back import PlacedGpu, gpu_annotations, gpuid_annotation

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
