"""Stream-ordered allocation and pools: what is reserved, what is used, what goes back."""

from pathlib import Path
from typing import Any

import pytest

from fakes.gpu_client import drive

pytestmark = pytest.mark.native

MIB = 1 << 20
INVALID = "CUDA_ERROR_INVALID_VALUE"
NO_MEMORY = "CUDA_ERROR_OUT_OF_MEMORY"

POOLS = """
A = d.CUmemPool_attribute
NAMES = dict(reserved=A.CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT,
             high=A.CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH,
             used=A.CU_MEMPOOL_ATTR_USED_MEM_CURRENT,
             used_high=A.CU_MEMPOOL_ATTR_USED_MEM_HIGH,
             threshold=A.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD)
MIB = 1 << 20

def get(pool, name):
    return int(good(d.cuMemPoolGetAttribute(pool, NAMES[name])))

def put(pool, name, value):
    return d.cuMemPoolSetAttribute(pool, NAMES[name], d.cuuint64_t(value))[0].name

def figures(pool):
    return [get(pool, "reserved") // MIB, get(pool, "used") // MIB, used() // MIB]

def properties(size=0, exported=False, where=0):
    made = d.CUmemPoolProps()
    made.allocType = d.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    made.location.type = d.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    made.location.id = where
    made.maxSize = size
    if exported:
        handles = d.CUmemAllocationHandleType
        made.handleTypes = handles.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
    return made

usual = good(d.cuDeviceGetDefaultMemPool(device))
stream = good(d.cuStreamCreate(1))
"""


def pools(state: Path, script: str, profile: str = "V100x1") -> Any:
    return drive(state, POOLS + "\n" + script, profile)


def test_a_pool_grows_by_chunks_and_lets_go_at_the_next_synchronisation(tmp_path: Path) -> None:
    script = """
steps = []
small = good(d.cuMemAllocAsync(1000, stream))
steps.append(figures(usual))
large = good(d.cuMemAllocAsync(40 * MIB, stream))
steps.append(figures(usual))
good(d.cuMemFreeAsync(small, stream))
good(d.cuMemFreeAsync(large, stream))
steps.append(figures(usual))
good(d.cuStreamSynchronize(stream))
steps.append(figures(usual))
answer = [steps, get(usual, "high") // MIB, get(usual, "used_high")]
"""
    steps, high, used_high = pools(tmp_path, script)
    assert steps == [[32, 0, 32], [96, 40, 96], [96, 0, 96], [0, 0, 0]]
    assert (high, used_high) == (96, 40 * MIB + 1024)


@pytest.mark.parametrize(
    "wait", ["d.cuStreamSynchronize(stream)", "d.cuCtxSynchronize()", "d.cuEventSynchronize(event)"]
)
def test_each_synchronisation_keeps_what_the_threshold_says(tmp_path: Path, wait: str) -> None:
    script = f"""
event = good(d.cuEventCreate(0))
good(d.cuEventRecord(event, stream))
set_to = put(usual, "threshold", 64 * MIB)
held = [good(d.cuMemAllocAsync(32 * MIB, stream)) for _ in range(4)]
for pointer in held:
    good(d.cuMemFreeAsync(pointer, stream))
good({wait})
kept = figures(usual)
good(d.cuMemPoolTrimTo(usual, 40 * MIB))
trimmed = figures(usual)
good(d.cuMemPoolTrimTo(usual, 0))
answer = [set_to, kept, trimmed, figures(usual)]
"""
    answer = pools(tmp_path, script)
    assert answer == ["CUDA_SUCCESS", [64, 0, 64], [64, 0, 64], [0, 0, 0]]


def test_what_a_stream_frees_it_may_have_again_before_the_gpu_gets_there(tmp_path: Path) -> None:
    script = """
module = good(d.cuModuleLoadData(b"any image"))
spin = good(d.cuModuleGetFunction(module, b"kubeshare_spin_us"))
off = d.cuuint64_t(0)
for name in ("OPPORTUNISTIC", "INTERNAL_DEPENDENCIES"):
    attribute = getattr(A, f"CU_MEMPOOL_ATTR_REUSE_ALLOW_{name}")
    good(d.cuMemPoolSetAttribute(usual, attribute, ctypes.c_int(0).value))
other = good(d.cuStreamCreate(1))
first = good(d.cuMemAllocAsync(20 * MIB, stream))
good(d.cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, stream, ((60_000_000,), (ctypes.c_uint32,)), 0))
good(d.cuMemFreeAsync(first, stream))
apart = good(d.cuMemAllocAsync(20 * MIB, other))
again = good(d.cuMemAllocAsync(20 * MIB, stream))
answer = [int(again) == int(first), int(apart) == int(first), figures(usual)]
"""
    assert pools(tmp_path, script) == [True, False, [64, 40, 64]]


