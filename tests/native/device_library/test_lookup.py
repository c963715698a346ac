"""Functions are swapped by what the driver answers, and nothing else is touched.

Each way by which a program gets a function has its test. Where a preloaded library cannot
stand in front, the test says what the program gets.
"""

import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from driver_api import rows
from driver_api.rows import Row

from fakes.session import FakeSession, Machine, Probe, runs_python
from kubeshare import native

pytestmark = pytest.mark.native

OURS = "libkubeshare-vgpu.so"
DRIVER = "libcuda.so.1"
NVML = "libnvidia-ml.so.1"
NEWEST = 13050
PER_THREAD = 2


@pytest.fixture
def where(machine: Machine) -> Iterator[Probe]:
    tests = {"LD_LIBRARY_PATH": f"{machine.path('fakegpu')}:{machine.path('tests')}"}
    with machine.run(["where"], tests) as started:
        yield started


def ask(where: Probe, *words: object) -> dict[str, object]:
    where.send(*words)
    return where.answer()


def test_every_hooked_name_is_ours_and_no_error_stays_behind(where: Probe) -> None:
    for name in native.path("generated/exports.txt").read_text().split():
        if name.startswith(("cu", "nvml")):
            library = "nvml" if name.startswith("nvml") else "symbol"
            answer = ask(where, library, name)
            assert answer == {"file": OURS, "name": name, "error": False}


@pytest.mark.parametrize("name", ["cuDeviceGet", "cuCtxGetCurrent", "cuStreamQuery"])
def test_other_functions_are_the_drivers(where: Probe, name: str) -> None:
    assert ask(where, "symbol", name) == {"file": DRIVER, "name": name, "error": False}
    assert ask(where, "address", name, 12000, 0)["file"] == DRIVER


def test_a_name_that_does_not_exist_is_an_error_as_always(where: Probe) -> None:
    assert ask(where, "symbol", "cuNoSuchThing") == {"file": "", "name": "", "error": True}
    assert ask(where, "address", "cuNoSuchThing", 12000, 0)["file"] == ""


def test_a_function_that_only_bears_a_drivers_name_is_left_alone(where: Probe) -> None:
    answer = ask(where, "trampoline", "cuMemAlloc_v2")
    assert answer == {"file": "libtrampoline.so", "name": "cuMemAlloc_v2", "error": False}


def driver_rows() -> list[Row]:
    return [row for row in rows.read() if not row.is_nvml]


def of_driver(row: Row | None) -> dict[str, object]:
    """Where a row's function must be found, as `where` says it."""
    if row is None:
        return {"file": "", "name": "", "error": False}
    return {"file": OURS if row.body else DRIVER, "name": row.symbol, "error": False}


def newest(known: list[Row], version: int, *, per_thread: bool) -> Row | None:
    """The ABI that NVIDIA's rule chooses: of the twins first where those are asked for."""
    for twins in [True, False] if per_thread else [False]:
        fitting = [row for row in known if row.is_twin == twins and row.since <= version]
        if fitting:
            return max(fitting, key=lambda row: row.since)
    return None


@pytest.mark.parametrize("way", ["address", "address-v1"])
@pytest.mark.parametrize("flags", [0, 1, PER_THREAD])
def test_cu_get_proc_address_gives_the_hook_of_the_abi_that_was_asked_for(
    where: Probe, way: str, flags: int
) -> None:
    bases = defaultdict(list)
    for row in driver_rows():
        bases[row.base].append(row)
    questions = [
        (base, version, newest(known, version, per_thread=flags == PER_THREAD))
        for base, known in bases.items()
        if any(row.body for row in known)
        for row in known
        for version in {row.since - 10, row.since, NEWEST}
    ]
    assert len(questions) > 400
    for base, version, expected in questions:
        assert ask(where, way, base, version, flags) == of_driver(expected), (base, version)


def test_the_names_of_abis_are_none_for_cu_get_proc_address(where: Probe) -> None:
    bases = {row.base for row in driver_rows()}
    for row in driver_rows():
        if row.body and row.symbol not in bases:
            for flags in (0, PER_THREAD):
                assert ask(where, "address", row.symbol, NEWEST, flags) == of_driver(None)


def test_every_abi_of_every_name_is_found_by_its_symbol(where: Probe) -> None:
    for row in driver_rows():
        assert ask(where, "symbol", row.symbol) == of_driver(row)


@pytest.mark.parametrize("name", ["cuLaunchKernel", "nvmlDeviceGetMemoryInfo"])
def test_where_no_driver_is_loaded_nothing_of_it_is_found(where: Probe, name: str) -> None:
    assert ask(where, "default", name) == {"file": "", "name": "", "error": True}


def test_a_driver_that_is_loaded_for_all_is_hooked_for_all(where: Probe) -> None:
    answer = ask(where, "global", "cuLaunchKernel")
    assert answer == {"file": OURS, "name": "cuLaunchKernel", "error": False}
    answer = ask(where, "default", "cuLaunchKernel")
    assert answer == {"file": OURS, "name": "cuLaunchKernel", "error": False}


