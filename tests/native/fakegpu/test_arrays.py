"""Arrays: what they take of a GPU, what they say of themselves, what is mapped into them."""

from pathlib import Path
from typing import Any

import pytest

from fakes.gpu_client import drive

pytestmark = pytest.mark.native

KIB = 1 << 10
MIB = 1 << 20
INVALID = "CUDA_ERROR_INVALID_VALUE"
HANDLE = "CUDA_ERROR_INVALID_HANDLE"
NO_MEMORY = "CUDA_ERROR_OUT_OF_MEMORY"
LAYERED, CUBEMAP, SPARSE, DEFERRED = 0x01, 0x04, 0x40, 0x80

ARRAYS = """
MIB = 1 << 20

def shape(width, height=0, depth=0, kind="FLOAT", channels=1, flags=0):
    made = d.CUDA_ARRAY3D_DESCRIPTOR()
    made.Width, made.Height, made.Depth = width, height, depth
    made.Format = getattr(d.CUarray_format, "CU_AD_FORMAT_" + kind)
    made.NumChannels, made.Flags = channels, flags
    return made

def cost(*arguments, **more):
    array = good(d.cuArray3DCreate(shape(*arguments, **more)))
    taken = used()
    good(d.cuArrayDestroy(array))
    assert used() == 0
    return taken
"""


def arrays(state: Path, script: str) -> Any:
    return drive(state, ARRAYS + "\n" + script)