def test_another_stream_may_have_it_by_waiting_for_the_free(tmp_path: Path) -> None:
    script = """
module = good(d.cuModuleLoadData(b"any image"))
spin = good(d.cuModuleGetFunction(module, b"kubeshare_spin_us"))
other = good(d.cuStreamCreate(1))
first = good(d.cuMemAllocAsync(20 * MIB, stream))
good(d.cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, stream, ((60_000_000,), (ctypes.c_uint32,)), 0))
good(d.cuMemFreeAsync(first, stream))
idle = d.cuStreamQuery(other)[0].name
second = good(d.cuMemAllocAsync(20 * MIB, other))
answer = [int(second) == int(first), idle, d.cuStreamQuery(other)[0].name, figures(usual)]
"""
    expected = [True, "CUDA_SUCCESS", "CUDA_ERROR_NOT_READY", [32, 20, 32]]
    assert pools(tmp_path, script) == expected


def test_its_memory_is_read_and_written_and_freed_like_any_other(tmp_path: Path) -> None:
    script = """
put(usual, "threshold", 1 << 40)
memory = good(d.cuMemAllocAsync(MIB, stream))
good(d.cuMemsetD8(memory, 7, 4))
bytes_there = read(memory, 4)
beyond = d.cuMemsetD8(memory, 0, MIB + 1)[0].name
good(d.cuMemFree(memory))
twice = d.cuMemFreeAsync(memory, stream)[0].name
plain = good(d.cuMemAlloc(2 * MIB))
good(d.cuMemFreeAsync(plain, stream))
answer = [bytes_there, beyond, twice, figures(usual), d.cuMemAllocAsync(0, stream)[0].name]
"""
    assert pools(tmp_path, script) == ["07" * 4, INVALID, INVALID, [32, 0, 32], INVALID]


def test_where_no_chunk_fits_a_pool_takes_the_pages_that_do(tmp_path: Path) -> None:
    script = """
rest = good(d.cuMemGetInfo())[0] - 6 * MIB
good(d.cuMemAlloc(rest))
fits = good(d.cuMemAllocAsync(5 * MIB, stream))
answer = [get(usual, "reserved") // MIB, good(d.cuMemGetInfo())[0],
          d.cuMemAllocAsync(5 * MIB, stream)[0].name]
"""
    assert pools(tmp_path, script) == [6, 0, NO_MEMORY]


def test_a_pool_of_ones_own_is_used_where_it_is_current_and_ends_with_its_last_memory(
    tmp_path: Path,
) -> None:
    script = """
own = good(d.cuMemPoolCreate(properties(64 * MIB)))
good(d.cuDeviceSetMemPool(device, own))
current = int(good(d.cuDeviceGetMemPool(device))) == int(own)
held = good(d.cuMemAllocAsync(50 * MIB, stream))
too_much = d.cuMemAllocAsync(50 * MIB, stream)[0].name
direct = good(d.cuMemAllocFromPoolAsync(MIB, own, stream))
inside = figures(own)
good(d.cuMemFreeAsync(direct, stream))
good(d.cuMemPoolDestroy(own))
back = int(good(d.cuDeviceGetMemPool(device))) == int(usual)
still = used() // MIB
good(d.cuMemFreeAsync(held, stream))
answer = [current, too_much, inside, back, still, used(), d.cuMemPoolDestroy(usual)[0].name,
          d.cuMemPoolTrimTo(own, 0)[0].name]
"""
    expected = [True, NO_MEMORY, [64, 51, 64], True, 64, 0, INVALID, INVALID]
    assert pools(tmp_path, script) == expected


def test_a_pool_is_of_the_gpu_that_it_was_made_for(tmp_path: Path) -> None:
    script = """
other = good(d.cuMemPoolCreate(properties(where=1)))
wrong = d.cuDeviceSetMemPool(device, other)[0].name
memory = good(d.cuMemAllocFromPoolAsync(MIB, other, stream))
kind = d.CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
here = used()
second = good(d.cuDevicePrimaryCtxRetain(good(d.cuDeviceGet(1))))
good(d.cuCtxSetCurrent(second))
answer = [wrong, good(d.cuPointerGetAttribute(kind, memory)), here, used() // MIB]
"""
    assert pools(tmp_path, script, "V100x2") == [INVALID, 1, 0, 32]


