"""Copies of the fake driver: what they move, how long they take, and on what."""

from pathlib import Path

import pytest

from fakes.gpu_client import drive
from kubeshare import fakegpu

pytestmark = pytest.mark.native

MIB = 1 << 20

COPIES = """
    MIB = 1 << 20

    def array(width, height=0):
        form = d.CUDA_ARRAY_DESCRIPTOR()
        form.Format, form.NumChannels = d.CUarray_format.CU_AD_FORMAT_UNSIGNED_INT8, 1
        form.Width, form.Height = width, height
        return good(d.cuArrayCreate(form))

    def memory(device, size):
        good(d.cuCtxSetCurrent(good(d.cuDevicePrimaryCtxRetain(good(d.cuDeviceGet(device))))))
        return int(good(d.cuMemAlloc(size)))

    def took(step):
        stream = good(d.cuStreamCreate(1))
        start, end = good(d.cuEventCreate(0)), good(d.cuEventCreate(0))
        good(d.cuEventRecord(start, stream))
        good(step(stream))
        good(d.cuEventRecord(end, stream))
        good(d.cuEventSynchronize(end))
        return good(d.cuEventElapsedTime(start, end))
"""


def busy_ns(state: Path) -> int:
    return fakegpu.stat(state).gpus[0].busy_ns


def test_what_moves_within_a_gpu_takes_time_of_its_engine(tmp_path: Path) -> None:
    script = (
        COPIES
        + """
    a, b = memory(0, 37 * MIB), memory(0, 37 * MIB)
    good(d.cuMemcpyDtoDAsync(a, b, 37 * MIB, 0))
    good(d.cuMemsetD32Async(a, 1, 7 * MIB, 0))
    good(d.cuMemcpyDtoDAsync(a, b, 0, 0))
    good(d.cuCtxSynchronize())
    answer = None
    """
    )
    drive(tmp_path, script)
    assert busy_ns(tmp_path) == 37 * MIB * 1000 // 370_000 + 28 * MIB * 1000 // 750_000


def test_what_comes_from_the_host_takes_time_beside_the_engine(tmp_path: Path) -> None:
    script = (
        COPIES
        + """
    there, here = memory(0, 24 * MIB), good(d.cuMemHostAlloc(24 * MIB, 0))
    into = took(lambda stream: d.cuMemcpyHtoDAsync(there, here, 24 * MIB, stream))
    out = took(lambda stream: d.cuMemcpyDtoHAsync(here, there, 24 * MIB, stream))
    # The least of some: between its two events this program may have to wait for its machine.
    small = min(took(lambda stream: d.cuMemcpyHtoDAsync(there, here, 4096, stream))
                for _ in range(10))
    answer = [into, out, small]
    """
    )
    into, out, small = drive(tmp_path, script)
    least = 24 * MIB / 12_000 / 1000
    assert into >= least
    assert out >= least
    assert small < least
    assert busy_ns(tmp_path) == 0


def test_a_profile_may_say_that_copies_take_no_time(tmp_path: Path) -> None:
    profile = tmp_path / "fast.profile"
    profile.write_text("model = V100\nspeed.host = 0\nspeed.copy = 0\nspeed.fill = 0\n")
    script = (
        COPIES
        + """
    a, here = memory(0, 64 * MIB), good(d.cuMemHostAlloc(64 * MIB, 0))
    good(d.cuMemsetD8Async(a, 1, 64 * MIB, 0))
    good(d.cuMemcpyDtoDAsync(a, a + 32 * MIB, 32 * MIB, 0))
    good(d.cuMemcpyHtoDAsync(a, here, 64 * MIB, 0))
    answer = d.cuStreamQuery(0)[0].name
    """
    )
    assert drive(tmp_path / "state", script, str(profile)) == "CUDA_SUCCESS"
    assert busy_ns(tmp_path / "state") == 0


