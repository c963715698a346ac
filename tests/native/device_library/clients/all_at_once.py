"""Calls many of the driver's functions with nothing in their arguments, a thread each.

    all_at_once.py NAME…

A line in, a JSON line out: `returned` says which calls have come back, and `copy HOST` copies
between two allocations of the GPU, or from the host (1), by all generic ways.
"""

import ctypes
import json
import sys
import threading
from ctypes import byref, c_size_t, c_uint, c_ulonglong, c_void_p

MOST_PARAMETERS = 12
BYTES = 4096

cuda = ctypes.CDLL("libcuda.so.1")
context = c_void_p()
assert cuda.cuInit(0) == 0
assert cuda.cuDevicePrimaryCtxRetain(byref(context), 0) == 0
returned: list[str] = []
kept: list[object] = []  # as long as a call may look at it


class Copy2D(ctypes.Structure):
    """One end has x, y, memory type, host, device, array, pitch."""

    _fields_ = [
        *((f"source{i}", c_size_t) for i in range(2)),
        ("source_type", c_uint),
        *((f"source_{name}", c_size_t) for name in ("host", "device", "array", "pitch")),
        *((f"destination{i}", c_size_t) for i in range(2)),
        ("destination_type", c_uint),
        *((f"destination_{name}", c_size_t) for name in ("host", "device", "array", "pitch")),
        ("width", c_size_t),
        ("height", c_size_t),
    ]


def start(name: str, *arguments: object) -> None:
    def run() -> None:
        cuda.cuCtxSetCurrent(context)
        getattr(cuda, name)(*arguments)
        returned.append(name)

    threading.Thread(target=run, daemon=True).start()


def allocate() -> c_ulonglong:
    pointer = c_ulonglong()
    cuda.cuCtxSetCurrent(context)
    assert cuda.cuMemAlloc_v2(byref(pointer), c_size_t(BYTES)) == 0
    return pointer


def copy(*, from_host: bool) -> None:
    host = ctypes.create_string_buffer(BYTES)
    device, destination = allocate(), allocate()
    source = c_ulonglong(ctypes.addressof(host)) if from_host else device
    rows = Copy2D(
        source_type=1 if from_host else 2,
        source_host=ctypes.addressof(host),
        source_device=device.value,
        source_pitch=64,
        destination_type=2,
        destination_device=destination.value,
        destination_pitch=64,
        width=64,
        height=64,
    )
    kept.append((host, rows))
    size, stream = c_size_t(BYTES), c_void_p()
    for twin in ("", "_ptds"):
        start(f"cuMemcpy{twin}", destination, source, size)
        start(f"cuMemcpy2D_v2{twin}", byref(rows))
    for twin in ("", "_ptsz"):
        start(f"cuMemcpyAsync{twin}", destination, source, size, stream)
        start(f"cuMemcpy2DAsync_v2{twin}", byref(rows), stream)


for name in sys.argv[1:]:
    start(name, *[c_void_p()] * MOST_PARAMETERS)
for line in sys.stdin:
    if line.startswith("copy"):
        copy(from_host=line.split()[1] == "1")
    sys.stdout.write(json.dumps({"returned": sorted(returned)}) + "\n")
    sys.stdout.flush()
