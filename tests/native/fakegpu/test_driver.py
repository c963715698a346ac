"""The driver API, call by call, through NVIDIA's own Python client of it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fakes.gpu_client import drive
from kubeshare import fakegpu

pytestmark = pytest.mark.native

MIB = 1 << 20


def test_contexts_form_a_stack_and_a_destroyed_one_is_known_as_such(tmp_path: Path) -> None:
    script = """
        own = good(d.cuCtxCreate(None, 0, device))
        top = int(good(d.cuCtxGetCurrent())) == int(own)
        popped = int(good(d.cuCtxPopCurrent())) == int(own)
        below = int(good(d.cuCtxGetCurrent())) == int(context)
        good(d.cuCtxPushCurrent(own))
        good(d.cuMemAlloc(1 << 20))
        held = used()
        good(d.cuCtxDestroy(own))
        left = used()
        answer = [top, popped, below, held, left, d.cuCtxSetCurrent(own)[0].name]
    """
    answer = drive(tmp_path, script)
    assert answer == [True, True, True, 2 * MIB, 0, "CUDA_ERROR_CONTEXT_IS_DESTROYED"]


def test_empty_parameters_make_a_context_as_none_do(tmp_path: Path) -> None:
    script = """
        parameters = d.CUctxCreateParams()
        own = good(d.cuCtxCreate(parameters, 0, device))
        answer = [int(good(d.cuCtxGetCurrent())) == int(own)]
        parameters.numExecAffinityParams = 1
        answer.append(d.cuCtxCreate(parameters, 0, device)[0].name)
        parameters.execAffinityParams = [d.CUexecAffinityParam()]
        answer.append(d.cuCtxCreate(parameters, 0, device)[0].name)
    """
    answer = drive(tmp_path, script)
    assert answer == [True, "CUDA_ERROR_INVALID_VALUE", "CUDA_ERROR_NOT_SUPPORTED"]


def test_a_primary_context_ends_with_its_last_holder_and_takes_its_memory_along(
    tmp_path: Path,
) -> None:
    script = """
        good(d.cuMemAlloc(4 << 20))
        again = good(d.cuDevicePrimaryCtxRetain(device))
        good(d.cuDevicePrimaryCtxRelease(device))
        held, active = used(), good(d.cuDevicePrimaryCtxGetState(device))[1]
        good(d.cuDevicePrimaryCtxRelease(device))
        gone = d.cuMemGetInfo()[0].name
        ended = good(d.cuDevicePrimaryCtxGetState(device))[1]
        good(d.cuDevicePrimaryCtxRetain(device))
        answer = [int(again) == int(context), held, active, gone, ended, used()]
    """
    answer = drive(tmp_path, script)
    assert answer == [True, 4 * MIB, 1, "CUDA_ERROR_CONTEXT_IS_DESTROYED", 0, 0]


# Uses all that `parts` made.
USES = """
    def parts():
        return good(d.cuStreamCreate(0)), good(d.cuEventCreate(0))
    def uses(stream, event):
        calls = [d.cuStreamQuery(stream), d.cuEventRecord(event, stream), d.cuEventQuery(event),
                 d.cuStreamWaitEvent(0, event, 0), d.cuEventElapsedTime(event, event),
                 d.cuIpcGetEventHandle(event), d.cuEventDestroy(event), d.cuStreamDestroy(stream)]
        return sorted({call[0].name for call in calls})
