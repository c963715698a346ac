"""Lists the names of the CUDA driver API, for `driver_names.def`.

Reads the headers that NVIDIA publishes (`nvidia-cuda-runtime` on PyPI) and prints one row
for each ABI of each name: what `cuGetProcAddress` is asked for, the CUDA version that
introduced this ABI, the symbol that the driver exports for it, and whether it is the twin
for per-thread default streams. The headers themselves are not part of this repository.

    python list_driver_names.py INCLUDE_FOLDER > driver_names.def
"""

# ruff: noqa: INP001 - a tool beside the table that it makes, not a package

import re
import sys
from collections import defaultdict
from pathlib import Path

TYPEDEF = re.compile(r"\*\s*PFN_(cu\w+?)_v(\d+)(_pt[ds][sz])?\)")
DECLARED = re.compile(r"CUresult\s+CUDAAPI\s+(cu\w+)\s*\(")
RENAMED = re.compile(r"#define\s+(cu\w+)\s+(?:__CUDA_API_(PTDS|PTSZ)\()?(cu\w+)\)?")
HEADERS = ("cuda", "cudaProfiler", "cudaGL", "cudaEGL", "cudaVDPAU")


def symbols(text: str) -> set[str]:
    """Returns every symbol that a header says the driver exports.

    A declared name may be a macro for another, and with a suffix for another again.
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


def rows(include: Path) -> list[tuple[str, int, str, bool]]:
    """Returns (base, version, symbol, per-thread) in the order of name and version.

    The headers do not say which symbol a version belongs to; but both only grow, so the
    oldest version is the symbol without number, and so on.

    Raises:
        ValueError: Versions and symbols of a name do not match one to one.
    """
    versions: dict[tuple[str, str], set[int]] = defaultdict(set)
    exported: set[str] = set()
    for header in HEADERS:
        typedefs = include / f"{header}Typedefs.h"
        if not typedefs.exists():
            continue
        declarations = include / f"{header}.h"
        if declarations.exists():
            exported |= symbols(declarations.read_text())
        for base, version, suffix in TYPEDEF.findall(typedefs.read_text()):
            versions[base, suffix].add(int(version))
    result = []
    for (base, suffix), found in sorted(versions.items()):
        pattern = re.compile(rf"{base}(?:_v(\d+))?{suffix}")
        matches = [match for symbol in exported if (match := pattern.fullmatch(symbol))]
        names = [match[0] for match in sorted(matches, key=lambda match: int(match[1] or 1))]
        # Some headers come with their typedefs only.
        names = names or [f"{base}{number}{suffix}" for number in ("", "_v2", "_v3")[: len(found)]]
        if len(names) != len(found):
            raise ValueError(f"{base}{suffix}: versions {sorted(found)}, symbols {names}")
        result += [
            (base, version, name, bool(suffix))
            for version, name in zip(sorted(found), names, strict=True)
        ]
    return result


def main() -> None:
    """Prints the table."""
    sys.stdout.write("/* DRIVER_NAME(base, version, symbol, twin for per-thread streams):\n")
    sys.stdout.write(" * every ABI of every name, as list_driver_names.py prints them. */\n")
    sys.stdout.write("/* clang-format off */\n")
    for base, version, symbol, thread in rows(Path(sys.argv[1])):
        sys.stdout.write(f"DRIVER_NAME({base}, {version}, {symbol}, {str(thread).lower()})\n")


if __name__ == "__main__":
    main()
