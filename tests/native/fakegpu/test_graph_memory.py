"""Memory that graphs allocate and free: when it is reserved, and when it goes back."""

from pathlib import Path
from typing import Any

import pytest

from fakes.gpu_client import drive

pytestmark = pytest.mark.native

MIB = 1 << 20
INVALID = "CUDA_ERROR_INVALID_VALUE"
NO_MEMORY = "CUDA_ERROR_OUT_OF_MEMORY"

GRAPHS = """
MIB = 1 << 20
M = d.CUgraphMem_attribute
stream = good(d.cuStreamCreate(1))
flags = d.CUgraphInstantiate_flags

def attribute(name):
    return int(good(d.cuDeviceGetGraphMemAttribute(
        device, getattr(M, "CU_GRAPH_MEM_ATTR_" + name))))

def figures():
    return [attribute("RESERVED_MEM_CURRENT") // MIB, attribute("USED_MEM_CURRENT") // MIB,
            used() // MIB]

def allocation(size):
    form = d.CUDA_MEM_ALLOC_NODE_PARAMS()
    form.poolProps.allocType = d.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    form.poolProps.location.type = d.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    form.bytesize = size
    return form

def node_that_allocates(graph, size, after=()):
    form = allocation(size)
    node = good(d.cuGraphAddMemAllocNode(graph, list(after) or None, len(after), form))
    return node, good(d.cuGraphMemAllocNodeGetParams(node)).dptr

def capture(body, mode="GLOBAL"):
    good(d.cuStreamBeginCapture(
        stream, getattr(d.CUstreamCaptureMode, "CU_STREAM_CAPTURE_MODE_" + mode)))
    body()
    return good(d.cuStreamEndCapture(stream))

def instantiate(graph, flag=0):
    return good(d.cuGraphInstantiate(graph, flag))
"""


def graphs(state: Path, script: str) -> Any:
    return drive(state, GRAPHS + "\n" + script)


def test_memory_comes_with_the_first_launch_and_stays_until_it_is_trimmed(tmp_path: Path) -> None:
    script = """
graph = good(d.cuGraphCreate(0))
node, pointer = node_that_allocates(graph, 5 * MIB)
good(d.cuGraphAddMemFreeNode(graph, [node], 1, pointer))
steps = [figures()]
executable = instantiate(graph)
steps.append(figures())
for _ in range(2):
    good(d.cuGraphLaunch(executable, stream))
    steps.append(figures())
good(d.cuGraphExecDestroy(executable))
good(d.cuGraphDestroy(graph))
steps.append(figures())
good(d.cuDeviceGraphMemTrim(device))
steps.append(figures())
answer = [steps, attribute("USED_MEM_HIGH") // MIB]
"""
    steps, high = graphs(tmp_path, script)
    assert steps == [[0, 0, 0], [0, 0, 0], [6, 0, 6], [6, 0, 6], [6, 0, 6], [0, 0, 0]]
    assert high == 6


def test_what_is_not_needed_at_the_same_time_is_the_same_memory(tmp_path: Path) -> None:
    script = """
graph = good(d.cuGraphCreate(0))
node, first = node_that_allocates(graph, 8 * MIB)
node = good(d.cuGraphAddMemFreeNode(graph, [node], 1, first))
node, second = node_that_allocates(graph, 6 * MIB, [node])
good(d.cuGraphAddMemFreeNode(graph, [node], 1, second))
good(d.cuGraphLaunch(instantiate(graph), stream))
answer = [figures(), int(first) != int(second)]
"""
    assert graphs(tmp_path, script) == [[8, 0, 8], True]


def test_an_upload_reserves_what_the_launch_will_need(tmp_path: Path) -> None:
    script = """
graph = good(d.cuGraphCreate(0))
node_that_allocates(graph, 4 * MIB)
executable = instantiate(graph)
good(d.cuGraphUpload(executable, stream))
answer = [figures(), d.cuDeviceGraphMemTrim(device)[0].name, figures()]
"""
    assert graphs(tmp_path, script) == [[4, 0, 4], "CUDA_SUCCESS", [0, 0, 0]]


def test_a_captured_allocation_is_a_node_and_its_memory_the_graphs(tmp_path: Path) -> None:
    script = """
seen = {}
def body():
    seen["pointer"] = good(d.cuMemAllocAsync(3 * MIB, stream))
    good(d.cuMemsetD8Async(seen["pointer"], 7, 4, stream))
    good(d.cuMemFreeAsync(seen["pointer"], stream))
graph = capture(body)
count = good(d.cuGraphGetNodes(graph))[1]
nodes = good(d.cuGraphGetNodes(graph, count))[0]
kinds = [good(d.cuGraphNodeGetType(node)).name.removeprefix("CU_GRAPH_NODE_TYPE_")
         for node in nodes]
before = figures()
good(d.cuGraphLaunch(instantiate(graph), stream))
pool = good(d.cuDeviceGetDefaultMemPool(device))
reserved = d.CUmemPool_attribute.CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT
answer = [kinds, before, figures(), int(good(d.cuMemPoolGetAttribute(pool, reserved))),
          read(seen["pointer"], 4)]
"""
    kinds = ["MEM_ALLOC", "MEMSET", "MEM_FREE"]
    assert graphs(tmp_path, script) == [kinds, [0, 0, 0], [4, 0, 4], 0, "07" * 4]


