"""Things of the program that graphs keep alive until the last one goes."""

from pathlib import Path
from typing import Any

import pytest

from fakes.gpu_client import drive

pytestmark = pytest.mark.native

OBJECTS = """
import threading
over = threading.Event()
calls = []

@ctypes.CFUNCTYPE(None, ctypes.c_void_p)
def destroy(data):
    calls.append([data, d.cuCtxSynchronize()[0].name])
    over.set()

def create(count):
    address = ctypes.cast(destroy, ctypes.c_void_p).value
    return good(d.cuUserObjectCreate(77, d.CUhostFn(_ptr=ctypes.addressof(
        ctypes.c_void_p(address))), count, 1))

MOVE = d.CUuserObjectRetain_flags.CU_GRAPH_USER_OBJECT_MOVE
"""


def objects(state: Path, script: str) -> Any:
    return drive(state, OBJECTS + script)


def test_the_last_reference_calls_the_programs_function_once(tmp_path: Path) -> None:
    script = """
thing = create(2)
good(d.cuUserObjectRetain(thing, 1))
good(d.cuUserObjectRelease(thing, 2))
before = len(calls)
good(d.cuUserObjectRelease(thing, 1))
answer = [before, over.wait(120), calls]
"""
    not_permitted = "CUDA_ERROR_NOT_PERMITTED"
    assert objects(tmp_path, script) == [0, True, [[77, not_permitted]]]


def test_graphs_and_what_is_made_of_them_hold_references(tmp_path: Path) -> None:
    script = """
graph = good(d.cuGraphCreate(0))
thing = create(1)
good(d.cuGraphRetainUserObject(graph, thing, 1, MOVE))
executable = good(d.cuGraphInstantiate(graph, 0))
good(d.cuGraphDestroy(graph))
held = over.wait(0.05)
good(d.cuGraphExecDestroy(executable))
answer = [held, over.wait(120), len(calls)]
"""
    assert objects(tmp_path, script) == [False, True, 1]


def test_a_graph_gives_back_what_it_has_and_no_more(tmp_path: Path) -> None:
    script = """
graph = good(d.cuGraphCreate(0))
thing = create(1)
good(d.cuGraphRetainUserObject(graph, thing, 2, 0))
good(d.cuUserObjectRelease(thing, 1))
answer = [d.cuGraphReleaseUserObject(graph, thing, 1)[0].name, over.is_set(),
          d.cuGraphReleaseUserObject(graph, thing, 2)[0].name, over.wait(120)]
"""
    assert objects(tmp_path, script) == ["CUDA_SUCCESS", False, "CUDA_ERROR_INVALID_VALUE", True]
