"""The undocumented tables of the driver that the CUDA runtime asks for.

What the runtime does with them: `tests/native/device_library/test_clients.py`.
"""

from pathlib import Path
from textwrap import dedent

import pytest

from fakes.gpu_client import drive

pytestmark = pytest.mark.native

TABLES = """
cuda = ctypes.CDLL("libcuda.so.1")

def table(name):
    found = ctypes.POINTER(ctypes.c_void_p)()
    result = cuda.cuGetExportTable(ctypes.byref(found), bytes.fromhex(name))
    return found if result == 0 else result

def function(table, place, *arguments):
    return ctypes.CFUNCTYPE(ctypes.c_int, *arguments)(table[place])

pointer = ctypes.c_void_p
"""


def test_a_table_tells_its_size_and_what_nobody_knows_is_not_supported(tmp_path: Path) -> None:
    script = """
        sizes = [table(name)[0] // 8 for name in (
            "6bd5fb6c5bf4e74a8987d93912fd9df9", "d4082055bde6704b8d34ba123c66e1f2",
            "42d85a8123f6cb478298f6e78a3aecdc", "a094798c2e742e7493f20800200c0a66",
            "263e88607cd2614392f6bbd5006dfa7e", "21318c60971432488ca641ff7324c8f2")]
        runtime = table("6bd5fb6c5bf4e74a8987d93912fd9df9")
        answer = [sizes, function(runtime, 3)(), table("f8cff95121468b4eb9e2fb469e7c0dd9")]
    """
    assert drive(tmp_path, TABLES + dedent(script)) == [[13, 3, 4, 7, 4, 95], 801, 1]


def test_what_is_kept_with_a_context_ends_with_it(tmp_path: Path) -> None:
    script = """
        storage = table("c693336e1121df11a8c368f355d89593")
        ended = []
        destructor = ctypes.CFUNCTYPE(None, pointer, pointer, pointer)(
            lambda context, key, value: ended.append([key, value]))
        put = function(storage, 0, pointer, pointer, pointer, type(destructor))
        delete = function(storage, 1, pointer, pointer)
        get = function(storage, 2, pointer, pointer, pointer)

        def kept(key):
            value = pointer()
            return get(ctypes.byref(value), None, key) or value.value

        results = [put(None, 1, 11, destructor), put(None, 2, 22, destructor),
                   put(None, 3, 33, destructor), put(None, 3, 34, destructor), delete(None, 2)]
        held = [kept(1), kept(2), kept(3)]
        good(d.cuDevicePrimaryCtxReset(device))
        answer = [results, held, sorted(ended), kept(1)]
    """
    invalid_handle, destroyed = 400, 709
    assert drive(tmp_path, TABLES + dedent(script)) == [
        [0] * 5,
        [11, invalid_handle, 34],
        [[1, 11], [3, 34]],
        destroyed,
    ]
