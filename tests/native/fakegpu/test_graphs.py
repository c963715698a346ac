"""Graphs of the fake driver: captured, built node by node, launched, changed."""

from pathlib import Path

import pytest

from fakes.gpu_client import drive
from kubeshare import fakegpu

pytestmark = pytest.mark.native


def busy_ns(state: Path) -> int:
    return fakegpu.stat(state).gpus[0].busy_ns


CAPTURE = """
    modes = d.CUstreamCaptureMode
    stream = good(d.cuStreamCreate(1))
    good(d.cuStreamBeginCapture(stream, modes.CU_STREAM_CAPTURE_MODE_GLOBAL))
    launch(1000, stream)
    launch(500, stream)
    during = good(d.cuStreamIsCapturing(stream)).name
    graph = good(d.cuStreamEndCapture(stream))
"""


def test_what_is_captured_runs_when_the_graph_is_launched_and_not_before(tmp_path: Path) -> None:
    script = (
        CAPTURE
        + """
    executable = good(d.cuGraphInstantiate(graph, 0))
    good(d.cuGraphDestroy(graph))
    idle = d.cuStreamQuery(stream)[0].name
    for _ in range(3):
        good(d.cuGraphLaunch(executable, stream))
    good(d.cuGraphExecDestroy(executable))
    good(d.cuStreamSynchronize(stream))
    answer = [during, good(d.cuStreamIsCapturing(stream)).name, idle]
    """
    )
    assert drive(tmp_path, script) == [
        "CU_STREAM_CAPTURE_STATUS_ACTIVE",
        "CU_STREAM_CAPTURE_STATUS_NONE",
        "CUDA_SUCCESS",
    ]
    assert busy_ns(tmp_path) == 4_500_000


def test_a_launch_of_a_graph_takes_one_place_of_the_queue(tmp_path: Path) -> None:
    script = """
    stream = good(d.cuStreamCreate(1))
    good(d.cuStreamBeginCapture(stream, d.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL))
    for _ in range(2000):
        launch(1_000_000, stream)
    executable = good(d.cuGraphInstantiate(good(d.cuStreamEndCapture(stream)), 0))
    good(d.cuGraphLaunch(executable, stream))
    answer = d.cuStreamQuery(stream)[0].name
    """
    assert drive(tmp_path, script) == "CUDA_ERROR_NOT_READY"


def test_a_graph_captured_in_a_capture_becomes_part_of_it(tmp_path: Path) -> None:
    script = (
        CAPTURE
        + """
    inner = good(d.cuGraphInstantiate(graph, 0))
    good(d.cuStreamBeginCapture(stream, modes.CU_STREAM_CAPTURE_MODE_GLOBAL))
    good(d.cuGraphLaunch(inner, stream))
    launch(100, stream)
    outer = good(d.cuStreamEndCapture(stream))
    nodes, count = good(d.cuGraphGetNodes(outer, 2))
    executable = good(d.cuGraphInstantiate(outer, 0))
    good(d.cuGraphLaunch(executable, stream))
    good(d.cuStreamSynchronize(stream))
    answer = [count, [good(d.cuGraphNodeGetType(node)).name for node in nodes]]
    """
    )
    kinds = ["CU_GRAPH_NODE_TYPE_GRAPH", "CU_GRAPH_NODE_TYPE_KERNEL"]
    assert drive(tmp_path, script) == [2, kinds]
    assert busy_ns(tmp_path) == 1_600_000


BUILD = """
    order = []
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
    note = function(lambda data: order.append(data))

    def kernel(microseconds):
        form = d.CUDA_KERNEL_NODE_PARAMS()
        form.func = spin
        form.gridDimX = form.gridDimY = form.gridDimZ = 1
        form.blockDimX = form.blockDimY = form.blockDimZ = 1
        form.kernelParams = ((microseconds,), (ctypes.c_uint32,))
        return form

    def host(number):
        form = d.CUDA_HOST_NODE_PARAMS()
        form.fn = d.CUhostFn(ctypes.cast(note, ctypes.c_void_p).value)
        form.userData = number
        return form

    stream = good(d.cuStreamCreate(1))
    graph = good(d.cuGraphCreate(0))
"""


