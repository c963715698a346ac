"""Where more of a GPU's memory is given out than it has, managed memory serves the rest."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from fakes.session import MIB, FakeSession, Machine, Probe, eventually
from kubeshare.tokens.files import counters

pytestmark = pytest.mark.native

GI = 1024 * MIB
LIMIT = 20 * GI  # of a GPU that has 16 GiB
INVALID_VALUE, OUT_OF_MEMORY = 1, 2
GLOBAL = 0  # mode of a capture


@pytest.fixture
def session(folder: Path, machine: Machine) -> Iterator[FakeSession]:
    """20 of 24 GiB of a GPU that has 16."""
    share = machine.grant()
    share = msgspec.structs.replace(
        share,
        memory_bytes=LIMIT,
        memory_total_bytes=24 * GI,
        physical_memory_bytes=share.memory_total_bytes,
    )
    with FakeSession(folder, [share]) as made:
        made.open()
        yield made


@pytest.fixture
def neighbour(machine: Machine) -> Iterator[Probe]:
    """A program of another share, which has all of the GPU's memory but 4 MiB."""
    with machine.start({}, preload="") as started:
        started.do("init")
        started.do("retain", 0)
        started.do("hold", "linear", machine.gpu()["total_memory"] - 4 * MIB)
        yield started


def begin(session: FakeSession, probe: Probe) -> None:
    probe.do("init")
    probe.do("retain", 0)
    session.accept()


def spilled(session: FakeSession) -> int:
    return counters.read(session.counters)[0].spilled_bytes


@pytest.mark.parametrize("form", ["linear", "linear-in-stream", "pitched"])
@pytest.mark.usefixtures("neighbour")
def test_what_the_gpu_has_no_room_for_is_managed_memory(
    machine: Machine, session: FakeSession, probe: Probe, form: str
) -> None:
    begin(session, probe)
    before = machine.gpu()["used_memory"]
    on_the_gpu = probe.do("hold", form, 4 * MIB)["index"]
    assert (session.charged(), spilled(session)) == (4 * MIB, 0)

    index = probe.do("hold", form, 8 * MIB)["index"]
    assert (session.charged(), spilled(session)) == (12 * MIB, 8 * MIB)
    assert machine.gpu()["used_memory"] == before + 4 * MIB
    probe.do("drop", index)
    assert (session.charged(), spilled(session)) == (4 * MIB, 0)
    probe.do("drop", on_the_gpu)
    assert session.charged() == 0


@pytest.mark.usefixtures("neighbour")
def test_what_was_spilled_is_freed_when_its_stream_comes_to_that_beside_a_capture(
    session: FakeSession, work: Probe
) -> None:
    session.accept()
    before = session.charged()
    work.do("alloc", 8 * MIB)
    work.do("wait", 1, 7)
    work.do("begin", 0, GLOBAL)
    work.do("free", 1)
    for again in (("free", 1), ("free-now",)):
        work.do(*again, expect=INVALID_VALUE)
    work.do("end", 0)
    assert (session.charged(), spilled(session)) == (before + 8 * MIB, 8 * MIB)
    work.do("pass", 0, 7)
    work.do("sync")
    assert (session.charged(), spilled(session)) == (before, 0)


@pytest.mark.usefixtures("neighbour")
def test_a_free_in_one_stream_does_not_wait_for_the_work_of_another(
    session: FakeSession, work: Probe
) -> None:
    session.accept()
    before = session.charged()
    work.do("wait", 1, 7)
    for _ in range(2):
        work.do("alloc", 8 * MIB)
        work.do("free", 0)
        work.do("finish", 0)
    assert (session.charged(), spilled(session)) == (before + 16 * MIB, 16 * MIB)
    work.do("pass", 0, 7)
    work.do("sync")
    assert (session.charged(), spilled(session)) == (before, 0)


@pytest.mark.usefixtures("neighbour")
def test_what_was_spilled_and_freed_makes_way_for_who_needs_it(
    session: FakeSession, work: Probe
) -> None:
    session.accept()
    work.do("alloc", LIMIT - 2 * MIB)
    work.do("free", 1)

    def is_served() -> bool:
        return bool(work.do("alloc", LIMIT - 2 * MIB, expect=None)["result"] == 0)

    assert eventually(is_served)
    assert spilled(session) == LIMIT - 2 * MIB


def test_a_share_may_be_larger_than_the_gpu_and_stays_a_hard_limit(
    session: FakeSession, probe: Probe
) -> None:
    begin(session, probe)
    pointer = probe.do("alloc", 18 * GI)["pointer"]
    probe.do("alloc", LIMIT - 18 * GI)
    assert session.charged() == LIMIT
    probe.do("alloc", 1, expect=OUT_OF_MEMORY)
    probe.do("managed", 1, expect=OUT_OF_MEMORY)
    probe.do("free", pointer)
    assert (session.charged(), spilled(session)) == (2 * GI, 0)


@pytest.mark.usefixtures("neighbour")
def test_every_query_says_that_the_whole_share_can_be_allocated(
    session: FakeSession, probe: Probe
) -> None:
    begin(session, probe)
    probe.do("alloc", 2 * GI)
    info = probe.do("info")
    assert (info["total"], info["device_total"], info["free"]) == (LIMIT, LIMIT, 18 * GI)
    nvml = probe.do("nvml")
    assert (nvml["total"], nvml["free"], nvml["used"]) == (LIMIT, 18 * GI, 2 * GI)


@pytest.mark.usefixtures("neighbour")
def test_what_was_spilled_ends_with_its_context(session: FakeSession, probe: Probe) -> None:
    begin(session, probe)
    probe.do("alloc", GI)
    assert spilled(session) == GI
    probe.do("release", 0)
    assert (session.charged(), spilled(session)) == (0, 0)


@pytest.mark.usefixtures("neighbour")
def test_only_linear_memory_is_served_in_this_way(session: FakeSession, probe: Probe) -> None:
    begin(session, probe)
    for form in ("stream", "physical", "array"):
        probe.do("hold", form, 64 * MIB, expect=OUT_OF_MEMORY)
        assert session.charged() == 0


@pytest.mark.usefixtures("neighbour")
def test_without_oversubscription_what_the_gpu_lacks_is_refused(
    machine: Machine, folder: Path
) -> None:
    plain = folder / "plain"
    plain.mkdir()
    with FakeSession(plain, [machine.grant()]) as session:
        session.open()
        with machine.start(session.environment) as probe:
            begin(session, probe)
            probe.do("alloc", 64 * MIB, expect=OUT_OF_MEMORY)
            assert session.charged() == 0
