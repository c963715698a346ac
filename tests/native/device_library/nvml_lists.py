"""A program that asks NVML who uses a GPU: a line in, a JSON line out."""

import ctypes
import json
import sys
from collections.abc import Callable, Iterable
from ctypes import POINTER, byref, c_uint, c_ulonglong, c_void_p
from itertools import islice

MARK = 0xA5


class V1(ctypes.Structure):
    _fields_ = [("pid", c_uint), ("bytes", c_ulonglong)]


class V2(ctypes.Structure):
    _fields_ = [*V1._fields_, ("instances", c_uint * 2)]


class Detail(ctypes.Structure):
    _fields_ = [*V2._fields_, ("protected", c_ulonglong)]


class Details(ctypes.Structure):
    _fields_ = [
        ("version", c_uint),
        ("mode", c_uint),
        ("count", c_uint),
        ("processes", POINTER(Detail)),
    ]


class Sample(ctypes.Structure):
    _fields_ = [("pid", c_uint), ("time", c_ulonglong), ("parts", c_uint * 4)]


class Usage(ctypes.Structure):
    _fields_ = [("time", c_ulonglong), ("pid", c_uint), ("parts", c_uint * 6)]


class Usages(ctypes.Structure):
    _fields_ = [
        ("version", c_uint),
        ("count", c_uint),
        ("last_seen", c_ulonglong),
        ("processes", POINTER(Usage)),
    ]


nvml = ctypes.CDLL("libnvidia-ml.so.1")
cuda = ctypes.CDLL("libcuda.so.1")
device = c_void_p()


def entries_of(array: Iterable[ctypes.Structure], count: int) -> list[dict[str, object]]:
    return [
        {
            name: list(value) if isinstance(value, ctypes.Array) else value
            for name, *_ in entry._fields_
            for value in [getattr(entry, name)]
        }
        for entry in islice(array, count)
    ]


def answer(result: int, **more: object) -> None:
    sys.stdout.write(json.dumps({"result": result, **more}) + "\n")
    sys.stdout.flush()


def alloc(size: str) -> None:
    context, pointer = c_void_p(), c_ulonglong()
    result = (
        cuda.cuInit(0)
        or cuda.cuDevicePrimaryCtxRetain(byref(context), 0)
        or cuda.cuCtxSetCurrent(context)
        or cuda.cuMemAlloc_v2(byref(pointer), ctypes.c_size_t(int(size)))
    )
    answer(result)


def ask_list(kind: str, version: str, room: str) -> None:
    entry: type[ctypes.Structure] = V2 if version != "-" else V1
    array = (entry * (int(room) + 1))()
    ctypes.memset(array, MARK, ctypes.sizeof(array))
    count = c_uint(int(room))
    function = getattr(nvml, f"nvmlDeviceGet{kind}RunningProcesses{version.strip('-')}")
    result = function(device, byref(count), array if int(room) else None)
    behind = bytes(array)[int(room) * ctypes.sizeof(entry) :]
    found = entries_of(array, count.value if result == 0 else 0)
    answer(result, count=count.value, entries=found, touched=behind.strip(bytes([MARK])) != b"")


def ask_nowhere(kind: str, version: str) -> None:
    function = getattr(nvml, f"nvmlDeviceGet{kind}RunningProcesses{version.strip('-')}")
    answer(function(device, byref(c_uint(3)), None))


def ask_details(mode: str, room: str) -> None:
    array = (Detail * int(room))()
    details = Details(ctypes.sizeof(Details) | 1 << 24, int(mode), int(room), array)
    result = nvml.nvmlDeviceGetRunningProcessDetailList(device, byref(details))
    answer(result, entries=entries_of(array, details.count if result == 0 else 0))


def ask_samples(room: str) -> None:
    array, count = (Sample * int(room))(), c_uint(int(room))
    result = nvml.nvmlDeviceGetProcessUtilization(device, array, byref(count), c_ulonglong(0))
    answer(result, pids=[entry.pid for entry in array[: count.value if result == 0 else 0]])


def ask_usages(room: str) -> None:
    array = (Usage * int(room))()
    usages = Usages(ctypes.sizeof(Usages) | 1 << 24, int(room), 0, array)
    result = nvml.nvmlDeviceGetProcessesUtilizationInfo(device, byref(usages))
    answer(result, pids=[entry.pid for entry in array[: usages.count if result == 0 else 0]])


def ask_bar1() -> None:
    memory = (c_ulonglong * 3)()
    answer(nvml.nvmlDeviceGetBAR1MemoryInfo(device, memory), memory=list(memory))


def ask_rates() -> None:
    percent = (c_uint * 2)()
    answer(nvml.nvmlDeviceGetUtilizationRates(device, percent), percent=list(percent))


COMMANDS: dict[str, Callable[..., None]] = {
    "alloc": alloc,
    "list": ask_list,
    "nowhere": ask_nowhere,
    "details": ask_details,
    "samples": ask_samples,
    "usages": ask_usages,
    "bar1": ask_bar1,
    "rates": ask_rates,
}


def main() -> None:
    nvml.nvmlInit_v2()
    nvml.nvmlDeviceGetHandleByIndex_v2(0, byref(device))
    for line in sys.stdin:
        name, *words = line.split()
        COMMANDS[name](*words)


if __name__ == "__main__":
    main()