def test_nodes_run_after_those_that_they_follow(tmp_path: Path) -> None:
    script = (
        BUILD
        + """
    last = good(d.cuGraphAddHostNode(graph, [], 0, host(3)))
    middle = good(d.cuGraphAddKernelNode(graph, [], 0, kernel(700)))
    first = good(d.cuGraphAddHostNode(graph, [], 0, host(1)))
    good(d.cuGraphAddDependencies(graph, [first, middle], [middle, last], None, 2))
    between = good(d.cuGraphAddHostNode(graph, [first], 1, host(2)))
    good(d.cuGraphAddDependencies(graph, [between], [last], None, 1))
    executable = good(d.cuGraphInstantiate(graph, 0))
    good(d.cuGraphLaunch(executable, stream))
    good(d.cuStreamSynchronize(stream))
    good(d.cuGraphAddDependencies(graph, [last], [first], None, 1))
    circle = d.cuGraphInstantiate(graph, 0)[0].name
    _, _, _, edges = good(d.cuGraphGetEdges(graph, 0))
    answer = [order, circle, edges, good(d.cuGraphGetRootNodes(graph, 4))[1]]
    """
    )
    assert drive(tmp_path, script) == [[1, 2, 3], "CUDA_ERROR_INVALID_VALUE", 5, 0]
    assert busy_ns(tmp_path) == 700_000


def test_copies_and_fills_are_done_when_the_graph_runs(tmp_path: Path) -> None:
    script = (
        BUILD
        + """
    memory = int(good(d.cuMemAlloc(64)))
    good(d.cuMemsetD8(memory, 0, 64))
    fill = d.CUDA_MEMSET_NODE_PARAMS()
    fill.dst, fill.elementSize, fill.value, fill.width, fill.height = memory, 1, 0x5a, 8, 1
    filled = good(d.cuGraphAddMemsetNode(graph, [], 0, fill, context))
    copy = d.CUDA_MEMCPY3D()
    copy.srcMemoryType = copy.dstMemoryType = d.CUmemorytype.CU_MEMORYTYPE_DEVICE
    copy.srcDevice, copy.dstDevice = memory, memory + 32
    copy.WidthInBytes, copy.Height, copy.Depth = 4, 1, 1
    good(d.cuGraphAddMemcpyNode(graph, [filled], 1, copy, context))
    executable = good(d.cuGraphInstantiate(graph, 0))
    before = read(memory, 8)
    good(d.cuGraphLaunch(executable, stream))
    good(d.cuStreamSynchronize(stream))
    answer = [before, read(memory, 8), read(memory + 32, 8)]
    """
    )
    assert drive(tmp_path, script) == ["00" * 8, "5a" * 8, "5a" * 4 + "00" * 4]


def test_an_executable_graph_changes_where_it_is_told_to_and_as_a_whole(tmp_path: Path) -> None:
    script = (
        BUILD
        + """
    node = good(d.cuGraphAddKernelNode(graph, [], 0, kernel(100)))
    executable = good(d.cuGraphInstantiate(graph, 0))
    good(d.cuGraphExecKernelNodeSetParams(executable, node, kernel(2000)))
    good(d.cuGraphLaunch(executable, stream))
    good(d.cuGraphKernelNodeSetParams(node, kernel(300)))
    updated = good(d.cuGraphExecUpdate(executable, graph)).result.name
    good(d.cuGraphLaunch(executable, stream))
    good(d.cuGraphNodeSetEnabled(executable, node, 0))
    good(d.cuGraphLaunch(executable, stream))
    good(d.cuGraphAddEmptyNode(graph, [node], 1))
    failed = d.cuGraphExecUpdate(executable, graph)[0].name
    clone = good(d.cuGraphClone(graph))
    twin = good(d.cuGraphNodeFindInClone(node, clone))
    good(d.cuStreamSynchronize(stream))
    answer = [updated, failed, good(d.cuGraphNodeGetDependentNodes(twin, 1))[2]]
    """
    )
    expected = ["CU_GRAPH_EXEC_UPDATE_SUCCESS", "CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE", 1]
    assert drive(tmp_path, script) == expected
    assert busy_ns(tmp_path) == 2_300_000


def test_a_node_tells_what_it_was_made_of(tmp_path: Path) -> None:
    script = (
        BUILD
        + """
    node = good(d.cuGraphAddKernelNode(graph, [], 0, kernel(123)))
    form = good(d.cuGraphKernelNodeGetParams(node))
    pointers = ctypes.cast(int(form.kernelParams), ctypes.POINTER(ctypes.c_void_p))
    argument = ctypes.c_uint32.from_address(pointers[0]).value
    whole = good(d.cuGraphNodeGetParams(node))
    answer = [int(form.func) == int(spin), form.blockDimX, argument, whole.kernel.gridDimX]
    """
    )
    assert drive(tmp_path, script) == [True, 1, 123, 1]


