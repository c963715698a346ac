"""The list of names against NVIDIA's newest published declarations."""

import re
import subprocess
from pathlib import Path

import pytest
from driver_api import headers, rows
from driver_api.headers import Declarations

VGPU = Path(__file__).parents[3] / "native" / "device_library"
EVERY_ABI = [
    "#define __CUDA_API_VERSION_INTERNAL",
    "#define NVML_NO_UNVERSIONED_FUNC_DEFS",
]
WHAT_TO_DO = (
    "NVIDIA's headers have functions that native/driver_api has not in its lists, or at another "
    "version. Decide what the device library does with each (the list's head says how), and add "
    "these rows to their sections:"
)


def test_the_list_has_every_function_of_the_newest_headers() -> None:
    published = headers.installed()
    assert len(headers.versions(published.include)) > 700
    assert [len(names) > 20 for names in headers.nvml_names(published.include).values()] == [
        True
    ] * 2
    assert len(headers.python_names(published.python)) > 500
    lacking = headers.missing(rows.read(), published)
    assert not lacking, "\n".join([WHAT_TO_DO, *lacking])


def test_names_that_look_like_memory_or_work_are_listed_as_such() -> None:
    listed = {row.symbol: row.kind for row in rows.read()}
    by_name = {row.symbol: headers.kind_of_name(row.base)[0] for row in rows.read()}
    assert listed == by_name


@pytest.fixture
def newer(tmp_path: Path) -> Declarations:
    """Copies of the installed declarations, to be changed."""
    published = headers.installed()
    for name in headers.HEADERS:
        for file in (f"{name}.h", f"{name}Typedefs.h"):
            if (published.include / file).exists():
                (tmp_path / file).write_text((published.include / file).read_text())
    (tmp_path / "nvml.h").write_text((published.include / "nvml.h").read_text())
    (tmp_path / "cydriver.pxd").write_text(published.python.read_text())
    return Declarations(tmp_path, tmp_path / "cydriver.pxd")


def declare(newer: Declarations, prototype: str, typedef: str) -> None:
    with (newer.include / "cuda.h").open("a") as header:
        header.write(f"\nCUresult CUDAAPI {prototype};\n")
    with (newer.include / "cudaTypedefs.h").open("a") as header:
        header.write(f"\ntypedef CUresult (CUDAAPI *PFN_{typedef})(void);\n")


def test_functions_that_the_list_lacks_are_found_with_the_rows_to_add(
    newer: Declarations,
) -> None:
    declare(newer, "cuDeviceTellJoke(CUdevice dev)", "cuDeviceTellJoke_v14000")
    declare(newer, "cuLaunchKernel_v2(CUfunction f, CUstream s)", "cuLaunchKernel_v14010")
    declare(newer, "cuMemAllocHere(CUdeviceptr *dptr, size_t size)", "cuMemAllocHere_v14000")
    declare(newer, "cuMemcpyFromAfar(CUdeviceptr dst, size_t size)", "cuMemcpyFromAfar_v14000")
    declare(newer, "cuStreamBeginCaptureAnew(CUstream s)", "cuStreamBeginCaptureAnew_v14000")
    assert [line.split() for line in headers.missing(rows.read(), newer)] == [
        ["[other]", "cuDeviceTellJoke", "14000", "pass"],
        ["[launch]", "cuLaunchKernel_v2", "14010", "gate"],
        ["[allocate]", "cuMemAllocHere", "14000", "account"],
        ["[copy]", "cuMemcpyFromAfar", "14000", "gate"],
        ["[capture]", "cuStreamBeginCaptureAnew", "14000", "track"],
    ]


def test_a_function_of_nvml_or_of_the_python_client_alone_is_found_too(
    newer: Declarations,
) -> None:
    with (newer.include / "nvml.h").open("a") as header:
        header.write("nvmlReturn_t DECLDIR nvmlDeviceGetMemoryInfo_v3(nvmlDevice_t device);\n")
        header.write("nvmlReturn_t DECLDIR nvmlDeviceGetFanColour(nvmlDevice_t device);\n")
    with newer.python.open("a") as declarations:
        declarations.write("\ncdef CUresult cuMemAllocInPython(size_t size) nogil\n")
    allocate, query, other = headers.missing(rows.read(), newer)
    assert allocate.split() == ["[allocate]", "cuMemAllocInPython", "-", "account"]
    assert query.split() == ["[query]", "nvmlDeviceGetMemoryInfo_v3", "-", "answer"]
    assert other == "nvml.list: nvmlDeviceGetFanColour"