"""


def test_streams_and_events_end_with_their_context(tmp_path: Path) -> None:
    script = (
        USES
        + """
    own = good(d.cuCtxCreate(None, 0, device))
    stream, event = parts()
    launch(40_000, stream)
    good(d.cuEventRecord(event, stream))
    good(d.cuCtxDestroy(own))
    good(d.cuCtxSetCurrent(context))
    answer = uses(stream, event)
    """
    )
    assert drive(tmp_path, script) == ["CUDA_ERROR_CONTEXT_IS_DESTROYED"]


@pytest.mark.parametrize("end", ["Release", "Reset"])
def test_those_of_a_primary_context_are_not_those_of_the_next_one(tmp_path: Path, end: str) -> None:
    script = (
        USES
        + f"""
    stream, event = parts()
    good(d.cuEventRecord(event, stream))
    good(d.cuDevicePrimaryCtx{end}(device))
    again = good(d.cuDevicePrimaryCtxRetain(device))
    good(d.cuCtxSetCurrent(again))
    answer = [int(again) == int(context), uses(stream, event)]
    """
    )
    assert drive(tmp_path, script) == [True, ["CUDA_ERROR_CONTEXT_IS_DESTROYED"]]


def test_fills_write_their_pattern_and_nothing_else(tmp_path: Path) -> None:
    script = """
        memory = good(d.cuMemAlloc(64))
        good(d.cuMemsetD8(memory, 0xff, 64))
        good(d.cuMemsetD32(memory, 0x01020304, 2))
        good(d.cuMemsetD16(int(memory) + 8, 0xabcd, 1))
        good(d.cuMemsetD2D8(int(memory) + 16, 8, 0, 4, 2))
        answer = [read(memory, 32), d.cuMemsetD32(int(memory) + 2, 0, 1)[0].name,
                  d.cuMemsetD8(memory, 0, 65)[0].name]
    """
    pattern = "0403020104030201" + "cdab" + "ff" * 6 + "00000000ffffffff" * 2
    assert drive(tmp_path, script) == [
        pattern,
        "CUDA_ERROR_INVALID_VALUE",
        "CUDA_ERROR_INVALID_VALUE",
    ]


def test_zeroing_much_memory_costs_no_memory_of_the_machine(tmp_path: Path) -> None:
    script = """
        import resource
        size = 15 << 30
        memory = good(d.cuMemAlloc(size))
        good(d.cuMemsetD8(int(memory) + size - 10, 7, 10))
        good(d.cuMemsetD8(int(memory) + 5, 0, size - 10))
        answer = [read(int(memory) + size - 10, 10),
                  resource.getrusage(resource.RUSAGE_SELF).ru_maxrss]
    """
    tail, resident_kib = drive(tmp_path, script)
    assert tail == "00" * 5 + "07" * 5
    assert resident_kib < 1 << 20


def test_copies_move_rectangles(tmp_path: Path) -> None:
    script = """
        memory, pitch = good(d.cuMemAllocPitch(6, 2, 4))
        source = ctypes.create_string_buffer(b"abcdefGHIJKL", 12)
        form = d.CUDA_MEMCPY2D()
        form.srcMemoryType = d.CUmemorytype.CU_MEMORYTYPE_HOST
        form.srcHost = ctypes.addressof(source)
        form.srcPitch = 6
        form.dstMemoryType = d.CUmemorytype.CU_MEMORYTYPE_DEVICE
        form.dstDevice = memory
        form.dstPitch = pitch
        form.WidthInBytes, form.Height = 4, 2
        good(d.cuMemcpy2D(form))
        other = good(d.cuMemAlloc(16))
        good(d.cuMemcpyDtoD(other, int(memory) + pitch, 4))
        answer = [pitch, read(memory, 4), read(other, 4), used()]
    """
    assert drive(tmp_path, script) == [512, b"abcd".hex(), b"GHIJ".hex(), 1024 + 512]


def test_the_programs_own_memory_is_not_the_gpus(tmp_path: Path) -> None:
    script = """
        kind = d.CUpointer_attribute.CU_POINTER_ATTRIBUTE_MEMORY_TYPE
        pinned = good(d.cuMemHostAlloc(1 << 20, 0))
        own = ctypes.create_string_buffer(8192)
        good(d.cuMemHostRegister(ctypes.addressof(own), 8192, 0))
        managed = good(d.cuMemAllocManaged(1 << 20, 1))
        kinds = [good(d.cuPointerGetAttribute(kind, p))
                 for p in (pinned, ctypes.addressof(own), managed)]
        charged = used()
        good(d.cuMemFreeHost(pinned))
        good(d.cuMemHostUnregister(ctypes.addressof(own)))
        twice = d.cuMemHostUnregister(ctypes.addressof(own))[0].name
        good(d.cuMemFree(managed))
        answer = [kinds, charged, twice, used(), d.cuMemFree(12345)[0].name]
    """
    answer = drive(tmp_path, script)
    expected = "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED"
    assert answer == [[1, 1, 2], 2 * MIB, expected, 0, "CUDA_ERROR_INVALID_VALUE"]


LAUNCHES = """
    module = good(d.cuModuleLoadData(b"any image"))
    spin = good(d.cuModuleGetFunction(module, b"kubeshare_spin_us"))
    other = good(d.cuModuleGetFunction(module, b"unknown"))
    library = good(d.cuLibraryLoadData(b"any image", [], [], 0, [], [], 0))
    kernel = good(d.cuKernelGetFunction(good(d.cuLibraryGetKernel(library, b"kubeshare_spin_us"))))
    arguments = ((1000,), (ctypes.c_uint32,))
    config = d.CUlaunchConfig()
    config.gridDimX = config.gridDimY = config.gridDimZ = 1
    config.blockDimX = config.blockDimY = config.blockDimZ = 1
    good(d.cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, 0, arguments, 0))
    good(d.cuLaunchKernelEx(config, kernel, arguments, 0))
    good(d.cuLaunchCooperativeKernel(spin, 1, 1, 1, 1, 1, 1, 0, 0, arguments))
    good(d.cuLaunchKernel(other, 2, 2, 2, 32, 1, 1, 0, 0, 0, 0))
    many = d.cuLaunchCooperativeKernel(spin, 161, 1, 1, 1024, 1, 1, 0, 0, arguments)[0].name
    assert many == "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE", many
    wrong = d.cuLaunchKernel(spin, 1, 1, 1, 2048, 1, 1, 0, 0, arguments, 0)[0].name
    good(d.cuStreamSynchronize(0))
    answer = wrong