def test_a_versioned_lookup_fails_as_it_does_without_us(machine: Machine, where: Probe) -> None:
    """The driver's symbols have no versions, so that dlvsym finds none of them."""
    with machine.run(["where"], {}, preload="") as alone:
        for name in ("cuLaunchKernel", "cuNoSuchThing"):
            nothing = {"file": "", "name": "", "error": True}
            assert ask(where, "version", name, "CUDA_1") == nothing
            assert ask(alone, "version", name, "CUDA_1") == nothing


def test_the_path_by_which_the_driver_is_opened_makes_no_difference(
    machine: Machine, where: Probe
) -> None:
    for library, name in [(DRIVER, "cuLaunchKernel"), (NVML, "nvmlDeviceGetMemoryInfo_v2")]:
        for path in (library, machine.path("fakegpu") / library):
            answer = ask(where, "file", path, name)
            assert answer == {"file": OURS, "name": name, "error": False}


@pytest.mark.parametrize("name", ["cuLaunchKernel", "cuDeviceGet"])
def test_a_plugin_finds_what_it_finds_without_us(machine: Machine, where: Probe, name: str) -> None:
    """A plugin that is linked to the driver and loaded for itself alone."""
    tests = {"LD_LIBRARY_PATH": f"{machine.path('fakegpu')}:{machine.path('tests')}"}
    with machine.run(["where"], tests, preload="") as alone:
        assert ask(alone, "local", name) == {"file": DRIVER, "name": name, "error": False}
        assert ask(alone, "local", "cuNoSuchThing")["error"]
    assert ask(where, "local", name) == of_driver(row_of(name))
    assert ask(where, "local", "cuNoSuchThing") == {"file": "", "name": "", "error": True}


def row_of(symbol: str) -> Row:
    return next(row for row in rows.read() if row.symbol == symbol)


@pytest.fixture(params=["libcuda.so.1", "libcopy.so.1"])
def copy(request: pytest.FixtureRequest, machine: Machine, folder: Path) -> Path:
    """Another driver, by this soname."""
    content = machine.path("fakegpu/libcuda.so.1").read_bytes()
    path = folder / "another-driver.so"
    path.write_bytes(content.replace(b"libcuda.so.1\0", f"{request.param}\0".encode()))
    return path


def test_a_second_driver_by_path_gives_the_functions_of_the_first(where: Probe, copy: Path) -> None:
    assert ask(where, "symbol", "cuInit")["file"] == OURS
    for row in driver_rows():
        assert ask(where, "file", copy, row.symbol) == of_driver(row)


@pytest.mark.parametrize("soname", [NVML, "libnvidia-cp.so.1"])
def test_a_second_nvml_by_path_gives_the_functions_of_the_first(
    machine: Machine, where: Probe, folder: Path, soname: str
) -> None:
    content = machine.path(f"fakegpu/{NVML}").read_bytes()
    path = folder / "another-nvml.so"
    path.write_bytes(content.replace(f"{NVML}\0".encode(), f"{soname}\0".encode()))
    assert ask(where, "nvml", "nvmlInit_v2")["file"] == NVML
    for row in rows.read():
        if row.is_nvml:
            found = ask(where, "file", path, row.symbol)
            assert found == {
                "file": OURS if row.body else NVML,
                "name": row.symbol,
                "error": False,
            }


COPY_PAST_THE_LIMIT = """
import ctypes, json, sys
drivers = [ctypes.CDLL(path) for path in sys.argv[1:]]
cuda, context, pointer = drivers[-1], ctypes.c_void_p(), ctypes.c_uint64()
results = [cuda.cuInit(0), cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0),
           cuda.cuCtxSetCurrent(context)]
results += [cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(512 << 20))
            for _ in range(3)]
print(json.dumps(results))
"""


@runs_python
@pytest.mark.parametrize("first", [[], ["libcuda.so.1"]])
def test_memory_of_a_second_driver_is_limited(
    machine: Machine, session: FakeSession, copy: Path, first: list[str]
) -> None:
    preload = {"LD_PRELOAD": str(machine.library)}
    done = subprocess.run(
        [sys.executable, "-c", COPY_PAST_THE_LIMIT, *first, copy],
        env=machine.environment() | session.environment | preload,
        capture_output=True,
        check=True,
    )
    assert json.loads(done.stdout) == [0, 0, 0, 0, 0, 2]


@pytest.fixture
def hidden(machine: Machine) -> Iterator[Probe]:
    """A program on a driver that exports no function, and has one of an ABI that came later."""
    libraries = f"{machine.path('tests/hidden')}:{machine.path('tests')}"
    with machine.run(["where"], {"LD_LIBRARY_PATH": libraries}) as started:
        yield started


