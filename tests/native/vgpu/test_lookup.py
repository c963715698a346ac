"""Functions are swapped by what the driver answers, and nothing else is touched."""

from collections.abc import Iterator

import pytest

from kubeshare import native
from vgpu_claim import Machine, Probe

pytestmark = pytest.mark.native

OURS = "libkubeshare-vgpu.so"
DRIVER = "libcuda.so.1"
PER_THREAD = 2
EXPORTS = native.path("generated/exports.txt")


@pytest.fixture
def where(machine: Machine) -> Iterator[Probe]:
    tests = {"LD_LIBRARY_PATH": f"{native.path('fakegpu')}:{native.path('tests')}"}
    with machine.run(["where"], tests) as started:
        yield started


def ask(where: Probe, *words: object) -> dict[str, object]:
    where.tell(*words)
    return where.answer()


def test_every_hooked_name_is_ours_and_no_error_stays_behind(where: Probe) -> None:
    for name in EXPORTS.read_text().split():
        if name.startswith(("cu", "nvml")):
            library = "nvml" if name.startswith("nvml") else "symbol"
            answer = ask(where, library, name)
            assert answer == {"file": OURS, "name": name, "error": False}


@pytest.mark.parametrize("name", ["cuDeviceGet", "cuCtxGetCurrent", "cuStreamCreate"])
def test_other_functions_are_the_drivers(where: Probe, name: str) -> None:
    assert ask(where, "symbol", name) == {"file": DRIVER, "name": name, "error": False}
    assert ask(where, "address", name, 12000, 0)["file"] == DRIVER


def test_a_name_that_does_not_exist_is_an_error_as_always(where: Probe) -> None:
    assert ask(where, "symbol", "cuNoSuchThing") == {"file": "", "name": "", "error": True}
    assert ask(where, "address", "cuNoSuchThing", 12000, 0)["file"] == ""


def test_a_function_that_only_bears_a_drivers_name_is_left_alone(where: Probe) -> None:
    answer = ask(where, "trampoline", "cuMemAlloc_v2")
    assert answer == {"file": "libtrampoline.so", "name": "cuMemAlloc_v2", "error": False}


@pytest.mark.parametrize(
    ("base", "version", "flags", "exported"),
    [
        ("cuMemAlloc", 2000, 0, "cuMemAlloc"),
        ("cuMemAlloc", 3010, 0, "cuMemAlloc"),
        ("cuMemAlloc", 3020, 0, "cuMemAlloc_v2"),
        ("cuMemAlloc", 13000, 0, "cuMemAlloc_v2"),
        ("cuGetProcAddress", 11030, 0, "cuGetProcAddress"),
        ("cuGetProcAddress", 12000, 0, "cuGetProcAddress_v2"),
        ("cuCtxCreate", 3020, 0, "cuCtxCreate_v2"),
        ("cuCtxCreate", 11040, 0, "cuCtxCreate_v3"),
        ("cuCtxCreate", 13000, 0, "cuCtxCreate_v4"),
        ("cuDevicePrimaryCtxReset", 7000, 0, "cuDevicePrimaryCtxReset"),
        ("cuDevicePrimaryCtxReset", 11000, 0, "cuDevicePrimaryCtxReset_v2"),
        ("cuLaunchKernel", 12000, 0, "cuLaunchKernel"),
        ("cuLaunchKernel", 12000, PER_THREAD, "cuLaunchKernel_ptsz"),
        ("cuMemsetD8", 12000, PER_THREAD, "cuMemsetD8_v2_ptds"),
        ("cuMemsetD2D16Async", 12000, PER_THREAD, "cuMemsetD2D16Async_ptsz"),
        ("cuMemFree", 12000, PER_THREAD, "cuMemFree_v2"),
    ],
)
def test_cu_get_proc_address_gives_the_hook_of_the_abi_that_was_asked_for(
    where: Probe, base: str, version: int, flags: int, exported: str
) -> None:
    answer = ask(where, "address", base, version, flags)
    assert answer == {"file": OURS, "name": exported, "error": False}


def test_a_name_newer_than_the_version_asked_for_stays_absent(where: Probe) -> None:
    assert ask(where, "address", "cuLaunchKernelEx", 11050, 0)["file"] == ""


def test_rtld_next_means_the_next_library_of_the_one_that_asks(machine: Machine) -> None:
    folder = native.path("tests")
    order = [machine.library, folder / "libtrampoline.so", folder / "libtrampoline-2.so"]
    with machine.run(["where"], {}, preload=" ".join(map(str, order))) as where:
        assert ask(where, "next") == {"marker": 2}
