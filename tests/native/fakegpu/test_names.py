"""The driver API's names: the table against NVIDIA's headers, the library against the table."""

import ctypes
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from driver_api import headers, rows

from kubeshare import fakegpu, native

SOURCES = Path(__file__).parents[3] / "native"
SUCCESS, NOT_SUPPORTED, INVALID_VALUE = 0, 801, 1
NVML_NOT_SUPPORTED = 3
FOUND, NO_SUCH_NAME, TOO_OLD = 0, 1, 2
PER_THREAD = 2


def table() -> list[tuple[str, int, str]]:
    return [(row.base, row.since, row.symbol) for row in rows.read() if not row.is_nvml]


@pytest.mark.slow
@pytest.mark.native
def test_our_declarations_agree_with_nvidias(tmp_path: Path) -> None:
    """Compiles the fake against NVIDIA's headers: each signature that it defines must be theirs."""
    sources = [
        *(
            source
            for part in ("cuda", "runtime", "nvml")
            for source in SOURCES.glob(f"fakegpu/{part}/*.c")
        )
    ]
    folders = [
        f"-I{headers.installed().include}",
        f"-I{SOURCES / 'fakegpu' / 'include'}",
        f"-I{native.path('generated')}",
    ]
    assert len(sources) > 12
    subprocess.run(
        ["gcc", "-std=c11", "-D_GNU_SOURCE", *folders, "-fsyntax-only", *sources],
        check=True,
        cwd=tmp_path,
    )


def declared(header: str) -> str:
    """The text of our header, with what it includes of ours."""
    ours = SOURCES / "fakegpu" / "include"
    parts = {"cuda.h": ["cuda.h", "cuda_memory.h", "cuda_work.h"], "nvml.h": ["nvml.h"]}[header]
    return "\n".join((ours / part).read_text() for part in parts)


def printed(folder: Path, header: str, expressions: list[str], include: Path) -> bytes:
    """What a program built with a folder's header says that the expressions are."""
    lines = "".join(f'printf("%lld\\n", (long long)({value}));\n' for value in expressions)
    source = folder / "values.c"
    source.write_text(
        "#define __CUDA_API_VERSION_INTERNAL\n#include <stdio.h>\n#include <stddef.h>\n"
        f"#include <{header}>\nint main(void) {{{lines}}}\n"
    )
    subprocess.run(["gcc", f"-I{include}", source, "-o", folder / "values"], check=True)
    return subprocess.run([folder / "values"], capture_output=True, check=True).stdout


@pytest.mark.parametrize("header", ["cuda.h", "nvml.h"])
def test_our_constants_have_nvidias_values(tmp_path: Path, header: str) -> None:
    ours = SOURCES / "fakegpu" / "include"
    names = re.findall(r"\b((?:CU|NVML)_[A-Z0-9]\w+) = ", declared(header))
    names += re.findall(r"^#define (CU(?:DA)?_[A-Z]\w+) +(?:0x)?\d", declared(header), re.MULTILINE)
    names = [name for name in names if name != "CUDA_VERSION"]
    if header == "cuda.h":
        names += re.findall(
            r"^CUDA_RESULT\((\w+)", (ours / "cuda_results.def").read_text(), re.MULTILINE
        )
    assert len(names) > 30
    theirs = headers.installed().include
    assert printed(tmp_path, header, names, ours) == printed(tmp_path, header, names, theirs)


STRUCT = re.compile(r"^typedef struct (?:\w+ )?\{\n(.*?)^\} (\w+)[,;]", re.MULTILINE | re.DOTALL)


def members(body: str) -> list[str]:
    """The names of a structure's own members; those of nested ones are within them."""
    flat = re.sub(r"/\*.*?\*/", "", body, flags=re.DOTALL)
    while nested := re.search(r"\{[^{}]*\}", flat):
        flat = flat[: nested.start()] + flat[nested.end() :]
    return [
        re.sub(r"\[.*", "", name).split()[-1].lstrip("*")
        for line in flat.split(";")
        for name in line.split(",")
        if len(name.split()) > 1 or "," in line
    ]


@pytest.mark.parametrize("header", ["cuda.h", "nvml.h"])
def test_our_structures_have_nvidias_layout(tmp_path: Path, header: str) -> None:
    ours = SOURCES / "fakegpu" / "include"
    asked = []
    for body, name in STRUCT.findall(declared(header)):
        asked.append(f"sizeof({name})")
        asked += [f"offsetof({name}, {member})" for member in members(body)]
    assert len(asked) > 15
    theirs = headers.installed().include
    assert printed(tmp_path, header, asked, ours) == printed(tmp_path, header, asked, theirs)


@pytest.fixture(scope="module")
def cuda() -> ctypes.CDLL:
    return ctypes.CDLL(str(native.path("fakegpu/libcuda.so.1")))


