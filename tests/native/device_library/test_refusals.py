"""What the driver refuses is refused with the driver's own error, not with one of ours."""

import json
import subprocess
import sys

import pytest

from fakes.session import FakeSession, Machine

pytestmark = pytest.mark.native

INVALID_VALUE, INVALID_DEVICE = 1, 101

PROGRAM = """
import ctypes, json

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


def results(machine: Machine, session: FakeSession, preload: str) -> dict[str, object]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=machine.environment() | session.environment | {"LD_PRELOAD": preload},
        capture_output=True,
        check=True,
    )
    answers: dict[str, object] = json.loads(done.stdout)
    return answers


def test_malformed_calls_have_the_drivers_result(machine: Machine, session: FakeSession) -> None:
    alone = results(machine, session, "")
    assert results(machine, session, str(machine.library)) == alone
    assert alone == {
        "contexts": [INVALID_DEVICE, INVALID_DEVICE],
        "too wide": INVALID_VALUE,
        "no such format": INVALID_VALUE,
        "five channels": INVALID_VALUE,
        "mipmapped": INVALID_VALUE,
        "no such device": [INVALID_DEVICE, INVALID_DEVICE],
    }
