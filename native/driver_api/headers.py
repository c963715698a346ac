"""Reads NVIDIA's published declarations: `python -m driver_api.headers` prints the rows to add.

They come with `nvidia-cuda-runtime`, `nvidia-nvml-dev` and `cuda-bindings` on PyPI. Only this
module and tests read them; they are not part of this repository.
"""

import re
import sys
import sysconfig
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from driver_api.rows import Row, read, read_nvml

TYPEDEF = re.compile(r"\*\s*PFN_(cu\w+?)_v(\d+)(_pt[ds][sz])?\)")
DECLARED = re.compile(r"CUresult\s+CUDAAPI\s+(cu\w+)\s*\(")
DECLARED_IN_NVML = re.compile(r"nvmlReturn_t\s+DECLDIR\s+(nvml\w+)\s*\(")
DECLARED_IN_PYTHON = re.compile(r"^cdef CUresult (cu\w+)\(", re.MULTILINE)
RENAMED = re.compile(r"#define\s+(cu\w+)\s+(?:__CUDA_API_(PTDS|PTSZ)\()?(cu\w+)\)?")
HEADERS = ("cuda", "cudaProfiler", "cudaGL", "cudaEGL", "cudaVDPAU")

# The kind and rule of a function by its name: the first match. A test compares all rows with it.
KIND_OF_NAME = (
    ("capture", "track", r"cu\w*[Cc]aptur"),
    ("copy", "gate", r"cuMem(cpy|Prefetch|Discard)|cu\w*C(o)?pyBatch"),
    (
        "launch",
        "gate",
        (
            r"cu\w*Launch|cuMemset|cuMem\w*ompress|cu\w*MemOp(?!Node)|cuStream(Wait|Write|AddCallback)"
            r"|cu\w*ExternalSemaphoresAsync|cu\w*CtxWaitEvent"
        ),
    ),
    (
        "free",
        "account",
        (
            r"cuMem\w*(Free|Release|Unmap|Trim|Unregister)|cu\w*MemTrim|cuDestroyExternalMemory"
            r"|cu(\w*Array|\w*Ctx|MemPool|GraphExec|Link|LogicalEndpoint)"
            r"(Destroy|Detach|Release|Reset|Unbind)$"
            r"|cu\w*AddMemFreeNode|cu(Module|Library)Unload|cuIpcCloseMemHandle|cuMulticastUnbind"
        ),
    ),
    (
        "query",
        "answer",
        (
            r"cuMemGetInfo|cuDeviceTotalMem|cuDeviceGetProperties|cu\w*Get\w*MemAttribute"
            r"|cuMemPoolGetAttribute|nvmlDevice(?!GetVgpu)\w*(MemoryInfo|MemoryUsage|MemoryLimits|Process"
            r"|ingStats|ingPids|[a-z]Utilization(Rates)?$|GetSamples)"
        ),
    ),
    (
        "allocate",
        "account",
        (
            r"cuMem(?!Get|Pool[GES]|Export|Advise|Range|HostGet)\w*|cu\w*Array(3D)?Create"
            r"|cu\w*Ctx(Create|Attach|Retain|SetLimit)|cuIpcOpenMem|cu(Module|Library)Load|cuLink"
            r"|cu\w*ExternalMemory|cu\w*SetMemPool|cuGraph(Add(MemAlloc)?Node|Instantiate|Upload)"
            r"|cu(Multicast|LogicalEndpoint)(Create|Bind)|cu\w*ProcessRestore$"
        ),
    ),
    ("other", "pass", ""),
)


@dataclass(frozen=True)
class Declarations:
    """Where NVIDIA's declarations are.

    Attributes:
        include: The folder of cuda.h, its typedefs, and nvml.h.
        python: cuda-bindings' cydriver.pxd.
    """

    include: Path
    python: Path


def installed() -> Declarations:
    """Returns the declarations that the development packages installed."""
    packages = Path(sysconfig.get_path("purelib"))
    return Declarations(packages / "nvidia/cu13/include", packages / "cuda/bindings/cydriver.pxd")


