"""Memory that no call asks for by size: contexts, modules, stacks and heaps."""

from pathlib import Path
from typing import Any

import pytest

from fakes.gpu_client import drive

pytestmark = pytest.mark.native

MIB = 1 << 20
PROFILE = "model = V100\ncontext_memory = 300\nmodule_memory = 2\n"
STACKS = 80 * 2048  # threads of a V100


@pytest.fixture
def profile(tmp_path: Path) -> str:
    path = tmp_path / "machine.profile"
    path.write_text(PROFILE)
    return str(path)


def test_each_context_takes_its_memory_and_gives_it_back(tmp_path: Path, profile: str) -> None:
    script = """
        good(d.cuModuleUnload(module))
        steps = [used() >> 20]
        again = good(d.cuDevicePrimaryCtxRetain(device))
        own = good(d.cuCtxCreate(None, 0, device))
        steps.append(used() >> 20)
        good(d.cuCtxDestroy(own))
        good(d.cuCtxSetCurrent(context))
        steps.append(used() >> 20)
        answer = steps
    """
    assert drive(tmp_path, script, profile) == [300, 600, 300]


def test_a_context_that_does_not_fit_is_refused(tmp_path: Path, profile: str) -> None:
    script = """
        good(d.cuMemAlloc(good(d.cuMemGetInfo())[0] - (298 << 20)))
        answer = [d.cuCtxCreate(None, 0, device)[0].name, good(d.cuMemGetInfo())[0] >> 20]
    """
    assert drive(tmp_path, script, profile) == ["CUDA_ERROR_OUT_OF_MEMORY", 298]


def test_a_module_takes_its_memory_until_it_or_its_context_goes(
    tmp_path: Path, profile: str
) -> None:
    script = """
        good(d.cuModuleUnload(module))
        steps = []
        module = good(d.cuModuleLoadData(b"any image"))
        library = good(d.cuLibraryLoadData(b"any image", [], [], 0, [], [], 0))
        steps.append(used() >> 20)
        good(d.cuModuleGetFunction(module, b"kernel"))
        good(d.cuModuleGetFunction(module, b"another"))
        steps.append(used() >> 20)
        good(d.cuLibraryGetKernel(library, b"kernel"))
        good(d.cuLibraryGetKernel(library, b"another"))
        steps.append(used() >> 20)
        good(d.cuModuleUnload(module))
        good(d.cuLibraryUnload(library))
        steps.append(used() >> 20)
        own = good(d.cuCtxCreate(None, 0, device))
        left = good(d.cuModuleLoadData(b"any image"))
        good(d.cuModuleGetFunction(left, b"kernel"))
        steps.append(used() >> 20)
        good(d.cuCtxDestroy(own))
        good(d.cuCtxSetCurrent(context))
        good(d.cuModuleUnload(left))
        steps.append(used() >> 20)
        answer = steps
    """
    assert drive(tmp_path, script, profile) == [300, 302, 304, 300, 602, 300]


def test_code_is_loaded_with_its_module_where_the_program_wants_that(
    tmp_path: Path, profile: str
) -> None:
    script = """
        good(d.cuModuleUnload(module))
        mode = good(d.cuModuleGetLoadingMode()).name
        steps = [used() >> 20]
        module = good(d.cuModuleLoadData(b"any image"))
        steps.append(used() >> 20)
        library = good(d.cuLibraryLoadData(b"any image", [], [], 0, [], [], 0))
        steps.append(used() >> 20)
        good(d.cuModuleGetFunction(module, b"kernel"))
        good(d.cuLibraryGetKernel(library, b"kernel"))
        steps.append(used() >> 20)
        room = good(d.cuMemGetInfo())[0] - (1 << 20)
        good(d.cuMemAlloc(room))
        refused = d.cuModuleLoadData(b"any image")[0].name
        answer = [mode, steps, refused]
    """
    assert drive(tmp_path, script, profile, CUDA_MODULE_LOADING="EAGER") == [
        "CU_MODULE_EAGER_LOADING",
        [300, 302, 304, 304],
        "CUDA_ERROR_OUT_OF_MEMORY",
    ]


@pytest.mark.parametrize("mode", ["LAZY", "", "eager"])
def test_code_that_does_not_fit_is_told_by_whoever_needs_it_first(
    tmp_path: Path, profile: str, mode: str
) -> None:
    script = """
        lazy = good(d.cuModuleGetLoadingMode()).name
        good(d.cuCtxSetCurrent(None))
        library = good(d.cuLibraryLoadData(b"any image", [], [], 0, [], [], 0))
        kernel = good(d.cuLibraryGetKernel(library, b"kernel"))
        good(d.cuCtxSetCurrent(context))
        before = used() >> 20
        held = good(d.cuMemAlloc(good(d.cuMemGetInfo())[0] - (1 << 20)))
        module = good(d.cuModuleLoadData(b"any image"))
        function = d.CUfunction(int(kernel))
        answer = [lazy, before, d.cuModuleGetFunction(module, b"kernel")[0].name,
                  d.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0)[0].name]
        good(d.cuMemFree(held))
        good(d.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0))
        answer.append(used() >> 20)
    """
    refused = "CUDA_ERROR_OUT_OF_MEMORY"
    lazy = "CU_MODULE_LAZY_LOADING"
    answer = drive(tmp_path, script, profile, CUDA_MODULE_LOADING=mode)
    assert answer == [lazy, 302, refused, refused, 304]


def limits(state: Path, script: str, profile: str = "V100x1") -> Any:
    prelude = """
L = d.CUlimit
def put(name, value):
    return d.cuCtxSetLimit(getattr(L, "CU_LIMIT_" + name), value)[0].name
def get(name):
    return good(d.cuCtxGetLimit(getattr(L, "CU_LIMIT_" + name)))
"""
    return drive(state, prelude + script, profile)


def test_a_larger_stack_takes_memory_for_every_thread_of_the_gpu(tmp_path: Path) -> None:
    script = """
steps = [get("STACK_SIZE"), used(), put("STACK_SIZE", 5 << 10), used(), put("STACK_SIZE", 512),
         used(), get("STACK_SIZE"), put("STACK_SIZE", 1 << 20), get("STACK_SIZE")]
answer = steps
"""
    four_more = 4096 * STACKS
    assert limits(tmp_path, script) == [
        1024,
        0,
        "CUDA_SUCCESS",
        four_more,
        "CUDA_SUCCESS",
        0,
        512,
        "CUDA_ERROR_OUT_OF_MEMORY",
        512,
    ]


def test_a_larger_heap_takes_the_difference(tmp_path: Path) -> None:
    script = """
answer = [put("MALLOC_HEAP_SIZE", 72 << 20), used() >> 20, put("PRINTF_FIFO_SIZE", 3 << 20),
          used() >> 20, put("MALLOC_HEAP_SIZE", 8 << 20), used() >> 20, put("SHMEM_SIZE", 1),
          put("DEV_RUNTIME_PENDING_LAUNCH_COUNT", 4096), get("DEV_RUNTIME_PENDING_LAUNCH_COUNT")]
"""
    good = "CUDA_SUCCESS"
    unknown = "CUDA_ERROR_UNSUPPORTED_LIMIT"
    assert limits(tmp_path, script) == [good, 64, good, 66, good, 2, unknown, good, 4096]
