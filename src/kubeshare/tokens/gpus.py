"""The GPUs of this machine and their processes, as NVML lists them."""

import ctypes
from collections.abc import Iterable
from pathlib import Path

import msgspec
import pynvml


class GpuMissingError(Exception):
    """NVML cannot be used, or the machine has no GPU; the message says why."""

    exit_code = 3


class Gpu(msgspec.Struct, frozen=True, kw_only=True):
    """One physical GPU.

    Attributes:
        uuid: `GPU-…`.
        index: NVML's number, from 0.
        minor: the number of its device node, /dev/nvidiaN.
        model: for example `Tesla V100-SXM2-16GB`.
        memory_bytes: its size.
    """

    uuid: str
    index: int
    minor: int
    model: str
    memory_bytes: int


def gpus(library: Path | None = None) -> tuple[Gpu, ...]:
    """List the GPUs, by index.

    `library` is an NVML to use instead of the one that the loader finds; the first one that
    a process loads serves all its calls.

    Raises:
        GpuMissingError: there is no NVML, it does not work, or it lists no GPU.
    """
    try:
        if library is not None:
            ctypes.CDLL(str(library))  # NVML's bindings find it again by its name
        pynvml.nvmlInit()
    except (OSError, pynvml.NVMLError) as error:
        raise GpuMissingError(
            f"no GPU can be used here: the NVIDIA driver's NVML says: {error}; "
            "`kubeshare run --fake V100x1 …` brings a fake GPU"
        ) from None
    try:
        found = tuple(_gpu(index) for index in range(pynvml.nvmlDeviceGetCount()))
    except pynvml.NVMLError as error:
        raise GpuMissingError(f"NVML does not list the GPUs: {error}") from None
    finally:
        pynvml.nvmlShutdown()
    if not found:
        raise GpuMissingError("NVML works and knows no GPU on this machine")
    return found


def memory_of_processes(uuids: Iterable[str]) -> dict[tuple[str, int], int | None]:
    """(GPU, pid) → bytes that the driver counts; None where it does not report them.

    Starts NVML if necessary, and does not stop it.

    Raises:
        pynvml.NVMLError: it does not answer.
    """
    pynvml.nvmlInit()
    used: dict[tuple[str, int], int | None] = {}
    for uuid in uuids:
        try:
            handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
        except pynvml.NVMLError_NotFound:  # a fake GPU of another profile
            continue
        for process in pynvml.nvmlDeviceGetComputeRunningProcesses_v3(handle):
            used[uuid, process.pid] = process.usedGpuMemory
    return used


def _gpu(index: int) -> Gpu:
    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    return Gpu(
        uuid=pynvml.nvmlDeviceGetUUID(handle),
        index=index,
        minor=pynvml.nvmlDeviceGetMinorNumber(handle),
        model=pynvml.nvmlDeviceGetName(handle),
        memory_bytes=pynvml.nvmlDeviceGetMemoryInfo(handle).total,
    )
