"""Managed memory and what it is advised; the driver API's first ABI."""

from pathlib import Path

import pytest

from fakes.gpu_client import drive

pytestmark = pytest.mark.native

INVALID = "CUDA_ERROR_INVALID_VALUE"

MANAGED = """
A = d.CUmem_advise
R = d.CUmem_range_attribute
memory = good(d.cuMemAllocManaged(8192, 1))
plain = good(d.cuMemAlloc(8192))
stream = good(d.cuStreamCreate(0))

def place(kind, ordinal=0):
    made = d.CUmemLocation()
    made.type = getattr(d.CUmemLocationType, "CU_MEM_LOCATION_TYPE_" + kind)
    made.id = ordinal
    return made

def advise(name, where, pointer=memory):
    return d.cuMemAdvise(pointer, 4096, getattr(A, "CU_MEM_ADVISE_" + name), where)[0].name

def ask(name, size=4):
    attribute = getattr(R, "CU_MEM_RANGE_ATTRIBUTE_" + name)
    return good(d.cuMemRangeGetAttribute(size, attribute, memory, 4096))
"""


def test_advice_is_kept_and_told(tmp_path: Path) -> None:
    script = """
before = [ask("READ_MOSTLY"), ask("PREFERRED_LOCATION"), ask("LAST_PREFETCH_LOCATION")]
done = [advise("SET_READ_MOSTLY", place("DEVICE")), advise("SET_PREFERRED_LOCATION", place("HOST")),
        advise("SET_ACCESSED_BY", place("DEVICE", 1)), advise("SET_ACCESSED_BY", place("HOST")),
        d.cuMemPrefetchAsync(memory, 4096, place("DEVICE", 1), 0, stream)[0].name]
after = [ask("READ_MOSTLY"), ask("PREFERRED_LOCATION"), ask("LAST_PREFETCH_LOCATION"),
         list(ask("ACCESSED_BY", 12))]
wrong = [advise("SET_ACCESSED_BY", place("DEVICE", 2)),
         advise("SET_READ_MOSTLY", place("DEVICE"), plain),
         d.cuMemPrefetchAsync(plain, 4096, place("DEVICE"), 0, stream)[0].name,
         d.cuMemPrefetchAsync(memory, 8193, place("DEVICE"), 0, stream)[0].name]
answer = [before, done, after, wrong, used()]
"""
    before, done, after, wrong, used = drive(tmp_path, MANAGED + script, "V100x2")
    assert before == [0, -2, -2]
    assert done == ["CUDA_SUCCESS"] * 5
    assert after == [1, -1, 1, [1, -1, -2]]
    assert wrong == ["CUDA_ERROR_INVALID_DEVICE", INVALID, INVALID, INVALID]
    assert used == 16384


def test_a_batch_goes_to_the_place_that_its_index_names(tmp_path: Path) -> None:
    script = """
other = good(d.cuMemAllocManaged(4096, 1))
places = [place("HOST"), place("DEVICE", 1)]
done = d.cuMemPrefetchBatchAsync([memory, other], [4096, 4096], 2, places, [0, 1], 2, 0, stream)
discarded = d.cuMemDiscardBatchAsync([memory, other], [4096, 4096], 2, 0, stream)[0].name
first = ask("LAST_PREFETCH_LOCATION")
memory = other
answer = [done[0].name, discarded, first, ask("LAST_PREFETCH_LOCATION"),
          d.cuMemDiscardBatchAsync([plain], [4096], 1, 0, stream)[0].name]
"""
    good = "CUDA_SUCCESS"
    assert drive(tmp_path, MANAGED + script, "V100x2") == [good, good, -1, 1, INVALID]


def test_memory_may_be_attached_to_a_stream(tmp_path: Path) -> None:
    script = """
answer = [d.cuStreamAttachMemAsync(stream, memory, 0, 4)[0].name,
          d.cuStreamAttachMemAsync(stream, memory, 0, 3)[0].name,
          d.cuStreamAttachMemAsync(stream, plain, 0, 4)[0].name]
"""
    assert drive(tmp_path, MANAGED + script) == ["CUDA_SUCCESS", INVALID, INVALID]


def test_the_first_abi_has_addresses_of_32_bits(tmp_path: Path) -> None:
    script = """
        cuda = ctypes.CDLL("libcuda.so.1")
        pointer, pitch, free, total, size = (ctypes.c_uint32() for _ in range(5))
        text = ctypes.create_string_buffer(b"abcd")
        steps = [cuda.cuMemAlloc(ctypes.byref(pointer), 1 << 20),
                 cuda.cuMemcpyHtoD(pointer, text, 4),
                 cuda.cuMemsetD8(ctypes.c_uint32(pointer.value + 2), 0x7a, 1),
                 cuda.cuMemGetAddressRange(None, ctypes.byref(size), pointer)]
        seen = read(pointer.value, 4)
        held = used()
        steps += [cuda.cuMemFree(pointer), cuda.cuMemAllocPitch(
            ctypes.byref(pointer), ctypes.byref(pitch), 100, 2, 4), cuda.cuMemFree(pointer),
            cuda.cuMemGetInfo(ctypes.byref(free), ctypes.byref(total))]
        answer = [steps, seen, held >> 20, size.value >> 20, pitch.value, used(), total.value]
    """
    answer = drive(tmp_path, script)
    assert answer == [[0] * 8, b"abzd".hex(), 2, 1, 512, 0, (1 << 32) - 1]


def test_the_first_abi_copies_rectangles_and_arrays(tmp_path: Path) -> None:
    script = """
        class Form(ctypes.Structure):
            side = [("x", ctypes.c_uint32), ("y", ctypes.c_uint32), ("kind", ctypes.c_uint32),
                    ("host", ctypes.c_void_p), ("device", ctypes.c_uint32),
                    ("array", ctypes.c_void_p), ("pitch", ctypes.c_uint32)]
            _fields_ = [*((f"from_{name}", kind) for name, kind in side),
                        *((f"to_{name}", kind) for name, kind in side),
                        ("width", ctypes.c_uint32), ("height", ctypes.c_uint32)]

        class Shape(ctypes.Structure):
            _fields_ = [(name, ctypes.c_uint32) for name in ("width", "height", "kind", "channels")]

        cuda = ctypes.CDLL("libcuda.so.1")
        array, back = ctypes.c_void_p(), ctypes.create_string_buffer(4)
        text = ctypes.create_string_buffer(b"abcdEFGH")
        shape = Shape(4, 2, 1, 1)
        form = Form(from_kind=1, from_host=ctypes.addressof(text), from_pitch=4, to_kind=3)
        steps = [cuda.cuArrayCreate(ctypes.byref(array), ctypes.byref(shape))]
        form.to_array, form.width, form.height = array.value, 4, 2
        steps += [cuda.cuMemcpy2D(ctypes.byref(form)), cuda.cuMemcpyAtoH(back, array, 1, 3),
                  cuda.cuArrayGetDescriptor(ctypes.byref(shape), array),
                  cuda.cuArrayDestroy(array)]
        answer = [steps, back.raw.hex(), shape.height]
    """
    assert drive(tmp_path, script) == [[0] * 5, b"bcd\0".hex(), 2]
