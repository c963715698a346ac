"""burn.py: keeps a GPU busy through NVIDIA's own Python client of the driver API.

    python burn.py [--kernel-us 1000] [--memory BYTES] [--seconds 10] [--inflight 8]

The same kernel as ``burn.c``, launched by ``cuda-bindings``, so that a client
library as people use it meets whatever driver there is: a real one, the fake one,
either below the device library. Prints a summary as one JSON line.

Exit code: 0 done, 1 the GPU said no (out of memory, …), 2 wrong use.
"""

# ruff: noqa: INP001 - an example to be run, not a package

import argparse
import ctypes
import json
import sys
import time
from typing import Any

from cuda.bindings import driver

PTX = b"""
.version 6.0
.target sm_50
.address_size 64
.visible .entry kubeshare_spin_us(.param .u32 microseconds)
{
    .reg .pred %p;
    .reg .b32 %us;
    .reg .b64 %start, %now, %ns;
    ld.param.u32 %us, [microseconds];
    mul.wide.u32 %ns, %us, 1000;
    mov.u64 %start, %globaltimer;
again:
    mov.u64 %now, %globaltimer;
    sub.u64 %now, %now, %start;
    setp.lt.u64 %p, %now, %ns;
    @%p bra again;
    ret;
}
\0"""


class GpuSaysNoError(Exception):
    """A call of the driver failed; the message is its name for the error."""


def check(answer: tuple[Any, ...]) -> Any:
    """Returns what a call of the driver gives beside its result.

    Raises:
        GpuSaysNoError: The result is an error.
    """
    result, *values = answer
    if result != driver.CUresult.CUDA_SUCCESS:
        raise GpuSaysNoError(result.name)
    return values[0] if values else None


def burn(options: argparse.Namespace) -> dict[str, float]:
    """Launches kernels for as long as was asked; returns how many, and how fast."""
    check(driver.cuInit(0))
    context = check(driver.cuDevicePrimaryCtxRetain(check(driver.cuDeviceGet(0))))
    check(driver.cuCtxSetCurrent(context))
    if options.memory:
        memory = check(driver.cuMemAlloc(options.memory))
        check(driver.cuMemsetD8(memory, 0, options.memory))
    spin = check(
        driver.cuModuleGetFunction(check(driver.cuModuleLoadData(PTX)), b"kubeshare_spin_us")
    )
    stream = check(driver.cuStreamCreate(driver.CUstream_flags.CU_STREAM_NON_BLOCKING))
    done = [check(driver.cuEventCreate(0)) for _ in range(options.inflight)]
    arguments = ((options.kernel_us,), (ctypes.c_uint32,))
    start = time.monotonic()
    kernels = 0
    while time.monotonic() - start < options.seconds:
        event = done[kernels % options.inflight]
        check(driver.cuEventSynchronize(event))
        check(driver.cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, stream, arguments, 0))
        check(driver.cuEventRecord(event, stream))
        kernels += 1
    check(driver.cuCtxSynchronize())
    seconds = time.monotonic() - start
    return {"kernels": kernels, "seconds": seconds, "kernels_per_s": kernels / seconds}


def main() -> int:
    """Runs the program; returns its exit code."""
    parser = argparse.ArgumentParser(description="Keep a GPU busy through cuda-bindings.")
    parser.add_argument("--kernel-us", type=int, default=1000, help="time of one kernel")
    parser.add_argument("--memory", type=int, default=0, help="bytes to hold meanwhile")
    parser.add_argument("--seconds", type=float, default=10.0, help="how long to go on")
    parser.add_argument("--inflight", type=int, default=8, help="kernels queued at a time")
    try:
        sys.stdout.write(json.dumps({"summary": burn(parser.parse_args())}) + "\n")
    except GpuSaysNoError as error:
        sys.stdout.write(json.dumps({"error": str(error)}) + "\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