def test_marks_are_set_back_and_figures_cannot_be_set(tmp_path: Path) -> None:
    script = """
good(d.cuMemFreeAsync(good(d.cuMemAllocAsync(50 * MIB, stream)), stream))
good(d.cuStreamSynchronize(stream))
before = [get(usual, "high") // MIB, get(usual, "used_high") // MIB]
wrong = [put(usual, "high", 1), put(usual, "reserved", 0), put(usual, "used", 0)]
right = [put(usual, "high", 0), put(usual, "used_high", 0)]
answer = [before, wrong, right, get(usual, "high"), get(usual, "used_high")]
"""
    answer = pools(tmp_path, script)
    assert answer == [[64, 50], [INVALID] * 3, ["CUDA_SUCCESS"] * 2, 0, 0]


def test_the_last_context_of_a_gpu_takes_its_pools_memory_along(tmp_path: Path) -> None:
    script = """
good(d.cuMemAllocAsync(50 * MIB, stream))
held = used() // MIB
good(d.cuDevicePrimaryCtxRelease(device))
good(d.cuDevicePrimaryCtxRetain(device))
answer = [held, figures(usual)]
"""
    assert pools(tmp_path, script) == [64, [0, 0, 0]]


IMPORTER = """
pool = good(d.cuMemPoolImportFromShareableHandle(
    int(os.environ["POOL"]), d.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
    0))
data = d.CUmemPoolPtrExportData()
ctypes.memmove(data.getPtr(), bytes.fromhex(os.environ["POINTER"]), 64)
memory = good(d.cuMemPoolImportPointer(pool, data))
seen = read(memory, 4)
good(d.cuMemsetD8(memory, 9, 4))
stream = good(d.cuStreamCreate(1))
refused = d.cuMemAllocFromPoolAsync(4096, pool, stream)[0].name
charged = used() >> 20
good(d.cuMemFreeAsync(memory, stream))
answer = [seen, refused, charged, used() >> 20]
"""


def test_a_pools_memory_is_shared_with_another_process_at_its_owners_charge(tmp_path: Path) -> None:
    script = f"""
own = good(d.cuMemPoolCreate(properties(exported=True)))
handle = d.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
fd = int(good(d.cuMemPoolExportToShareableHandle(own, handle, 0)))
memory = good(d.cuMemAllocFromPoolAsync(MIB, own, stream))
good(d.cuMemsetD8(memory, 5, MIB))
data = good(d.cuMemPoolExportPointer(memory))
opaque = ctypes.string_at(data.getPtr(), 64).hex()
seen = elsewhere({IMPORTER!r}, [fd], POOL=str(fd), POINTER=opaque)
answer = [seen, read(memory, 4),
          d.cuMemPoolExportToShareableHandle(usual, handle, 0)[0].name]
"""
    seen, changed, usual = pools(tmp_path, script)
    assert seen == ["05" * 4, INVALID, 32, 32]
    assert (changed, usual) == ("09" * 4, INVALID)


def test_pools_of_the_host_cost_no_gpu_and_those_of_managed_memory_theirs(tmp_path: Path) -> None:
    script = """
T = d.CUmemAllocationType
L = d.CUmemLocationType
attribute = d.CUpointer_attribute

def current(kind, where, number=0):
    location = d.CUmemLocation()
    location.type = getattr(L, "CU_MEM_LOCATION_TYPE_" + where)
    location.id = number
    return good(d.cuMemGetMemPool(location, getattr(T, "CU_MEM_ALLOCATION_TYPE_" + kind)))

def take(kind, *where):
    before = used()
    memory = good(d.cuMemAllocFromPoolAsync(MIB, current(kind, *where), stream))
    names = ("MEMORY_TYPE", "IS_MANAGED", "DEVICE_ORDINAL")
    return [(used() - before) // MIB, *(int(good(d.cuPointerGetAttribute(
        getattr(attribute, "CU_POINTER_ATTRIBUTE_" + name), memory))) for name in names)]

answer = [take("PINNED", "HOST"), take("PINNED", "DEVICE"), take("MANAGED", "DEVICE"),
          take("MANAGED", "DEVICE", 1), take("MANAGED", "NONE"),
          int(current("PINNED", "DEVICE")) == int(usual)]
"""
    answer = pools(tmp_path, script, "V100x2")
    assert answer == [
        [0, 1, 0, -1],
        [32, 2, 0, 0],
        [32, 2, 1, 0],
        [0, 2, 1, 1],
        [32, 2, 1, 0],
        True,
    ]
