"""Scripts that use the driver through NVIDIA's Python client."""

import json
import os
from pathlib import Path
from textwrap import dedent
from typing import IO, Any

from fakes.gpu_client.nursery import nursery
from kubeshare import fakegpu

PRELUDE = r"""
import ctypes, json, os, subprocess, sys
from cuda.bindings import driver as d

def good(result):
    error, *values = result
    assert error == d.CUresult.CUDA_SUCCESS, error
    return values[0] if len(values) == 1 else values

def used():
    free, total = good(d.cuMemGetInfo())
    return total - free

def elsewhere(script, fds=(), **variables):
    program = os.environ["PRELUDE"] + script + "\nprint(json.dumps(answer))"
    done = subprocess.run([sys.executable, "-c", program], pass_fds=fds, capture_output=True,
                          env={**os.environ, **variables}, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)

def read(pointer, size):
    back = ctypes.create_string_buffer(size)
    good(d.cuMemcpyDtoH(ctypes.addressof(back), pointer, size))
    return back.raw.hex()

good(d.cuInit(0))
device = good(d.cuDeviceGet(0))
context = good(d.cuDevicePrimaryCtxRetain(device))
good(d.cuCtxSetCurrent(context))
module = good(d.cuModuleLoadData(b"any image"))
spin = good(d.cuModuleGetFunction(module, b"kubeshare_spin_us"))

def launch(microseconds, stream=0):
    arguments = ((microseconds,), (ctypes.c_uint32,))
    good(d.cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, stream, arguments, 0))
"""


def drive(
    state: Path,
    script: str,
    profile: str = "V100x1",
    stderr: IO[str] | None = None,
    **extra: str,
) -> Any:
    """What a script, run in a process of its own, puts into `answer`.

    Beside the names of the prelude it has `d`, the driver; `device` and `context`, the first GPU
    and its primary context, which is current. What it writes to standard error goes to `stderr`.
    """
    program = PRELUDE + dedent(script) + "\nprint(json.dumps(answer))"
    chosen = fakegpu.environment(profile, state)
    environment = {**os.environ, **chosen, "PRELUDE": PRELUDE, **extra}
    done = nursery(environment["LD_LIBRARY_PATH"]).run(program, environment)
    assert done.code == 0, done.errors
    if stderr is not None:
        stderr.write(done.errors)
    return json.loads(done.output)
