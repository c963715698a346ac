"""Memory that comes from elsewhere: other processes by handle, other interfaces by descriptor."""

from pathlib import Path
from typing import Any

import pytest

from fakes.gpu_client import drive

pytestmark = pytest.mark.native

MIB = 1 << 20
INVALID = "CUDA_ERROR_INVALID_VALUE"

PEER = """
MIB = 1 << 20
LAZY = 1

def handle_of(text):
    made = d.CUipcMemHandle()
    ctypes.memmove(made.getPtr(), bytes.fromhex(text), 64)
    return made

def text_of(handle):
    return ctypes.string_at(handle.getPtr(), 64).hex()
"""

OPENER = """
handle = handle_of(os.environ["HANDLE"])
memory = good(d.cuIpcOpenMemHandle(handle, LAZY))
again = good(d.cuIpcOpenMemHandle(handle, LAZY))
seen = read(memory, 4)
good(d.cuMemsetD8(memory, 9, 4))
wrong = [d.cuMemFree(memory)[0].name, d.cuIpcOpenMemHandle(handle, 0)[0].name,
         d.cuIpcGetMemHandle(memory)[0].name]
good(d.cuIpcCloseMemHandle(memory))
still = read(memory, 4)
good(d.cuIpcCloseMemHandle(memory))
closed = d.cuIpcCloseMemHandle(memory)[0].name
answer = [seen, int(memory) == int(again), wrong, still, closed, used() // MIB]
"""


def test_memory_opened_by_handle_is_the_same_and_charged_to_its_owner(tmp_path: Path) -> None:
    script = f"""
memory = good(d.cuMemAlloc(2 * MIB))
good(d.cuMemsetD8(memory, 5, MIB))
handle = good(d.cuIpcGetMemHandle(memory))
here = d.cuIpcOpenMemHandle(handle, LAZY)[0].name
seen = elsewhere({PEER!r} + {OPENER!r}, HANDLE=text_of(handle))
after = read(memory, 8)
good(d.cuMemFree(memory))
answer = [here, seen, after, used(), sorted(os.listdir(os.environ["FAKEGPU_STATE"]))]
"""
    here, seen, after, left, files = drive(tmp_path, PEER + script)
    assert here == "CUDA_ERROR_INVALID_CONTEXT"
    assert seen == ["05" * 4, True, [INVALID] * 3, "09" * 4, INVALID, 2]
    assert (after, left, files) == ("09" * 4 + "05" * 4, 0, ["engine"])


def test_giving_much_memory_costs_what_was_written_of_it(tmp_path: Path) -> None:
    script = """
memory = good(d.cuMemAlloc(15 << 30))
good(d.cuMemsetD8(int(memory) + (14 << 30), 3, 4))
good(d.cuIpcGetMemHandle(memory))
[name] = [name for name in os.listdir(os.environ["FAKEGPU_STATE"]) if name.startswith("ipc")]
held = os.stat(os.path.join(os.environ["FAKEGPU_STATE"], name)).st_blocks * 512
answer = [read(int(memory) + (14 << 30), 4), held]
"""
    seen, held = drive(tmp_path, PEER + script)
    assert seen == "03" * 4
    assert 0 < held < MIB


def test_what_a_dead_process_gave_is_swept_away(tmp_path: Path) -> None:
    leave = """
memory = good(d.cuMemAlloc(2 * MIB))
answer = text_of(good(d.cuIpcGetMemHandle(memory)))
"""
    handle = drive(tmp_path, PEER + leave)
    assert len(list(tmp_path.iterdir())) == 2
    script = f"""
answer = [d.cuIpcOpenMemHandle(handle_of("{handle}"), LAZY)[0].name,
          d.cuIpcOpenMemHandle(handle_of("00" * 64), LAZY)[0].name,
          os.listdir(os.environ["FAKEGPU_STATE"])]
"""
    expected = ["CUDA_ERROR_MAP_FAILED", "CUDA_ERROR_INVALID_HANDLE", ["engine"]]
    assert drive(tmp_path, PEER + script) == expected


