"""Physical memory, reserved addresses, and who may touch what is mapped there."""

from pathlib import Path
from typing import Any

import pytest

from fakes.gpu_client import drive

pytestmark = pytest.mark.native

MIB = 1 << 20
INVALID = "CUDA_ERROR_INVALID_VALUE"
NO_MEMORY = "CUDA_ERROR_OUT_OF_MEMORY"
SUPPORTED = "CUDA_ERROR_NOT_SUPPORTED"

VIRTUAL = """
MIB = 1 << 20
L = d.CUmemLocationType
H = d.CUmemAllocationHandleType
FD = H.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
RW = d.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE

def properties(kind="DEVICE", where=0, handles=0):
    made = d.CUmemAllocationProp()
    made.type = d.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    made.location.type = getattr(L, "CU_MEM_LOCATION_TYPE_" + kind)
    made.location.id = where
    made.requestedHandleTypes = H(handles)
    return made

def access(pointer, size, where=0, flags=RW):
    wanted = d.CUmemAccessDesc()
    wanted.location.type = L.CU_MEM_LOCATION_TYPE_DEVICE
    wanted.location.id = where
    wanted.flags = flags
    return d.cuMemSetAccess(pointer, size, [wanted], 1)[0].name
"""


def virtual(state: Path, script: str, profile: str = "V100x1") -> Any:
    return drive(state, VIRTUAL + "\n" + script, profile)


def test_physical_memory_is_charged_when_it_is_made_and_until_its_last_use(tmp_path: Path) -> None:
    script = """
steps = []
handle = good(d.cuMemCreate(4 * MIB, properties(), 0))
steps.append(used() // MIB)
place = good(d.cuMemAddressReserve(8 * MIB, 0, 0, 0))
good(d.cuMemMap(place, 4 * MIB, 0, handle, 0))
good(d.cuMemMap(int(place) + 4 * MIB, 4 * MIB, 0, handle, 0))
good(d.cuMemRelease(handle))
steps.append(used() // MIB)
again = good(d.cuMemRetainAllocationHandle(int(place)))
good(d.cuMemUnmap(place, 8 * MIB))
steps.append(used() // MIB)
good(d.cuMemRelease(again))
steps.append(used() // MIB)
good(d.cuMemAddressFree(place, 8 * MIB))
answer = [steps, d.cuMemRelease(handle)[0].name, d.cuMemRelease(again)[0].name,
          d.cuMemAddressFree(place, 8 * MIB)[0].name]
"""
    assert virtual(tmp_path, script) == [[4, 4, 4, 0], INVALID, INVALID, INVALID]


def test_two_mappings_of_one_memory_are_the_same_bytes_and_outlive_unmapping(
    tmp_path: Path,
) -> None:
    script = """
handle = good(d.cuMemCreate(2 * MIB, properties(), 0))
place = good(d.cuMemAddressReserve(4 * MIB, 0, 0, 0))
second = int(place) + 2 * MIB
for pointer in (int(place), second):
    good(d.cuMemMap(pointer, 2 * MIB, 0, handle, 0))
access(place, 4 * MIB)
good(d.cuMemsetD8(place, 0xab, 2 * MIB))
there = read(second + 2 * MIB - 2, 2)
good(d.cuMemUnmap(place, 2 * MIB))
good(d.cuMemUnmap(second, 2 * MIB))
good(d.cuMemMap(second, 2 * MIB, 0, handle, 0))
access(second, 2 * MIB)
answer = [there, read(second, 2)]
"""
    assert virtual(tmp_path, script) == ["abab", "abab"]


def test_a_copy_may_cross_from_one_mapping_to_the_next(tmp_path: Path) -> None:
    script = """
place = good(d.cuMemAddressReserve(6 * MIB, 0, 0, 0))
for i in range(3):
    handle = good(d.cuMemCreate(2 * MIB, properties(), 0))
    good(d.cuMemMap(int(place) + 2 * i * MIB, 2 * MIB, 0, handle, 0))
    good(d.cuMemRelease(handle))
access(place, 4 * MIB)
good(d.cuMemsetD8(int(place) + MIB, 3, 2 * MIB))
answer = [read(int(place) + 2 * MIB - 2, 4), d.cuMemsetD8(int(place) + 3 * MIB, 3, 2 * MIB)[0].name]
"""
    assert virtual(tmp_path, script) == ["03030303", INVALID]


