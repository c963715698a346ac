"""Memory is a hard limit: an allocation above it fails with the driver's own error."""

import json

import pytest

from e2e.space import Space

pytestmark = pytest.mark.lab

TRY_TWICE = """
import ctypes, json
cuda, context, where = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), ctypes.c_uint64()
cuda.cuInit(0)
cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
cuda.cuCtxSetCurrent(context)
sizes = (2 << 30, 512 << 20)
print(json.dumps([cuda.cuMemAlloc_v2(ctypes.byref(where), ctypes.c_size_t(n)) for n in sizes]))
"""
SUCCESS, OUT_OF_MEMORY = 0, 2


def test_a_job_over_its_memory_is_out_of_memory(space: Space) -> None:
    job = ("burn", "--memory", "2Gi", "--seconds", "60")
    space.share("greedy", {"request": "0.3", "memory": "1Gi"}, job, restartPolicy="Never")

    space.until_phase("greedy", "Failed", "Succeeded")

    summary = json.loads(space.log("greedy").splitlines()[-1])
    assert summary["error"] == "CUDA_ERROR_OUT_OF_MEMORY"
    pod = space.find_pod("greedy")
    assert pod is not None
    assert pod["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 1


def test_a_job_that_bears_the_refusal_goes_on(space: Space) -> None:
    ask = {"request": "0.3", "memory": "1Gi"}
    space.share("modest", ask, ("python3", "-c", TRY_TWICE), restartPolicy="Never")

    space.until_phase("modest", "Failed", "Succeeded")

    assert json.loads(space.log("modest")) == [OUT_OF_MEMORY, SUCCESS]
    assert space.phase("modest") == "Succeeded"
