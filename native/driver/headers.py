"""Reads NVIDIA's published headers: `python -m driver.headers [FOLDER]` prints the rows to add.

The headers come with `nvidia-cuda-runtime` and `nvidia-nvml-dev` on PyPI. They are read here
and in tests, and are no part of this repository.
"""

import re
import sys
import sysconfig
from collections import defaultdict
from pathlib import Path

from driver.rows import read

TYPEDEF = re.compile(r"\*\s*PFN_(cu\w+?)_v(\d+)(_pt[ds][sz])?\)")
DECLARED = re.compile(r"CUresult\s+CUDAAPI\s+(cu\w+)\s*\(")
RENAMED = re.compile(r"#define\s+(cu\w+)\s+(?:__CUDA_API_(PTDS|PTSZ)\()?(cu\w+)\)?")
HEADERS = ("cuda", "cudaProfiler", "cudaGL", "cudaEGL", "cudaVDPAU")


def installed() -> Path:
    """The folder of the headers that the development packages bring."""
    return Path(sysconfig.get_path("purelib")) / "nvidia" / "cu13" / "include"


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


def versions(include: Path) -> dict[str, int]:
    """Returns the CUDA version that introduced each symbol.

    The headers do not say which symbol a version belongs to; but both only grow, so the
    oldest version is the symbol without number, and so on.

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
        # Some headers come with their typedefs only.
        names = names or [f"{base}{number}{suffix}" for number in ("", "_v2", "_v3")[: len(found)]]
        if len(names) != len(found):
            raise ValueError(f"{base}{suffix}: versions {sorted(found)}, symbols {names}")
        result.update(zip(names, sorted(found), strict=True))
    return result


def main() -> None:
    """Prints a row for each name of the headers that the list does not have."""
    include = Path(sys.argv[1]) if len(sys.argv) > 1 else installed()
    known = {row.symbol for row in read()}
    for symbol, since in versions(include).items():
        if symbol not in known:
            sys.stdout.write(f"{symbol:<44} {since:>5}  pass\n")


if __name__ == "__main__":
    main()