def test_what_a_graph_leaves_allocated_is_freed_outside_or_by_the_next_launch(
    tmp_path: Path,
) -> None:
    script = """
graph = good(d.cuGraphCreate(0))
node, pointer = node_that_allocates(graph, 4 * MIB)
executable = instantiate(graph)
good(d.cuGraphLaunch(executable, stream))
twice = d.cuGraphLaunch(executable, stream)[0].name
held = figures()
good(d.cuMemFreeAsync(pointer, stream))
freed = figures()
good(d.cuGraphLaunch(executable, stream))
good(d.cuMemFree(pointer))
again = figures()
own = instantiate(graph, flags.CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH)
for _ in range(2):
    good(d.cuGraphLaunch(own, stream))
answer = [twice, held, freed, again, figures()]
"""
    expected = [INVALID, [4, 4, 4], [4, 0, 4], [4, 0, 4], [4, 4, 4]]
    assert graphs(tmp_path, script) == expected


def test_memory_outlives_its_graph_until_it_is_freed(tmp_path: Path) -> None:
    script = """
graph = good(d.cuGraphCreate(0))
node, pointer = node_that_allocates(graph, 4 * MIB)
executable = instantiate(graph)
good(d.cuGraphLaunch(executable, stream))
good(d.cuGraphDestroy(graph))
good(d.cuGraphExecDestroy(executable))
good(d.cuDeviceGraphMemTrim(device))
held = figures()
good(d.cuMemFree(pointer))
stale = d.cuMemFree(pointer)[0].name
good(d.cuDeviceGraphMemTrim(device))
answer = [held, stale, figures()]
"""
    assert graphs(tmp_path, script) == [[4, 4, 4], INVALID, [0, 0, 0]]


def test_a_launch_that_does_not_fit_is_out_of_memory(tmp_path: Path) -> None:
    script = """
graph = good(d.cuGraphCreate(0))
node_that_allocates(graph, 4 * MIB)
executable = instantiate(graph)
filler = good(d.cuMemAlloc(good(d.cuMemGetInfo())[0] - 2 * MIB))
launches = [d.cuGraphLaunch(executable, stream)[0].name]
good(d.cuMemFree(filler))
launches.append(d.cuGraphLaunch(executable, stream)[0].name)
answer = launches
"""
    assert graphs(tmp_path, script) == [NO_MEMORY, "CUDA_SUCCESS"]


def test_only_a_graphs_memory_is_freed_in_a_capture_and_nothing_is_allocated_past_it(
    tmp_path: Path,
) -> None:
    script = """
plain = good(d.cuMemAllocAsync(MIB, stream))
refused = []
def body():
    refused.append(d.cuMemFreeAsync(plain, stream)[0].name)
capture(body)
good(d.cuStreamBeginCapture(
    stream, d.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL))
refused.append(d.cuMemAlloc(MIB)[0].name)
refused.append(d.cuStreamEndCapture(stream)[0].name)
answer = refused
"""
    expected = [
        INVALID,
        "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
        "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
    ]
    assert graphs(tmp_path, script) == expected


def test_a_free_behind_a_function_of_the_program_waits_for_it(tmp_path: Path) -> None:
    script = """
import threading
A = d.CUmemPool_attribute
pool = good(d.cuDeviceGetDefaultMemPool(device))
flag = good(d.cuMemAlloc(4))
good(d.cuMemsetD8(flag, 0, 4))
memory = good(d.cuMemAllocAsync(MIB, stream))
good(d.cuStreamWaitValue32(stream, flag, 1, 1))
good(d.cuMemsetD8Async(memory, 7, MIB, stream))
good(d.cuMemFreeAsync(memory, stream))
in_use = d.CUmemPool_attribute.CU_MEMPOOL_ATTR_USED_MEM_CURRENT
before = int(good(d.cuMemPoolGetAttribute(pool, in_use)))
good(d.cuMemPoolTrimTo(pool, 0))
held = used() // MIB
good(d.cuMemsetD8(flag, 1, 1))
good(d.cuStreamSynchronize(stream))
answer = [before, held, int(good(d.cuMemPoolGetAttribute(pool, in_use))), used() // MIB]
"""
    assert graphs(tmp_path, script) == [MIB, 32, 0, 0]