def test_memory_that_nobody_was_given_access_to_cannot_be_touched(tmp_path: Path) -> None:
    script = """
handle = good(d.cuMemCreate(2 * MIB, properties(), 0))
place = good(d.cuMemAddressReserve(2 * MIB, 0, 0, 0))
good(d.cuMemMap(place, 2 * MIB, 0, handle, 0))
location = properties().location
before = good(d.cuMemGetAccess(location, place))
touched = d.cuMemsetD8(place, 1, 4)[0].name
part = access(place, MIB)
whole = access(place, 2 * MIB)
answer = [before, touched, part, whole, good(d.cuMemGetAccess(location, place)),
          d.cuMemsetD8(place, 1, 4)[0].name]
"""
    expected = [0, INVALID, INVALID, "CUDA_SUCCESS", 3, "CUDA_SUCCESS"]
    assert virtual(tmp_path, script) == expected


@pytest.mark.parametrize("kind", ["HOST", "HOST_NUMA", "HOST_NUMA_CURRENT"])
def test_the_hosts_memory_is_not_the_gpus(tmp_path: Path, kind: str) -> None:
    script = f"""
handle = good(d.cuMemCreate(2 * MIB, properties("{kind}"), 0))
place = good(d.cuMemAddressReserve(2 * MIB, 0, 0, 0))
good(d.cuMemMap(place, 2 * MIB, 0, handle, 0))
access(place, 2 * MIB)
good(d.cuMemsetD8(place, 1, 4))
kind = d.CUpointer_attribute.CU_POINTER_ATTRIBUTE_MEMORY_TYPE
answer = [used(), good(d.cuPointerGetAttribute(kind, place)),
          good(d.cuMemGetAllocationPropertiesFromHandle(handle)).location.type.name]
"""
    assert virtual(tmp_path, script) == [0, 1, f"CU_MEM_LOCATION_TYPE_{kind}"]


def test_physical_memory_is_of_the_gpu_that_its_location_names(tmp_path: Path) -> None:
    script = """
handle = good(d.cuMemCreate(2 * MIB, properties(where=1), 0))
here = used()
good(d.cuCtxSetCurrent(good(d.cuDevicePrimaryCtxRetain(good(d.cuDeviceGet(1))))))
answer = [here, used() // MIB, d.cuMemCreate(2 * MIB, properties(where=2), 0)[0].name]
"""
    assert virtual(tmp_path, script, "V100x2") == [0, 2, "CUDA_ERROR_INVALID_DEVICE"]


def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    script = """
option = d.CUmemAllocationGranularity_flags.CU_MEM_ALLOC_GRANULARITY_MINIMUM
unit = good(d.cuMemGetAllocationGranularity(properties(), option))
handle = good(d.cuMemCreate(4 * MIB, properties(), 0))
place = good(d.cuMemAddressReserve(4 * MIB, 0, 0, 0))
good(d.cuMemMap(place, 2 * MIB, 0, handle, 0))
free = good(d.cuMemGetInfo())[0]
answer = [unit, d.cuMemCreate(MIB, properties(), 0)[0].name,
          d.cuMemCreate(free + 2 * MIB, properties(), 0)[0].name,
          d.cuMemCreate(2 * MIB, properties(handles=8), 0)[0].name,
          d.cuMemMap(place, 2 * MIB, 0, handle, 0)[0].name,
          d.cuMemMap(int(place) + 2 * MIB, 4 * MIB, 0, handle, 0)[0].name,
          d.cuMemMap(int(place) + 2 * MIB, 2 * MIB, 2 * MIB, handle, 0)[0].name,
          d.cuMemUnmap(place, 4 * MIB)[0].name, d.cuMemAddressFree(place, 4 * MIB)[0].name,
          d.cuMemFree(place)[0].name]
good(d.cuMemCreate(free, properties(), 0))
"""
    assert virtual(tmp_path, script) == [2 * MIB, INVALID, NO_MEMORY, SUPPORTED] + [INVALID] * 6


