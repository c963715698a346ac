"""Each unit of a GPU's memory is a device with an id that stays."""

import msgspec
import pytest

from fakes.node import A_GPU, OTHER_GPU
from kubeshare.core.units import GI, MI
from kubeshare.node.device_plugin.units import GpuUnits, device_list, divide, largest_size
from kubeshare.node.proto import deviceplugin_pb2 as messages


def listed(*gpus: GpuUnits) -> dict[str, str]:
    answer = messages.ListAndWatchResponse.FromString(device_list(gpus))
    return {device.ID: device.health for device in answer.devices}


def test_a_gpu_has_as_many_units_as_fit_into_its_memory() -> None:
    gpu = msgspec.structs.replace(A_GPU, memory_bytes=16276 * MI)
    assert [each.units for each in divide([gpu], GI)] == [15]
    assert [each.units for each in divide([gpu], MI)] == [16276]


def test_each_gpu_counts_its_own_memory() -> None:
    small = msgspec.structs.replace(A_GPU, memory_bytes=15 * GI)
    large = msgspec.structs.replace(OTHER_GPU, memory_bytes=39 * GI)
    assert [each.units for each in divide([small, large], GI)] == [15, 39]


def test_ids_are_those_of_the_published_plugin() -> None:
    assert listed(GpuUnits("GPU-a", 2, healthy=True)) == {
        "GPU-a-_-0": "Healthy",
        "GPU-a-_-1": "Healthy",
    }


def test_the_units_of_a_sick_gpu_stay_and_are_unhealthy() -> None:
    sick = msgspec.structs.replace(A_GPU, healthy=False, memory_bytes=GI)
    well = msgspec.structs.replace(OTHER_GPU, memory_bytes=GI)
    health = listed(*divide([sick, well], GI))
    assert health == {f"{A_GPU.uuid}-_-0": "Unhealthy", f"{OTHER_GPU.uuid}-_-0": "Healthy"}


def test_none_is_healthy_where_the_gpus_may_not_be_used() -> None:
    assert not any(gpu.healthy for gpu in divide([A_GPU, OTHER_GPU], GI, usable=False))


@pytest.mark.parametrize("units", [0, 1, 9, 10, 11, 100, 12345])
def test_the_largest_size_is_that_of_the_list_when_all_are_unhealthy(units: int) -> None:
    gpus = (GpuUnits(A_GPU.uuid, units, healthy=False), GpuUnits("GPU-b", 3, healthy=False))
    assert largest_size(gpus) == len(device_list(gpus))
