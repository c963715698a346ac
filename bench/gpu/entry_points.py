"""Which functions of the driver a program is given, and whose: the driver's, or the library's.

As a program (``python -m bench.gpu.entry_points``) it prints that for the process it runs in.
"""

import ctypes
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from kubeshare import native

_LIST: Final = Path(__file__).resolve().parents[2] / "native" / "driver_api" / "names.list"
_ROW: Final = re.compile(r"^(?P<symbol>cu\w+) +(?P<since>\d+) +(?P<rule>\w+)", re.MULTILINE)
_BASE: Final = re.compile(r"(?P<base>cu\w+?)(?:_v\d+)?(?P<twin>_pt[ds][sz])?$")
_PASSED: Final = "pass"
_PER_THREAD: Final = 2
"""CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM."""


class Name(NamedTuple):
    """A function as the project's list has it; `since` as 1000 * major + 10 * minor."""

    symbol: str
    since: int
    is_hooked: bool


class _Found(ctypes.Structure):
    """What ``dladdr`` says; Linux, ``dlfcn.h``."""

    _fields_ = (
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("symbol", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    )


def names() -> Iterator[Name]:
    """All functions of the driver that the project's list has."""
    for row in _ROW.finditer(_LIST.read_text()):
        yield Name(row["symbol"], int(row["since"]), row["rule"] != _PASSED)


def look() -> dict[str, object]:
    """By each of the two ways to a function: how many there are, and which are not as they should.

    Raises:
        OSError: there is no driver.
    """
    driver = ctypes.CDLL("libcuda.so.1")
    version = ctypes.c_int()
    driver.cuInit(0)
    driver.cuDriverGetVersion(ctypes.byref(version))
    wanted = [name for name in names() if name.since <= version.value]
    by_symbol = {name: _owner(_symbol(driver, name.symbol)) for name in wanted}
    by_address = {name: _owner(_proc_address(driver, name)) for name in wanted}
    return {
        "driver_version": version.value,
        "names": len(wanted),
        "dlsym": _summary(by_symbol),
        "cuGetProcAddress": _summary(by_address),
    }


def _summary(owners: dict[Name, str]) -> dict[str, object]:
    found = {name: owner for name, owner in owners.items() if owner}
    ours = {name for name, owner in found.items() if owner == native.DEVICE_LIBRARY}
    not_ours = sorted(name.symbol for name in found.keys() - ours if name.is_hooked)
    return {
        "found": len(found),
        "ours": len(ours),
        "absent": sorted(name.symbol for name in owners.keys() - found.keys()),
        "hooked_but_not_ours": not_ours if ours else "the library is not loaded",
    }


def _symbol(driver: ctypes.CDLL, symbol: str) -> int | None:
    try:
        return ctypes.cast(getattr(driver, symbol), ctypes.c_void_p).value
    except AttributeError:
        return None


def _proc_address(driver: ctypes.CDLL, name: Name) -> int | None:
    match = _BASE.match(name.symbol)
    assert match is not None
    found = ctypes.c_void_p()
    flags = ctypes.c_uint64(_PER_THREAD if match["twin"] else 0)
    result = driver.cuGetProcAddress(
        match["base"].encode(), ctypes.byref(found), ctypes.c_int(name.since), flags
    )
    return found.value if result == 0 else None


def _owner(address: int | None) -> str:
    """The file name of the library that has this address; empty for none."""
    found = _Found()
    process = ctypes.CDLL(None)
    process.dladdr.argtypes = [ctypes.c_void_p, ctypes.POINTER(_Found)]
    if address is None or not process.dladdr(address, ctypes.byref(found)):
        return ""
    return Path(found.file.decode()).name


def main() -> int:
    """Print it as one JSON line; 3 where there is no driver."""
    try:
        print(json.dumps(look()))
    except OSError as error:
        print(f"entry_points: {error}", file=sys.stderr)
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