def test_reserved_addresses_are_aligned_as_asked(tmp_path: Path) -> None:
    script = """
places = [int(good(d.cuMemAddressReserve(2 * MIB, a, 0, 0))) for a in (0, 4 * MIB, 1 << 30)]
answer = [places[0] % (2 * MIB), places[1] % (4 * MIB), places[2] % (1 << 30),
          d.cuMemAddressReserve(2 * MIB, 3, 0, 0)[0].name, used()]
"""
    assert virtual(tmp_path, script) == [0, 0, 0, INVALID, 0]


def test_pointers_tell_reservation_mapping_and_handles_apart(tmp_path: Path) -> None:
    script = """
A = d.CUpointer_attribute
handle = good(d.cuMemCreate(2 * MIB, properties(handles=1), 0))
place = int(good(d.cuMemAddressReserve(8 * MIB, 0, 0, 0)))
at = place + 2 * MIB
good(d.cuMemMap(at, 2 * MIB, 0, handle, 0))
names = ["RANGE_START_ADDR", "RANGE_SIZE", "MAPPING_BASE_ADDR", "MAPPING_SIZE",
         "ALLOWED_HANDLE_TYPES", "DEVICE_ORDINAL", "ACCESS_FLAGS", "CONTEXT"]
attributes = [getattr(A, "CU_POINTER_ATTRIBUTE_" + name) for name in names]
values = [int(value or 0) for value in
          good(d.cuPointerGetAttributes(len(names), attributes, at + 5))]
unknown = good(d.cuPointerGetAttributes(2, [A.CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                            A.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL], 4096))
answer = [[values[0] - place, values[1], values[2] - place, *values[3:]],
          [int(value) for value in unknown]]
"""
    known, unknown = virtual(tmp_path, script)
    assert known == [0, 8 * MIB, 2 * MIB, 2 * MIB, 1, 0, 0, 0]
    assert unknown == [0, -2]


IMPORTER = """
handle = good(d.cuMemImportFromShareableHandle(int(os.environ["FD"]), FD))
made = good(d.cuMemGetAllocationPropertiesFromHandle(handle))
place = good(d.cuMemAddressReserve(2 * MIB, 0, 0, 0))
good(d.cuMemMap(place, 2 * MIB, 0, handle, 0))
access(place, 2 * MIB)
seen = read(place, 4)
good(d.cuMemsetD8(place, 9, 4))
answer = [seen, made.location.id, used() // MIB]
good(d.cuMemUnmap(place, 2 * MIB))
good(d.cuMemRelease(handle))
answer.append(used() // MIB)
"""


def test_memory_given_to_another_process_is_the_same_and_charged_once(tmp_path: Path) -> None:
    script = f"""
handle = good(d.cuMemCreate(2 * MIB, properties(handles=1), 0))
place = good(d.cuMemAddressReserve(2 * MIB, 0, 0, 0))
good(d.cuMemMap(place, 2 * MIB, 0, handle, 0))
access(place, 2 * MIB)
good(d.cuMemsetD8(place, 5, MIB))
fd = int(good(d.cuMemExportToShareableHandle(handle, FD, 0)))
seen = elsewhere({VIRTUAL!r} + {IMPORTER!r}, [fd], FD=str(fd))
private = good(d.cuMemCreate(2 * MIB, properties(), 0))
answer = [seen, read(place, 4), d.cuMemExportToShareableHandle(private, FD, 0)[0].name,
          d.cuMemImportFromShareableHandle(0, FD)[0].name]
"""
    seen, changed, private, foreign = virtual(tmp_path, script)
    assert seen == ["05" * 4, 0, 2, 2]
    assert (changed, private, foreign) == ("09" * 4, INVALID, INVALID)
