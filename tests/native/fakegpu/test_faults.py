"""What goes wrong with a fake GPU, as its profile says or as a kernel asks for."""

from pathlib import Path

import pytest

from fakes.gpu_client import Client, drive
from kubeshare import fakegpu

pytestmark = pytest.mark.native

LOOK = """
    import time
    import pynvml as n
    n.nvmlInit()
    gpu = n.nvmlDeviceGetHandleByIndex(0)
    events = n.nvmlEventSetCreate()
    n.nvmlDeviceRegisterEvents(gpu, n.nvmlEventTypeXidCriticalError, events)

    def said(call, *arguments):
        try:
            return call(*arguments)
        except n.NVMLError as error:
            return type(error).__name__.removeprefix("NVMLError_")

    def event(timeout=120_000):
        told = said(n.nvmlEventSetWait_v2, events, timeout)
        return told if isinstance(told, str) else int(told.eventData)

    def fault(xid, stream=0):
        kernel = good(d.cuModuleGetFunction(module, b"kubeshare_fault"))
        arguments = ((xid,), (ctypes.c_uint32,))
        return d.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, arguments, 0)[0].name
"""


def profile(folder: Path, *lines: str) -> str:
    path = folder / "faulty.profile"
    path.write_text("\n".join(("model = V100", "count = 2", *lines)) + "\n")
    return str(path)


def test_a_kernel_that_breaks_its_context_breaks_it_for_good(tmp_path: Path) -> None:
    script = (
        LOOK
        + """
    answer = []
    for xid in (13, 31, 48):
        memory = good(d.cuMemAlloc(1 << 20))
        launched = fault(xid)
        answer.append([launched, d.cuCtxSynchronize()[0].name, d.cuMemAlloc(4096)[0].name,
                       d.cuMemFree(memory)[0].name, d.cuStreamCreate(0)[0].name,
                       event(), event(0)])
        good(d.cuDevicePrimaryCtxReset(device))
        good(d.cuCtxSetCurrent(good(d.cuDevicePrimaryCtxRetain(device))))
        module = good(d.cuModuleLoadData(b"any image"))
        good(d.cuCtxSynchronize())
    """
    )
    errors = {13: "LAUNCH_FAILED", 31: "ILLEGAL_ADDRESS", 48: "ECC_UNCORRECTABLE"}
    assert drive(tmp_path, script) == [
        ["CUDA_SUCCESS", *[f"CUDA_ERROR_{error}"] * 4, xid, "Timeout"]
        for xid, error in errors.items()
    ]


BREAKS = """
kernel = good(d.cuModuleGetFunction(module, b"kubeshare_fault"))
good(d.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, 0, ((XID,), (ctypes.c_uint32,)), 0))
answer = d.cuCtxSynchronize()[0].name
"""


def test_an_error_breaks_the_one_who_made_it_or_everybody(tmp_path: Path) -> None:
    script = f"""
    others = []
    mine = []
    for xid in (31, 48):
        others.append(elsewhere({BREAKS!r}.replace("XID", str(xid))))
        mine.append(d.cuCtxSynchronize()[0].name)
    answer = [others, mine]
    """
    own, shared = "CUDA_ERROR_ILLEGAL_ADDRESS", "CUDA_ERROR_ECC_UNCORRECTABLE"
    assert drive(tmp_path, script) == [[own, shared], ["CUDA_SUCCESS", shared]]


def test_a_gpu_is_lost_when_its_profile_says(tmp_path: Path) -> None:
    script = (
        LOOK
        + """
    told = event()
    uuid = n.nvmlDeviceGetUUID(gpu)
    answer = [told, said(n.nvmlDeviceGetMemoryInfo, gpu), uuid[:4], d.cuMemGetInfo()[0].name,
              d.cuCtxCreate(None, 0, device)[0].name,
              d.cuDevicePrimaryCtxRetain(good(d.cuDeviceGet(1)))[0].name]
    """
    )
    lost = profile(tmp_path, "fault.0.xid = 79", "fault.0.after_ms = 500")
    assert drive(tmp_path / "state", script, lost) == [
        79,
        "GpuIsLost",
        "GPU-",
        "CUDA_ERROR_UNKNOWN",
        "CUDA_ERROR_DEVICE_UNAVAILABLE",
        "CUDA_SUCCESS",
    ]


def test_a_faulty_row_of_memory_is_remapped_and_hurts_nobody(tmp_path: Path) -> None:
    script = (
        LOOK
        + """
    answer = []
    for xid in (63, 64):
        fault(xid)
        answer.append([d.cuCtxSynchronize()[0].name, event(), n.nvmlDeviceGetRemappedRows(gpu)])
    """
    )
    fine = "CUDA_SUCCESS"
    assert drive(tmp_path, script) == [[fine, 63, [0, 1, 1, 0]], [fine, 64, [0, 1, 1, 1]]]


def test_the_allocation_fails_that_the_profile_names(tmp_path: Path) -> None:
    script = "answer = [d.cuMemAlloc(4096)[0].name for _ in range(4)]"
    third = profile(tmp_path, "fault.0.allocation = 3")
    fine, out = "CUDA_SUCCESS", "CUDA_ERROR_OUT_OF_MEMORY"
    assert drive(tmp_path / "state", script, third) == [fine, fine, out, fine]


def test_memory_runs_out_earlier_where_the_profile_says_so(tmp_path: Path) -> None:
    script = """
    free = good(d.cuMemGetInfo())[0]
    answer = [d.cuMemAlloc(6 << 20)[0].name, d.cuMemAlloc(4 << 20)[0].name,
              d.cuMemAlloc(2 << 20)[0].name, d.cuMemAlloc(1)[0].name, free >> 30]
    """
    small = profile(tmp_path, "fault.0.memory = 8")
    fine, out = "CUDA_SUCCESS", "CUDA_ERROR_OUT_OF_MEMORY"
    assert drive(tmp_path / "state", script, small) == [fine, out, fine, out, 16]


def test_a_synchronisation_takes_longer_where_the_profile_says_so(tmp_path: Path) -> None:
    script = """
    import time
    stream, event = good(d.cuStreamCreate(1)), good(d.cuEventCreate(0))
    answer = []
    for call in (d.cuCtxSynchronize, lambda: d.cuStreamSynchronize(stream),
                 lambda: d.cuEventSynchronize(event)):
        start = time.monotonic()
        good(call())
        answer.append(time.monotonic() - start >= 0.02)
    """
    slow = profile(tmp_path, "sync_us = 20000")
    assert drive(tmp_path / "state", script, slow) == [True, True, True]


def test_an_error_can_be_made_to_happen_while_others_use_the_gpu(tmp_path: Path) -> None:
    with Client(tmp_path) as client:
        client("allocate", 4096)
        fakegpu.raise_error(tmp_path, 0, fakegpu.LOST)
        unknown = 999
        assert client("allocate", 4096)[0] == unknown
    with pytest.raises(fakegpu.FakeGpuError, match="expected a GPU and an XID"):
        fakegpu.raise_error(tmp_path, 1, 48)