"""


@pytest.mark.parametrize("per_thread", ["0", "1"])
def test_every_way_to_launch_takes_its_time_on_the_engine(tmp_path: Path, per_thread: str) -> None:
    variable = {"CUDA_PYTHON_CUDA_PER_THREAD_DEFAULT_STREAM": per_thread}
    assert drive(tmp_path, LAUNCHES, stderr=None, **variable) == "CUDA_ERROR_INVALID_VALUE"
    assert fakegpu.stat(tmp_path).gpus[0].busy_ns == 3_000_000 + 10_000


def test_images_may_be_linked(tmp_path: Path) -> None:
    script = """
        state = good(d.cuLinkCreate(0, [], []))
        kind = d.CUjitInputType
        steps = [d.cuLinkComplete(state)[0].name,
                 d.cuLinkAddData(state, kind.CU_JIT_INPUT_PTX, b"any", 3, b"a", 0, [], [])[0].name,
                 d.cuLinkAddFile(state, kind.CU_JIT_INPUT_PTX, b"/none", 0, [], [])[0].name]
        image, size = good(d.cuLinkComplete(state))
        linked = good(d.cuModuleLoadData(image))
        good(d.cuLinkDestroy(state))
        answer = [steps, good(d.cuFuncGetName(good(d.cuModuleGetFunction(linked, b"f")))).decode()]
    """
    steps = ["CUDA_ERROR_INVALID_VALUE", "CUDA_SUCCESS", "CUDA_ERROR_FILE_NOT_FOUND"]
    assert drive(tmp_path, script) == [steps, "f"]


def test_arguments_may_come_in_a_buffer(tmp_path: Path) -> None:
    script = """
        cuda = ctypes.CDLL("libcuda.so.1")
        spin = good(d.cuModuleGetFunction(good(d.cuModuleLoadData(b"x")), b"kubeshare_spin_us"))
        value, size = ctypes.c_uint32(700), ctypes.c_size_t(4)
        extra = (ctypes.c_void_p * 5)(1, ctypes.addressof(value), 2, ctypes.addressof(size), 0)
        answer = cuda.cuLaunchKernel(ctypes.c_void_p(int(spin)), 1, 1, 1, 1, 1, 1, 0, None, None,
                                     extra)
        good(d.cuCtxSynchronize())
    """
    assert drive(tmp_path, script) == 0
    assert fakegpu.stat(tmp_path).gpus[0].busy_ns == 700_000


def test_a_device_is_described_and_found_again(tmp_path: Path) -> None:
    script = """
        last = good(d.cuDeviceGet(3))
        bus = good(d.cuDeviceGetPCIBusId(16, last)).split(b"\\0")[0]
        attributes = d.CUdevice_attribute
        answer = [
            good(d.cuDeviceGetName(64, last)).split(b"\\0")[0].decode(),
            good(d.cuDeviceTotalMem(last)),
            int(good(d.cuDeviceGetByPCIBusId(bus))) == int(last),
            good(d.cuDeviceGetUuid(last)).bytes.hex(),
            good(d.cuDeviceGetAttribute(attributes.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, last)),
            good(d.cuDeviceGetAttribute(
                attributes.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, last)),
            good(d.cuDeviceCanAccessPeer(device, last)),
            d.cuDeviceGet(4)[0].name,
        ]
    """
    uuid = fakegpu.gpus("V100x4")[3].uuid.removeprefix("GPU-").replace("-", "")
    answer = drive(tmp_path, script, "V100x4")
    memory = 16 << 30
    assert answer[:4] == ["Tesla V100-SXM2-16GB", memory, True, uuid]
    assert answer[4:] == [80, 7, 1, "CUDA_ERROR_INVALID_DEVICE"]


def test_results_have_names_and_sentences(tmp_path: Path) -> None:
    script = """
        result = d.CUresult.CUDA_ERROR_OUT_OF_MEMORY
        asked = (d.cuGetErrorName, d.cuGetErrorString)
        answer = [good(ask(result)).decode() for ask in asked]
    """
    assert drive(tmp_path, script) == ["CUDA_ERROR_OUT_OF_MEMORY", "out of memory"]


def test_nothing_can_be_asked_before_initialisation() -> None:
    program = "from cuda.bindings import driver as d; print(d.cuDeviceGetCount()[0].name)"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, **fakegpu.environment("V100x1")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "CUDA_ERROR_NOT_INITIALIZED"


def test_where_device_nodes_count_a_machine_without_them_has_no_gpu(tmp_path: Path) -> None:
    program = "from cuda.bindings import driver as d; print(d.cuInit(0)[0].name)"
    variables = {**fakegpu.environment("V100x1", tmp_path), "FAKEGPU_DEVICE_NODES": "1"}
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "CUDA_ERROR_NO_DEVICE"


@pytest.mark.parametrize(("debug", "said"), [("1", 1), ("0", 0)])
def test_what_is_not_modelled_says_so_once_where_asked(
    tmp_path: Path, debug: str, said: int
) -> None:
    script = """
        cuda = ctypes.CDLL("libcuda.so.1")
        results = [cuda.cuMulticastCreate(), cuda.cuMulticastCreate(), cuda.cuProfilerStart()]
        answer = results
    """
    errors = tmp_path / "errors"
    with errors.open("w") as into:
        results = drive(tmp_path, script, stderr=into, FAKEGPU_DEBUG=debug)
    assert results == [801, 801, 801]
    lines = errors.read_text().splitlines()
    expected = ["cuMulticastCreate", "cuProfilerStart"]
    assert lines == [f"fakegpu: {name} is not modelled" for name in expected] * said


OLD_LAUNCHES = """
    old = ctypes.CDLL("libcuda.so.1")
    function = ctypes.c_void_p(int(spin))
    answer = [old.cuFuncSetBlockShape(function, 32, 1, 1), old.cuParamSeti(function, 0, 300),
              old.cuParamSetSize(function, 4), old.cuLaunch(function),
              old.cuLaunchGrid(function, 2, 2), old.cuLaunchGridAsync(function, 2, 2, None)]
    good(d.cuCtxSynchronize())
