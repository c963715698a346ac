"""What the driver refuses is refused with the driver's own error, not with one of ours."""

import json
import subprocess
import sys

import pytest

from fakes.session import FakeSession, Machine

pytestmark = pytest.mark.native

INVALID_VALUE, INVALID_DEVICE = 1, 101

START = """
import ctypes, json, struct

class Array(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in ("width", "height", "depth")] + [
        (name, ctypes.c_uint) for name in ("format", "channels", "flags")]

class Memory(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int) for name in ("kind", "handles", "place", "device")] + [
        ("rest", ctypes.c_uint64 * 2)]

cuda = ctypes.CDLL("libcuda.so.1")
made = ctypes.c_void_p()
to = ctypes.byref(made)
cuda.cuInit(0)
before = [cuda.cuCtxCreate_v2(to, 0, 99), cuda.cuDevicePrimaryCtxRetain(to, 99)]
cuda.cuDevicePrimaryCtxRetain(to, 0)
cuda.cuCtxSetCurrent(made)

def array(*fields):
    return cuda.cuArray3DCreate_v2(to, ctypes.byref(Array(*fields)))

def mipmapped(levels, *fields):
    return cuda.cuMipmappedArrayCreate(to, ctypes.byref(Array(*fields)), levels)

def physical(device):
    wanted = Memory(1, 0, 1, device)
    return cuda.cuMemCreate(to, ctypes.c_size_t(2 << 20), ctypes.byref(wanted),
                            ctypes.c_uint64(0))
"""

MALFORMED = """
FLOAT, UNKNOWN = 0x20, 0x77
print(json.dumps({
    "contexts": before,
    "too wide": array(1 << 40, 1 << 20, 0, FLOAT, 1, 0),
    "no such format": array(1 << 16, 1 << 15, 0, UNKNOWN, 4, 0),
    "five channels": array(1 << 16, 1 << 15, 0, FLOAT, 5, 0),
    "mipmapped": mipmapped(1, 1 << 40, 1 << 20, 0, FLOAT, 1, 0),
    "no such device": [physical(99), physical(-1)],
}))
"""


BEYOND_THE_LIMIT = """
pool, pitch = ctypes.c_void_p(), ctypes.c_size_t()
cuda.cuDeviceGetDefaultMemPool(ctypes.byref(pool), 0)

def created(handle, bytes, flags):
    wanted = Memory(1, 0, 1, 0)
    return cuda.cuMemCreate(handle, ctypes.c_size_t(bytes), ctypes.byref(wanted),
                            ctypes.c_uint64(flags))

def pitched(pointer, pitch, bytes, element):
    row, rows = (1 << 20, bytes >> 20) if bytes >> 20 else (bytes, 1)
    return [cuda.cuMemAllocPitch(pointer, pitch, row, rows, element),
            cuda.cuMemAllocPitch_v2(pointer, pitch, ctypes.c_size_t(row), ctypes.c_size_t(rows),
                                    element)]

def malformed(bytes):
    size = ctypes.c_size_t(bytes)
    described = struct.pack("i4x16xQI64x4x", 1, bytes, 0)
    return {
        "nowhere": [cuda.cuMemAlloc(None, bytes), cuda.cuMemAlloc_v2(None, size)],
        "managed nowhere": cuda.cuMemAllocManaged(None, size, 1),
        "managed, flags": [cuda.cuMemAllocManaged(to, size, flags) for flags in (0, 3, 4)],
        "pitched nowhere": pitched(None, ctypes.byref(pitch), bytes, 4),
        "pitch nowhere": pitched(to, None, bytes, 4),
        "pitched, element": [pitched(to, ctypes.byref(pitch), bytes, n) for n in (0, 3, 32)],
        "in a stream, nowhere": [
            cuda.cuMemAllocAsync(None, size, None),
            cuda.cuMemAllocAsync_ptsz(None, size, None),
            cuda.cuMemAllocFromPoolAsync(None, size, pool, None),
            cuda.cuMemAllocFromPoolAsync_ptsz(None, size, pool, None)],
        "created nowhere": created(None, max(bytes, 2 << 20), 0),
        "created, flags": created(to, max(bytes, 2 << 20), 1),
        "created, odd size": created(to, bytes + 512, 0),
        "imported nowhere": cuda.cuImportExternalMemory(None, described),
    }

answers = {"at once": malformed(2 << 30)}
for power in range(30, 8, -1):
    for _ in range(3):
        cuda.cuMemAlloc_v2(to, ctypes.c_size_t(1 << power))
print(json.dumps(answers | {"with nothing left": malformed(512)}))
"""


def results(
    machine: Machine, session: FakeSession, preload: str, program: str
) -> dict[str, object]:
    done = subprocess.run(
        [sys.executable, "-c", START + program],
        env=machine.environment() | session.environment | {"LD_PRELOAD": preload},
        capture_output=True,
        check=True,
    )
    answers: dict[str, object] = json.loads(done.stdout)
    return answers


def test_malformed_calls_have_the_drivers_result(machine: Machine, session: FakeSession) -> None:
    alone = results(machine, session, "", MALFORMED)
    assert results(machine, session, str(machine.library), MALFORMED) == alone
    assert alone == {
        "contexts": [INVALID_DEVICE, INVALID_DEVICE],
        "too wide": INVALID_VALUE,
        "no such format": INVALID_VALUE,
        "five channels": INVALID_VALUE,
        "mipmapped": INVALID_VALUE,
        "no such device": [INVALID_DEVICE, INVALID_DEVICE],
    }


def test_malformed_calls_beyond_the_limit_have_it_too(
    machine: Machine, session: FakeSession
) -> None:
    alone = results(machine, session, "", BEYOND_THE_LIMIT)
    assert results(machine, session, str(machine.library), BEYOND_THE_LIMIT) == alone
    refusals = {
        "nowhere": [INVALID_VALUE] * 2,
        "managed nowhere": INVALID_VALUE,
        "managed, flags": [INVALID_VALUE] * 3,
        "pitched nowhere": [INVALID_VALUE] * 2,
        "pitch nowhere": [INVALID_VALUE] * 2,
        "pitched, element": [[INVALID_VALUE] * 2] * 3,
        "in a stream, nowhere": [INVALID_VALUE] * 4,
        "created nowhere": INVALID_VALUE,
        "created, flags": INVALID_VALUE,
        "created, odd size": INVALID_VALUE,
        "imported nowhere": INVALID_VALUE,
    }
    assert alone == {"at once": refusals, "with nothing left": refusals}
