"""To a claim, a GPU is used by the claim's own processes and by nobody else."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fakes.session import MIB, FakeSession, Machine, Probe
from kubeshare import native
from kubeshare.tokens.wire.protocol import PAGE_HEADER

pytestmark = pytest.mark.native

ASKING = Path(__file__).with_name("nvml_lists.py")
LISTS = ["", "_v2", "_v3"]
NO_INSTANCE = 0xFFFFFFFF
SUCCESS, INVALID_ARGUMENT, NOT_FOUND, INSUFFICIENT_SIZE = 0, 2, 6, 7


@pytest.fixture
def asking(machine: Machine, session: FakeSession) -> Iterator[Probe]:
    """A program that asks an NVML whose GPU strangers use too."""
    libraries = f"{native.path('tests/stub')}:{native.path('fakegpu')}"
    environment = {"LD_LIBRARY_PATH": libraries, "STUB_UUID": machine.grant().uuid}
    with machine.run([sys.executable, str(ASKING)], session.environment | environment) as started:
        yield started


def test_the_processes_that_compute_are_the_claims_with_what_they_are_charged(
    machine: Machine, session: FakeSession, asking: Probe
) -> None:
    with machine.start(session.environment) as other:
        other.do("init")
        other.do("retain", 0)
        other.do("alloc", 300 * MIB)
        asking.do("alloc", 20 * MIB)
        for version in LISTS:
            answer = asking.do("list", "Compute", version or "-", 8)
            used = {entry["pid"]: entry["bytes"] for entry in answer["entries"]}
            assert used == {asking.process.pid: 20 * MIB, other.process.pid: 300 * MIB}
        answer = asking.do("details", 0, 8)
        assert {entry["pid"] for entry in answer["entries"]} == used.keys()
        assert other.finish() == 0
    (entry,) = asking.do("list", "Compute", "_v3", 8)["entries"]
    assert entry == {
        "pid": asking.process.pid,
        "bytes": 20 * MIB,
        "instances": [NO_INSTANCE, NO_INSTANCE],
    }


@pytest.mark.parametrize("version", LISTS)
def test_a_list_says_how_much_room_it_needs_and_never_takes_more(
    asking: Probe, version: str
) -> None:
    asking.do("alloc", MIB)
    for kind, needed in [("Compute", 1), ("Graphics", 3), ("MPSCompute", 3)]:
        answer = asking.do("list", kind, version or "-", 0, expect=INSUFFICIENT_SIZE)
        assert (answer["count"], answer["touched"]) == (needed, False)
        answer = asking.do("list", kind, version or "-", needed)
        assert (answer["count"], answer["touched"]) == (1, False)


def test_nobody_uses_a_gpu_that_the_claim_has_not_touched(asking: Probe) -> None:
    for version in LISTS:
        for kind in ("Compute", "Graphics", "MPSCompute"):
            answer = asking.do("list", kind, version or "-", 8)
            assert (answer["count"], answer["entries"]) == (0, [])


@pytest.mark.parametrize("kind", ["Graphics", "MPSCompute"])
def test_of_the_drivers_other_lists_the_claims_processes_stay(asking: Probe, kind: str) -> None:
    asking.do("alloc", MIB)
    for version in LISTS:
        (entry,) = asking.do("list", kind, version or "-", 8)["entries"]
        assert entry["pid"] == asking.process.pid
    graphics = 1
    (entry,) = asking.do("details", graphics, 8)["entries"]
    assert entry["pid"] == asking.process.pid


def test_utilisation_is_told_of_the_claims_processes_alone(asking: Probe) -> None:
    for question in ("samples", "usages"):
        asking.do(question, 8, expect=NOT_FOUND)
    asking.do("alloc", MIB)
    for question in ("samples", "usages"):
        answer = asking.do(question, 8)
        assert answer["pids"] == [asking.process.pid]
        asking.do(question, 1, expect=INSUFFICIENT_SIZE)


def test_the_drivers_refusals_are_passed_on(asking: Probe) -> None:
    for version in LISTS:
        asking.do("nowhere", "Compute", version or "-", expect=INVALID_ARGUMENT)


def test_the_window_to_the_memory_is_as_large_as_the_limit(asking: Probe) -> None:
    asking.do("alloc", 24 * MIB)
    assert asking.do("bar1")["memory"] == [1024 * MIB, 1000 * MIB, 24 * MIB]


# Utilisation: the stub says 80 and 60. A time that has not come yet keeps the average as it is,
# however long the question takes.
NEVER = 2**62
LONG_AGO = 0


@pytest.mark.parametrize(
    ("used", "at_ns", "percent"),
    [(500_000, NEVER, [50, 50]), (700_000, NEVER, [70, 60]), (900_000, NEVER, [80, 60])],
)
def test_utilisation_of_the_gpu_is_the_sessions_at_most(
    session: FakeSession, asking: Probe, used: int, at_ns: int, percent: list[int]
) -> None:
    session.page.set_use(0, used, at_ns)
    assert asking.do("rates")["percent"] == percent


def test_utilisation_fades_while_the_gate_is_closed_and_grows_while_it_is_open(
    session: FakeSession, asking: Probe
) -> None:
    session.page.set_use(0, 900_000, LONG_AGO)
    assert asking.do("rates")["percent"] == [0, 0]
    session.open()
    assert asking.do("rates")["percent"] == [80, 60], "alone: what the whole GPU does"


def test_on_a_page_of_an_earlier_daemon_utilisation_is_the_whole_gpus(
    session: FakeSession, asking: Probe
) -> None:
    with (session.folder / "page").open("r+b") as page:
        *header, _ = PAGE_HEADER.unpack(page.read(PAGE_HEADER.size))
        page.seek(0)
        page.write(PAGE_HEADER.pack(*header, 0))
    assert asking.do("rates")["percent"] == [80, 60]
