"""Programs that the library cannot work in start and run as if it were not there."""

import re
import subprocess
import sysconfig
from pathlib import Path

import pytest

from deadlines import DEADLINE_S
from fakes.session import FakeSession, Machine
from kubeshare import native

pytestmark = pytest.mark.native

SOURCES = Path(__file__).parents[3] / "native" / "tests"
MUSL = Path(sysconfig.get_path("purelib")) / "ziglang/lib/libc/musl/libc.S"
NOT_PERMITTED = 800


def wanted(kind: str) -> set[str]:
    """The names of libc that the library needs (U), or uses where there are (w, v)."""
    library = native.path(native.DEVICE_LIBRARY)
    command = ["nm", "-D", "--undefined-only", str(library)]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return set(re.findall(rf" [{kind}] (\w+)", listed))


def test_musl_has_all_that_the_library_needs() -> None:
    """Its loader ends a program whose preloaded library lacks a symbol, with exit code 127."""
    of_musl = set(re.findall(r"^(\w+):", MUSL.read_text(), re.MULTILINE))
    assert {"open", "dlsym", "secure_getenv"} <= of_musl
    assert "__register_atfork" not in of_musl
    assert wanted("U") - of_musl == set()


def test_what_only_one_libc_has_is_used_where_it_is() -> None:
    assert wanted("wv") == {"__register_atfork", "_r_debug", "_dl_debug_addr"}


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A static program that opens the driver; only gcc's own libc can be linked so."""
    program = tmp_path_factory.mktemp("static") / "alone"
    command = [
        "gcc",
        "-static-pie",
        "-D_GNU_SOURCE",
        str(SOURCES / "alone.c"),
        "-o",
        str(program),
        "-ldl",
    ]
    subprocess.run(command, check=True, capture_output=True)
    return program


def test_bypass_a_static_program_that_opens_the_driver_is_not_hooked(
    machine: Machine, session: FakeSession, alone: Path
) -> None:
    with machine.run([str(alone)], session.environment) as started:
        assert started.answer() == {"result": 0, "file": "libcuda.so.1"}
        assert started.process.wait(DEADLINE_S) == 0
    assert session.nobody_connects()


def test_a_32_bit_program_runs_as_if_the_library_were_not_there(
    machine: Machine, session: FakeSession, tmp_path: Path
) -> None:
    program = tmp_path / "foreign"
    command = [
        "gcc",
        "-m32",
        "-nostdlib",
        "-static",
        "-o",
        str(program),
        str(SOURCES / "foreign.c"),
    ]
    subprocess.run(command, check=True, capture_output=True)
    with machine.run([str(program)], session.environment) as started:
        assert started.answer() == {"result": 0}
        maps = Path(f"/proc/{started.process.pid}/maps").read_text()
        assert native.DEVICE_LIBRARY not in maps
        assert started.process.stdin is not None
        started.process.stdin.close()
        assert started.process.wait(DEADLINE_S) == 0
    assert session.nobody_connects()


def test_a_program_whose_claim_is_gone_gets_no_gpu(machine: Machine) -> None:
    with machine.start({"KUBESHARE_CLAIM": "/nonexistent"}) as probe:
        probe.do("init", expect=NOT_PERMITTED)