def address(cuda: ctypes.CDLL, symbol: str) -> int | None:
    return ctypes.cast(getattr(cuda, symbol), ctypes.c_void_p).value


def proc_address(
    cuda: ctypes.CDLL, name: str, version: int, flags: int = 0
) -> tuple[int, int | None, int]:
    """The result, the address and the status of cuGetProcAddress."""
    found, status = ctypes.c_void_p(), ctypes.c_int(-1)
    result = cuda.cuGetProcAddress_v2(
        name.encode(),
        ctypes.byref(found),
        version,
        ctypes.c_uint64(flags),
        ctypes.byref(status),
    )
    return result, found.value, status.value


@pytest.mark.native
def test_the_library_exports_every_symbol_of_the_table(cuda: ctypes.CDLL) -> None:
    missing = [symbol for _, _, symbol in table() if not hasattr(cuda, symbol)]
    assert missing == []


@pytest.mark.native
def test_a_name_that_is_not_implemented_says_so(cuda: ctypes.CDLL) -> None:
    assert cuda.cuFlushGPUDirectRDMAWrites() == NOT_SUPPORTED


@pytest.mark.native
def test_every_name_of_nvml_exists_and_says_what_is_not_implemented() -> None:
    nvml = ctypes.CDLL(str(native.path("fakegpu/libnvidia-ml.so.1")))
    published = headers.nvml_names(headers.installed().include)
    assert [name for name in published[True] | published[False] if not hasattr(nvml, name)] == []
    assert nvml.nvmlDeviceGetFanSpeed(None, None) == NVML_NOT_SUPPORTED


@pytest.mark.native
def test_each_version_is_answered_with_its_own_abi(cuda: ctypes.CDLL) -> None:
    for base, version, symbol in table():
        flags = PER_THREAD if symbol.endswith(("_ptsz", "_ptds")) else 0
        expected = (SUCCESS, address(cuda, symbol), FOUND)
        assert proc_address(cuda, base, version, flags) == expected, symbol


@pytest.mark.native
@pytest.mark.parametrize(
    ("name", "version", "flags", "symbol"),
    [
        ("cuMemAlloc", 2000, 0, "cuMemAlloc"),
        ("cuMemAlloc", 3010, 0, "cuMemAlloc"),
        ("cuMemAlloc", 3020, 0, "cuMemAlloc_v2"),
        ("cuMemAlloc", 13050, 0, "cuMemAlloc_v2"),
        ("cuCtxCreate", 11030, 0, "cuCtxCreate_v2"),
        ("cuCtxCreate", 11040, 0, "cuCtxCreate_v3"),
        ("cuCtxSynchronize", 12090, 0, "cuCtxSynchronize"),
        ("cuCtxSynchronize", 13000, 0, "cuCtxSynchronize_v2"),
        ("cuLaunchKernel", 13050, 0, "cuLaunchKernel"),
        ("cuLaunchKernel", 13050, PER_THREAD, "cuLaunchKernel_ptsz"),
        ("cuLaunchKernel", 6050, PER_THREAD, "cuLaunchKernel"),
        ("cuMemAlloc", 13050, PER_THREAD, "cuMemAlloc_v2"),
        ("cuMemcpyHtoD", 13050, PER_THREAD, "cuMemcpyHtoD_v2_ptds"),
        ("cuGetProcAddress", 11030, 0, "cuGetProcAddress"),
        ("cuGetProcAddress", 12000, 0, "cuGetProcAddress_v2"),
    ],
)
def test_the_newest_abi_up_to_the_version_is_chosen(
    cuda: ctypes.CDLL, name: str, version: int, flags: int, symbol: str
) -> None:
    assert proc_address(cuda, name, version, flags) == (SUCCESS, address(cuda, symbol), FOUND)


@pytest.mark.native
def test_names_that_cannot_be_given_are_told_apart(cuda: ctypes.CDLL) -> None:
    assert proc_address(cuda, "cuNoSuchThing", 13000) == (SUCCESS, None, NO_SUCH_NAME)
    assert proc_address(cuda, "", 0) == (SUCCESS, None, NO_SUCH_NAME)
    assert proc_address(cuda, "cuMemAllocAsync", 11010) == (SUCCESS, None, TOO_OLD)
    assert proc_address(cuda, "cuMemAlloc", 14000)[0] == INVALID_VALUE


PER_THREAD_STREAM = """
import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
context, status = ctypes.c_void_p(), ctypes.c_int()
assert cuda.cuInit(0) == 0
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0
assert cuda.cuStreamBeginCapture_v2(ctypes.c_void_p(2), 2) == 0
assert cuda.cuStreamIsCapturing_ptsz(None, ctypes.byref(status)) == 0
print(status.value)
"""


@pytest.mark.native
def test_stream_0_of_a_twin_is_the_threads_own(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PER_THREAD_STREAM],
        env={**os.environ, **fakegpu.environment("V100x1", tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "1\n"
