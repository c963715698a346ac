"""What the library asks of the programs that it is loaded into."""

import re
import subprocess

import pytest

from kubeshare import native

pytestmark = pytest.mark.native

OLDEST_GLIBC = (2, 17)


def read(*command: str) -> str:
    library = str(native.path(native.DEVICE_LIBRARY))
    done = subprocess.run([*command, library], capture_output=True, text=True, check=True)
    return done.stdout


def test_it_exports_its_hooks_and_nothing_else() -> None:
    exported = re.findall(r" \w (\S+)$", read("nm", "-D", "--defined-only"), re.MULTILINE)
    assert sorted(exported) == native.path("generated/exports.txt").read_text().split()


def test_it_needs_libc_alone() -> None:
    needed = re.findall(r"NEEDED.*\[(.*)\]", read("readelf", "--dynamic", "--wide"))
    assert needed == ["libc.so.6"]


def test_it_asks_for_no_symbol_newer_than_glibc_2_17() -> None:
    versions = re.findall(r"GLIBC_([0-9.]+)", read("readelf", "--version-info", "--wide"))
    assert versions
    assert max(tuple(map(int, version.split("."))) for version in versions) <= OLDEST_GLIBC


def test_loading_it_runs_nothing() -> None:
    dynamic = read("readelf", "--dynamic", "--wide")
    assert not re.findall(r"\((?:INIT|INIT_ARRAY|PREINIT_ARRAY)\)", dynamic)


def test_it_cannot_end_the_program() -> None:
    wanted = re.findall(r" U (\w+)", read("nm", "-D", "--undefined-only"))
    assert not {"exit", "_exit", "_Exit", "quick_exit", "abort"} & set(wanted)