def test_a_copy_between_gpus_takes_the_time_of_their_link(tmp_path: Path) -> None:
    speeds = {"NV2": 48_000, "NV1": 24_000, "PIX": 12_500, "PXB": 12_000}
    speeds |= {"PHB": 10_500, "NODE": 9500, "SYS": 9000}
    lines = [f"link.0.{gpu} = {link}" for gpu, link in enumerate(speeds, 1)]
    profile = tmp_path / "linked.profile"
    profile.write_text("\n".join(["model = V100", "count = 8", *lines]) + "\n")
    script = (
        COPIES
        + """
    places = [memory(gpu, 4 * MIB) for gpu in reversed(range(8))]
    contexts = [good(d.cuDevicePrimaryCtxRetain(good(d.cuDeviceGet(gpu)))) for gpu in range(8)]
    here = places.pop()
    for gpu, there in enumerate(reversed(places), 1):
        good(d.cuMemcpyPeerAsync(there, contexts[gpu], here, contexts[0], 4 * MIB, 0))
    good(d.cuCtxSynchronize())
    answer = None
    """
    )
    drive(tmp_path / "state", script, str(profile))
    took_ns = [4 * MIB * 1000 // speed for speed in speeds.values()]
    assert busy_ns(tmp_path / "state") == sum(took_ns)


def test_a_gpu_is_given_access_to_another_once(tmp_path: Path) -> None:
    script = """
    other = good(d.cuDevicePrimaryCtxRetain(good(d.cuDeviceGet(1))))
    answer = [d.cuCtxDisablePeerAccess(other)[0].name, d.cuCtxEnablePeerAccess(other, 0)[0].name,
              d.cuCtxEnablePeerAccess(other, 0)[0].name, d.cuCtxDisablePeerAccess(other)[0].name,
              d.cuCtxEnablePeerAccess(context, 0)[0].name]
    """
    assert drive(tmp_path, script, "V100x2") == [
        "CUDA_ERROR_PEER_ACCESS_NOT_ENABLED",
        "CUDA_SUCCESS",
        "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED",
        "CUDA_SUCCESS",
        "CUDA_ERROR_INVALID_DEVICE",
    ]


def test_arrays_are_copied_into_and_out_of(tmp_path: Path) -> None:
    script = (
        COPIES
        + """
    row = array(64)
    there = memory(0, 64)
    good(d.cuMemcpyHtoA(row, 8, b"abcdefgh", 8))
    good(d.cuMemcpyAtoA(row, 32, row, 10, 4))
    good(d.cuMemcpyAtoD(there, row, 30, 8))
    good(d.cuMemcpyDtoA(row, 0, there, 4))
    back = ctypes.create_string_buffer(8)
    good(d.cuMemcpyAtoH(ctypes.addressof(back), row, 0, 8))
    plane = array(16, 4)
    form = d.CUDA_MEMCPY3D()
    form.srcMemoryType, form.srcHost = d.CUmemorytype.CU_MEMORYTYPE_HOST, b"0123456789AB"
    form.dstMemoryType, form.dstArray = d.CUmemorytype.CU_MEMORYTYPE_ARRAY, plane
    form.dstXInBytes, form.dstY = 2, 1
    form.WidthInBytes, form.Height, form.Depth = 4, 3, 1
    good(d.cuMemcpy3D(form))
    form.dstY = 2
    outside = d.cuMemcpy3D(form)[0].name
    answer = [read(there, 8), back.raw.hex(), outside, d.cuMemcpyAtoD(there, row, 60, 8)[0].name]
    """
    )
    wrong = "CUDA_ERROR_INVALID_VALUE"
    assert drive(tmp_path, script) == [
        b"\0\0cdef\0\0".hex(),
        b"\0\0cd\0\0\0\0".hex(),
        wrong,
        wrong,
    ]


def test_a_batch_is_as_many_copies(tmp_path: Path) -> None:
    script = (
        COPIES
        + """
    a, b = memory(0, 64), memory(0, 64)
    good(d.cuMemsetD8(a, 7, 64))
    good(d.cuMemsetD8(b, 0, 64))
    stream = good(d.cuStreamCreate(1))
    how = d.CUmemcpyAttributes()
    how.srcAccessOrder = d.CUmemcpySrcAccessOrder.CU_MEMCPY_SRC_ACCESS_ORDER_STREAM
    to, source = [d.CUdeviceptr(b), d.CUdeviceptr(b + 8)], [d.CUdeviceptr(a)] * 2
    good(d.cuMemcpyBatchAsync(to, source, [4, 2], 2, [how], [0], 1, stream))
    good(d.cuStreamSynchronize(stream))
    answer = read(b, 12)
    """
    )
    assert drive(tmp_path, script) == "07070707" + "00" * 4 + "0707" + "00" * 2