def kind_of_name(name: str) -> tuple[str, str]:
    """Returns the kind and the rule that a function with this base name should have."""
    return next((kind, rule) for kind, rule, names in KIND_OF_NAME if re.match(names, name))


def symbols(text: str) -> set[str]:
    """Returns every symbol that the driver exports according to a header.

    A declared name may be a macro for another symbol, and for a third one with a suffix.
    """
    renamed = {name: (symbol, suffix) for name, suffix, symbol in RENAMED.findall(text)}
    found = set()
    for name in DECLARED.findall(text):
        found.add(name)
        symbol, suffix = renamed.get(name, (name, ""))
        found.add(symbol)
        if suffix:
            found.add(f"{symbol}_{suffix.lower()}")
    return found


def versions(include: Path) -> dict[str, int]:
    """Returns the CUDA version that introduced each symbol of the driver.

    The headers do not map versions to symbols. Both only grow, so the oldest version belongs
    to the symbol without a number, and so on.

    Raises:
        ValueError: Versions and symbols of a name do not match one to one.
    """
    introduced: dict[tuple[str, str], set[int]] = defaultdict(set)
    exported: set[str] = set()
    for header in HEADERS:
        typedefs = include / f"{header}Typedefs.h"
        if not typedefs.exists():
            continue
        declarations = include / f"{header}.h"
        if declarations.exists():
            exported |= symbols(declarations.read_text())
        for base, version, suffix in TYPEDEF.findall(typedefs.read_text()):
            introduced[base, suffix].add(int(version))
    result: dict[str, int] = {}
    for (base, suffix), found in sorted(introduced.items()):
        pattern = re.compile(rf"{base}(?:_v(\d+))?{suffix}")
        matches = [match for symbol in exported if (match := pattern.fullmatch(symbol))]
        names = [match[0] for match in sorted(matches, key=lambda match: int(match[1] or 1))]
        # Of some headers only the typedefs are installed.
        names = names or [f"{base}{number}{suffix}" for number in ("", "_v2", "_v3")[: len(found)]]
        if len(names) != len(found):
            raise ValueError(f"{base}{suffix}: versions {sorted(found)}, symbols {names}")
        result.update(zip(names, sorted(found), strict=True))
    return result


def nvml_names(include: Path) -> dict[bool, set[str]]:
    """Returns NVML's functions: True, those that report the use of a GPU or who uses it."""
    names: dict[bool, set[str]] = {True: set(), False: set()}
    for name in DECLARED_IN_NVML.findall((include / "nvml.h").read_text()):
        names[kind_of_name(name)[0] == "query"].add(name)
    return names


def python_names(path: Path) -> set[str]:
    """Returns the base names of the driver functions that cuda-bindings looks up."""
    return set(DECLARED_IN_PYTHON.findall(path.read_text()))


def missing(rows: Iterable[Row], published: Declarations) -> list[str]:
    """Returns the rows to add to the lists, each with its section or `nvml.list` in front."""
    rows = list(rows)
    listed = {row.symbol: row.since for row in rows}
    of_nvml = nvml_names(published.include)
    found = versions(published.include) | dict.fromkeys(of_nvml[True], 0)
    bases = {row.base for row in rows} | {Row(symbol, 0, "", "").base for symbol in found}
    found |= dict.fromkeys(python_names(published.python) - bases - found.keys(), 0)
    lines = []
    for symbol, since in sorted(found.items()):
        if listed.get(symbol) != since:
            kind, rule = kind_of_name(Row(symbol, since, "", "").base)
            lines.append(f"[{kind}] {symbol:<44} {since or '-':>5}  {rule}")
    unlisted = of_nvml[False] - listed.keys() - set(read_nvml())
    return lines + [f"nvml.list: {name}" for name in sorted(unlisted)]


def main() -> None:
    """Prints the rows that `missing` returns."""
    for line in missing(read(), installed()):
        sys.stdout.write(f"{line}\n")


if __name__ == "__main__":
    main()