MEMORY = """
    MIB = 1 << 20
    attributes = d.CUgraphMem_attribute

    def account():
        return [int(good(d.cuDeviceGetGraphMemAttribute(device, attributes(place)))) // MIB
                for place in range(4)]

    def captured(*steps):
        good(d.cuStreamBeginCapture(stream, d.CUstreamCaptureMode(0)))
        for step in steps:
            step()
        return good(d.cuGraphInstantiate(good(d.cuStreamEndCapture(stream)), 0))

    def allocate(size):
        pointers.append(good(d.cuMemAllocAsync(size, stream)))

    def free(place):
        good(d.cuMemFreeAsync(pointers[place], stream))

    pointers = []
    stream = good(d.cuStreamCreate(1))
"""


def test_memory_comes_to_a_graph_when_it_is_launched(tmp_path: Path) -> None:
    script = (
        MEMORY
        + """
    graph = captured(lambda: allocate(4 * MIB), lambda: allocate(2 * MIB), lambda: free(0))
    made = [used(), account()]
    good(d.cuGraphLaunch(graph, stream))
    ran = [used() // MIB, account(), d.cuGraphLaunch(graph, stream)[0].name]
    good(d.cuMemsetD8(pointers[1], 7, 2 * MIB))
    good(d.cuMemFreeAsync(pointers[1], stream))
    freed = account()
    good(d.cuDeviceGraphMemTrim(device))
    answer = [made, ran, freed, account(), used()]
    """
    )
    made, ran, freed, trimmed, left = drive(tmp_path, script)
    assert made == [0, [0, 0, 0, 0]]
    assert ran == [6, [2, 6, 6, 6], "CUDA_ERROR_INVALID_VALUE"]
    assert freed == [0, 6, 6, 6]
    assert trimmed == [0, 6, 0, 6]
    assert left == 0


def test_a_graph_that_needs_more_than_there_is_fails_and_leaves_nothing(tmp_path: Path) -> None:
    script = (
        MEMORY
        + """
    graph = captured(lambda: allocate(9 << 30), lambda: allocate(9 << 30))
    failed = d.cuGraphLaunch(graph, stream)[0].name
    after = account()
    good(d.cuDeviceGraphMemTrim(device))
    answer = [failed, after[0], used()]
    """
    )
    assert drive(tmp_path, script) == ["CUDA_ERROR_OUT_OF_MEMORY", 0, 0]


def test_a_graph_frees_what_it_left_when_it_was_told_to(tmp_path: Path) -> None:
    script = (
        MEMORY
        + """
    good(d.cuStreamBeginCapture(stream, d.CUstreamCaptureMode(0)))
    allocate(2 * MIB)
    graph = good(d.cuStreamEndCapture(stream))
    again = d.CUgraphInstantiate_flags.CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH
    executable = good(d.cuGraphInstantiate(graph, again))
    for _ in range(3):
        good(d.cuGraphLaunch(executable, stream))
    nodes, _ = good(d.cuGraphGetNodes(graph, 1))
    kind = good(d.cuGraphNodeGetType(nodes[0])).name
    form = good(d.cuGraphMemAllocNodeGetParams(nodes[0]))
    answer = [account(), kind, int(form.dptr) == int(pointers[0])]
    """
    )
    assert drive(tmp_path, script) == [[2, 2, 2, 2], "CU_GRAPH_NODE_TYPE_MEM_ALLOC", True]


def test_nodes_that_allocate_and_free_can_be_added_by_hand(tmp_path: Path) -> None:
    script = (
        BUILD
        + """
    form = d.CUDA_MEM_ALLOC_NODE_PARAMS()
    form.poolProps.allocType = d.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    form.poolProps.location.type = d.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    form.poolProps.location.id = 0
    form.bytesize = 1 << 20
    made = good(d.cuGraphAddMemAllocNode(graph, [], 0, form))
    freed = good(d.cuGraphAddMemFreeNode(graph, [made], 1, form.dptr))
    executable = good(d.cuGraphInstantiate(graph, 0))
    for _ in range(2):
        good(d.cuGraphLaunch(executable, stream))
    held = used()
    good(d.cuGraphExecDestroy(executable))
    good(d.cuGraphDestroy(graph))
    good(d.cuDeviceGraphMemTrim(device))
    answer = [held, used(), d.cuMemFree(form.dptr)[0].name]
    """
    )
    assert drive(tmp_path, script) == [2 << 20, 0, "CUDA_ERROR_INVALID_VALUE"]