def test_only_plain_memory_has_a_handle(tmp_path: Path) -> None:
    script = """
stream = good(d.cuStreamCreate(0))
others = [good(d.cuMemAllocManaged(4096, 1)), good(d.cuMemAllocAsync(4096, stream)), 4096]
capable = d.CUpointer_attribute.CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE
plain = good(d.cuMemAlloc(4096))
answer = [d.cuIpcGetMemHandle(d.CUdeviceptr(int(pointer)))[0].name for pointer in others]
answer += [int(good(d.cuPointerGetAttribute(capable, pointer))) for pointer in (plain, others[1])]
"""
    assert drive(tmp_path, PEER + script) == [INVALID] * 3 + [1, 0]


EXTERNAL = """
import tempfile
MIB = 1 << 20

def imported(file, size):
    wanted = d.CUDA_EXTERNAL_MEMORY_HANDLE_DESC()
    wanted.type = d.CUexternalMemoryHandleType.CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD
    wanted.handle.fd = os.dup(file)
    wanted.size = size
    return d.cuImportExternalMemory(wanted)

def buffer(offset, size):
    wanted = d.CUDA_EXTERNAL_MEMORY_BUFFER_DESC()
    wanted.offset, wanted.size = offset, size
    return wanted

file = os.memfd_create("vulkan's")
os.pwrite(file, b"abcd", 4096)
os.truncate(file, 3 * MIB)
"""


def external(state: Path, script: str) -> Any:
    return drive(state, EXTERNAL + script)


def test_external_memory_is_charged_while_it_is_imported(tmp_path: Path) -> None:
    script = """
memory = good(imported(file, 3 * MIB))
held = used() // MIB
pointer = good(d.cuExternalMemoryGetMappedBuffer(memory, buffer(4096, MIB)))
seen = read(pointer, 4)
good(d.cuMemsetD8(pointer, 7, 2))
wrong = d.cuExternalMemoryGetMappedBuffer(memory, buffer(2 * MIB, 2 * MIB))[0].name
mapped = used() // MIB
good(d.cuMemFree(pointer))
good(d.cuDestroyExternalMemory(memory))
answer = [held, seen, os.pread(file, 4, 4096).hex(), wrong, mapped, used(),
          d.cuDestroyExternalMemory(memory)[0].name]
"""
    expected = [4, b"abcd".hex(), b"\7\7cd".hex(), INVALID, 4, 0, "CUDA_ERROR_INVALID_HANDLE"]
    assert external(tmp_path, script) == expected


def test_external_memory_may_be_an_array_in_every_size(tmp_path: Path) -> None:
    script = """
memory = good(imported(file, 3 * MIB))
wanted = d.CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC()
wanted.arrayDesc.Width = wanted.arrayDesc.Height = 256
wanted.arrayDesc.Format = d.CUarray_format.CU_AD_FORMAT_FLOAT
wanted.arrayDesc.NumChannels = 1
wanted.numLevels = 3
mipmap = good(d.cuExternalMemoryGetMappedMipmappedArray(memory, wanted))
level = good(d.cuArray3DGetDescriptor(good(d.cuMipmappedArrayGetLevel(mipmap, 2))))
answer = [used() // MIB, level.Width]
good(d.cuMipmappedArrayDestroy(mipmap))
good(d.cuDestroyExternalMemory(memory))
answer.append(used())
"""
    assert external(tmp_path, script) == [4, 64, 0]


def test_external_memory_that_does_not_fit_is_refused_and_ends_with_its_context(
    tmp_path: Path,
) -> None:
    script = """
free = good(d.cuMemGetInfo())[0]
too_much = imported(file, free + 1)[0].name
own = good(d.cuCtxCreate(None, 0, device))
good(imported(file, 3 * MIB))
good(d.cuCtxDestroy(own))
good(d.cuCtxSetCurrent(context))
answer = [too_much, used()]
"""
    assert external(tmp_path, script) == ["CUDA_ERROR_OUT_OF_MEMORY", 0]