def test_a_row_that_is_left_out_is_found() -> None:
    kept = [row for row in rows.read() if row.symbol != "cuMemCreate"]
    (line,) = headers.missing(kept, headers.installed())
    assert line.split() == ["[allocate]", "cuMemCreate", "10020", "account"]


def prototypes(include: Path) -> dict[str, list[str]]:
    """The types of the parameters of each function, as NVIDIA declares them."""
    text = "\n".join([*EVERY_ABI, '#include "cuda.h"', '#include "nvml.h"'])
    command = ["gcc", "-E", "-P", f"-I{include}", "-x", "c", "-"]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=True)
    declared = re.findall(
        r"(?:CUresult|nvmlReturn_t) (\w+)\s*\(((?:[^()]|\([^()]*\))*)\)\s*;",
        re.sub(r"\s+", " ", done.stdout),
    )
    return {name: types_of(parameters) for name, parameters in reversed(declared)}


def types_of(parameters: str) -> list[str]:
    words = [word.strip() for word in parameters.split(",") if word.strip() != "void"]
    kinds = [re.sub(r"\w+(\[\d*\])?$", lambda m: "*" if m[1] else "", word) for word in words]
    return [kind.strip() for kind in kinds]


def size(kind: str) -> str:
    """A C expression: the size of a type, and with it that of what it points to."""
    pointee = re.fullmatch(r"(.*[^*\s])\s*\*", kind)
    known = pointee and pointee[1].removeprefix("const ") != "void"
    return f"sizeof({kind}) * 1000 + sizeof({pointee[1] if known and pointee else 'char'})"


def measure(kinds: list[str], lines: list[str], folder: Path) -> list[int]:
    source, program = folder / "sizes.c", folder / "sizes"
    body = "".join(f'printf("%zu\\n", {size(kind)});' for kind in kinds)
    source.write_text("\n".join(["#include <stdio.h>", *lines, f"int main(void) {{{body}}}"]))
    subprocess.run(["gcc", source, "-o", program], check=True)
    done = subprocess.run([program], capture_output=True, text=True, check=True)
    return [int(line) for line in done.stdout.split()]


@pytest.mark.native
def test_hooks_take_what_nvidia_declares(tmp_path: Path) -> None:
    include = headers.installed().include
    declared = prototypes(include)
    hooked = [row for row in rows.read() if row.body and row.symbol in declared]
    foreign = {row.symbol for row in rows.read() if row.body} - {row.symbol for row in hooked}
    assert len(hooked) > 100
    # These could be read only with the headers of OpenGL and VDPAU.
    assert all(symbol.startswith(("cuGL", "cuVDPAU")) for symbol in foreign)
    pairs = []
    for row in hooked:
        ours, theirs = types_of(row.parameters[1:-1]), declared[row.symbol]
        assert len(ours) == len(theirs), row.symbol
        pairs += [
            (f"{row.symbol}: {our} for {their}", our, their)
            for our, their in zip(ours, theirs, strict=True)
        ]
    # What we do not look into is void to us: then it is void on both sides.
    pairs = [
        (name, our, "void *" if re.fullmatch(r"(const )?void \*", our) else their)
        for name, our, their in pairs
    ]
    measured_ours = measure(
        [our for _, our, _ in pairs], [f'#include "{VGPU / "driver.h"}"'], tmp_path
    )
    measured_theirs = measure(
        [their for _, _, their in pairs],
        [
            *EVERY_ABI,
            f'#include "{include / "cuda.h"}"',
            f'#include "{include / "nvml.h"}"',
        ],
        tmp_path,
    )
    names = [name for name, _, _ in pairs]
    assert dict(zip(names, measured_ours, strict=True)) == dict(
        zip(names, measured_theirs, strict=True)
    )