def test_a_function_that_the_driver_does_not_export_is_hooked_by_its_version(
    hidden: Probe,
) -> None:
    answer = ask(hidden, "address", "cuMemGetInfo", 12000, 0)
    assert answer == {"file": OURS, "name": "cuMemGetInfo_v2", "error": False}
    answer = ask(hidden, "address", "cuMemGetInfo", 2000, 0)
    assert answer == {"file": OURS, "name": "cuMemGetInfo", "error": False}


def test_the_hook_of_such_a_function_calls_the_one_that_the_driver_gave(hidden: Probe) -> None:
    assert ask(hidden, "call", "cuMemGetInfo", 12000) == {"result": 4201}


def test_where_a_driver_answers_to_the_name_of_an_abi_that_is_hooked(hidden: Probe) -> None:
    answer = ask(hidden, "address", "cuMemGetInfo_v2", 2000, 0)
    assert answer == {"file": OURS, "name": "cuMemGetInfo_v2", "error": False}
    assert ask(hidden, "call", "cuMemGetInfo_v2", 2000) == {"result": 4201}


def test_an_abi_that_is_newer_than_the_list_is_handed_out_as_it_is(hidden: Probe) -> None:
    newer = ask(hidden, "address", "cuMemAlloc", 14000, 0)
    assert newer == {"file": DRIVER, "name": "", "error": False}
    assert ask(hidden, "call", "cuMemAlloc", 14000) == {"result": 4203}
    known = ask(hidden, "address", "cuMemAlloc", 13900, 0)
    assert known == {"file": OURS, "name": "cuMemAlloc_v2", "error": False}


def test_the_empty_name_is_answered_by_the_driver(where: Probe) -> None:
    no_such_symbol = 1
    assert ask(where, "empty") == {"result": 0, "is_null": True, "status": no_such_symbol}


def test_a_constructor_that_runs_before_main_gets_the_hooks(
    machine: Machine, session: FakeSession
) -> None:
    libraries = [machine.path("tests") / "libconstructor.so", machine.library]
    for order in (libraries, libraries[::-1]):
        preload = " ".join(map(str, order))
        with machine.run(["where"], session.environment, preload=preload) as where:
            answer = ask(where, "constructed")
            assert answer == {"file": OURS, "name": "cuLaunchKernel", "error": False}


def test_bypass_an_object_bound_deeply_gets_the_drivers_own_functions(where: Probe) -> None:
    for way in ("deep-linked", "deep-dlsym"):
        answer = ask(where, way, "cuLaunchKernel")
        assert answer == {"file": DRIVER, "name": "cuLaunchKernel", "error": False}


def test_bypass_a_driver_in_a_namespace_of_its_own_is_not_hooked(where: Probe) -> None:
    answer = ask(where, "namespace", "cuLaunchKernel")
    assert answer == {"file": DRIVER, "name": "cuLaunchKernel", "error": False}
    assert ask(where, "symbol", "cuLaunchKernel")["file"] == OURS


def test_a_name_newer_than_the_version_asked_for_stays_absent(where: Probe) -> None:
    assert ask(where, "address", "cuLaunchKernelEx", 11050, 0)["file"] == ""


def test_an_object_that_asks_for_what_is_behind_it_gets_the_hook(where: Probe) -> None:
    answer = ask(where, "behind", "cuLaunchKernel")
    assert answer == {"file": OURS, "name": "cuLaunchKernel", "error": False}
    assert ask(where, "behind", "cuDeviceGet")["file"] == DRIVER
    assert ask(where, "behind", "cuNoSuchThing") == {"file": "", "name": "", "error": True}


def test_rtld_next_means_the_next_library_of_the_one_that_asks(machine: Machine) -> None:
    folder = machine.path("tests")
    order = [machine.library, folder / "libtrampoline.so", folder / "libtrampoline-2.so"]
    with machine.run(["where"], {}, preload=" ".join(map(str, order))) as where:
        assert ask(where, "next") == {"marker": 2}


def start_interposed(machine: Machine, session: FakeSession, names: str) -> Probe:
    """A program whose `dlsym` is an earlier object's; it keeps these functions from the library."""
    preload = f"{machine.path('tests/libinterposer.so')} {machine.library}"
    environment = session.environment | {"INTERPOSED": names}
    return machine.start(environment, "dlsym", preload=preload)


def test_an_earlier_object_that_passes_all_calls_of_dlsym_on_changes_nothing(
    machine: Machine, session: FakeSession
) -> None:
    with start_interposed(machine, session, "none") as probe:
        probe.do("init")
        probe.do("retain", 0)
        session.accept()
        assert probe.do("info")["total"] == 1 << 30
        probe.send("launch", "kernel", 1000, 1)
        assert probe.is_silent()
        session.open()
        assert probe.answer()["result"] == 0


def test_bypass_what_an_earlier_object_keeps_from_the_library_is_not_hooked(
    machine: Machine, session: FakeSession
) -> None:
    with start_interposed(machine, session, "cuLaunchKernel") as probe:
        probe.do("init")
        probe.do("retain", 0)
        session.accept()
        probe.do("launch", "kernel", 1000, 1)
        assert probe.do("info")["total"] == 1 << 30