@pytest.mark.parametrize(
    ("arguments", "taken"),
    [
        ("1024", 64 * KIB),
        ("1024, 1024", 4 * MIB),
        ("1024, 1024, channels=4", 16 * MIB),
        ("1000, 1001, kind='UNSIGNED_INT8'", 1024 * 1008),
        ("256, 256, 4", 1 * MIB),
        (f"256, 256, 6, flags={CUBEMAP}", 6 * 256 * KIB),
        (f"256, 256, 3, flags={LAYERED}", 3 * 256 * KIB),
        ("1024, 1024, kind='BC1_UNORM'", 512 * KIB),
        ("1024, 1024, kind='BC7_UNORM'", 1 * MIB),
        ("1024, 1024, kind='NV12', channels=3", 1536 * KIB),
        ("1024, 1024, kind='UNORM_INT8X4', channels=4", 4 * MIB),
        (f"1024, 1024, flags={SPARSE}", 0),
        (f"1024, 1024, flags={DEFERRED}", 0),
    ],
)
def test_an_array_takes_its_tiles(tmp_path: Path, arguments: str, taken: int) -> None:
    expected = -(-taken // (64 * KIB)) * 64 * KIB
    assert arrays(tmp_path, f"answer = cost({arguments})") == expected


def test_a_deferred_twin_tells_what_an_array_takes(tmp_path: Path) -> None:
    script = f"""
answer = []
for arguments in ((100, 0, 0), (333, 77, 0), (64, 64, 64), (5000, 3000, 0)):
    twin = good(d.cuArray3DCreate(shape(*arguments, flags={DEFERRED})))
    needs = good(d.cuArrayGetMemoryRequirements(twin, device))
    good(d.cuArrayDestroy(twin))
    answer.append(needs.size == cost(*arguments) and needs.size % needs.alignment == 0)
plain = good(d.cuArray3DCreate(shape(64, 64)))
answer.append(d.cuArrayGetMemoryRequirements(plain, device)[0].name)
"""
    assert arrays(tmp_path, script) == [True, True, True, True, INVALID]


def test_a_mipmapped_array_has_every_size_and_one_price(tmp_path: Path) -> None:
    script = f"""
mipmap = good(d.cuMipmappedArrayCreate(shape(1024, 512), 99))
taken = used()
sides = []
for level in range(11):
    got = good(d.cuArray3DGetDescriptor(good(d.cuMipmappedArrayGetLevel(mipmap, level))))
    sides.append((got.Width, got.Height))
level = good(d.cuMipmappedArrayGetLevel(mipmap, 1))
refused = [d.cuMipmappedArrayGetLevel(mipmap, 11)[0].name, d.cuArrayDestroy(level)[0].name]
good(d.cuMipmappedArrayDestroy(mipmap))
twin = good(d.cuMipmappedArrayCreate(shape(1024, 512, flags={DEFERRED}), 11))
needs = good(d.cuMipmappedArrayGetMemoryRequirements(twin, device))
answer = [taken == needs.size, taken, sides, refused, used(), d.cuArrayDestroy(level)[0].name]
"""
    same, taken, sides, refused, left, stale = arrays(tmp_path, script)
    assert same
    assert 2 * MIB < taken < 3 * MIB
    assert (sides[0], sides[3], sides[-1]) == ([1024, 512], [128, 64], [1, 1])
    assert (refused, left, stale) == ([INVALID, HANDLE], 0, HANDLE)


def test_arrays_that_cannot_be_are_refused(tmp_path: Path) -> None:
    script = f"""
answer = [d.cuArray3DCreate(wrong)[0].name for wrong in (
    shape(0), shape(64, channels=0), shape(64, 0, 4), shape(64, 32, 6, flags={CUBEMAP}),
    shape(64, 64, 7, flags={CUBEMAP}), shape(64, 64, 0, flags={LAYERED}))]
answer.append(d.cuArray3DCreate(shape(1 << 17, 1 << 16, channels=4))[0].name)
answer.append(used())
"""
    assert arrays(tmp_path, script) == [INVALID] * 6 + [NO_MEMORY, 0]


def test_arrays_end_with_their_context(tmp_path: Path) -> None:
    script = """
own = good(d.cuCtxCreate(None, 0, device))
array = good(d.cuArray3DCreate(shape(1024, 1024)))
good(d.cuMipmappedArrayCreate(shape(1024, 1024), 3))
held = used() > 8 * MIB
good(d.cuCtxDestroy(own))
answer = [held, used(), d.cuArrayDestroy(array)[0].name]
"""
    assert arrays(tmp_path, script) == [True, 0, HANDLE]


def test_memory_mapped_into_an_array_lives_until_it_is_unmapped(tmp_path: Path) -> None:
    script = f"""
props = d.CUmemAllocationProp()
props.type = d.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
props.location.type = d.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
stream = good(d.cuStreamCreate(0))

def operation(array, kind, handle):
    made = d.CUarrayMapInfo()
    made.resourceType = d.CUresourcetype.CU_RESOURCE_TYPE_ARRAY
    made.resource.array = array
    made.subresourceType = (
        d.CUarraySparseSubresourceType.CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_SPARSE_LEVEL)
    made.memOperationType = getattr(d.CUmemOperationType, "CU_MEM_OPERATION_TYPE_" + kind)
    made.memHandleType = d.CUmemHandleType.CU_MEM_HANDLE_TYPE_GENERIC
    made.memHandle.memHandle = handle
    made.deviceBitMask = 1
    return made

steps = []
array = good(d.cuArray3DCreate(shape(512, 512, flags={SPARSE})))
for end in ("unmap", "destroy"):
    handle = good(d.cuMemCreate(2 * MIB, props, 0))
    good(d.cuMemMapArrayAsync([operation(array, "MAP", handle)], 1, stream))
    good(d.cuMemRelease(handle))
    steps.append(used() // MIB)
    if end == "unmap":
        good(d.cuMemMapArrayAsync([operation(array, "UNMAP", 0)], 1, stream))
    else:
        good(d.cuArrayDestroy(array))
    steps.append(used() // MIB)
plain = good(d.cuArray3DCreate(shape(512, 512)))
handle = good(d.cuMemCreate(2 * MIB, props, 0))
steps.append(d.cuMemMapArrayAsync([operation(plain, "MAP", handle)], 1, stream)[0].name)
answer = steps
"""
    assert arrays(tmp_path, script) == [2, 0, 2, 0, INVALID]


def test_sparse_arrays_tell_their_tiles_and_their_tail(tmp_path: Path) -> None:
    script = f"""
def tile(of):
    return [of.tileExtent.width, of.tileExtent.height, of.tileExtent.depth]

flat = good(d.cuArray3DCreate(shape(512, 512, flags={SPARSE})))
solid = good(d.cuArray3DCreate(shape(512, 512, 64, channels=4, flags={SPARSE})))
mipmap = good(d.cuMipmappedArrayCreate(shape(1024, 512, flags={SPARSE}), 11))
plain = good(d.cuArray3DCreate(shape(512, 512)))
levels = good(d.cuMipmappedArrayGetSparseProperties(mipmap))
answer = [tile(good(d.cuArrayGetSparseProperties(flat))),
          tile(good(d.cuArrayGetSparseProperties(solid))),
          tile(levels), levels.miptailFirstLevel, levels.miptailSize,
          d.cuArrayGetSparseProperties(plain)[0].name]
"""
    flat = [128, 128, 1]
    assert arrays(tmp_path, script) == [flat, [16, 16, 16], flat, 3, 64 * KIB, INVALID]