"""


def test_launches_of_before_cuda_4_work(tmp_path: Path) -> None:
    assert drive(tmp_path, OLD_LAUNCHES) == [0] * 6
    assert fakegpu.stat(tmp_path).gpus[0].busy_ns == 900_000


def test_occupancy_follows_from_threads_and_shared_memory(tmp_path: Path) -> None:
    script = """
    blocks = d.cuOccupancyMaxActiveBlocksPerMultiprocessor
    answer = [good(blocks(spin, threads, shared)) for threads, shared in
              ((1024, 0), (256, 0), (16, 0), (256, 48 << 10), (2048, 0))]
    launch = d.CUlaunchConfig()
    launch.blockDimX, launch.blockDimY, launch.blockDimZ = 256, 1, 1
    answer.append(good(d.cuOccupancyMaxActiveClusters(spin, launch)))
    """
    assert drive(tmp_path, script) == [2, 8, 32, 2, 0, 8 * 80]


def test_a_kernel_takes_attributes_of_the_devices_that_there_are(tmp_path: Path) -> None:
    script = """
    library = good(d.cuLibraryLoadData(b"// any", [], [], 0, [], [], 0))
    kernel = good(d.cuLibraryGetKernel(library, b"kubeshare_spin_us"))
    shared = d.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    answer = [d.cuKernelSetAttribute(shared, 1024, kernel, number)[0].name
              for number in (device, d.CUdevice(7))]
    """
    assert drive(tmp_path, script) == ["CUDA_SUCCESS", "CUDA_ERROR_INVALID_DEVICE"]
