"""The limit on memory: for all processes of a claim together, to the byte."""

from pathlib import Path

import pytest

from fakes.session import MIB, FakeSession, Machine, Probe

pytestmark = pytest.mark.native

PATHS = [
    "direct",
    "default",
    "dlsym",
    "dlsym-ptsz",
    "dlvsym",
    "address",
    "address-v2",
    "address-ptsz",
]
LIMIT = 1024 * MIB
OUT_OF_MEMORY = 2


def begin(probe: Probe) -> None:
    probe.do("init")
    probe.do("retain", 0)


@pytest.mark.parametrize("path", PATHS)
def test_over_the_limit_is_out_of_memory_and_the_process_goes_on(
    machine: Machine, session: FakeSession, path: str
) -> None:
    with machine.start(session.environment, path) as probe:
        begin(probe)
        held = probe.do("alloc", LIMIT - 4 * MIB)["pointer"]
        probe.do("alloc", 4 * MIB + 1, expect=OUT_OF_MEMORY)
        probe.do("pitch", MIB, 5, expect=OUT_OF_MEMORY)
        probe.do("managed", 5 * MIB, expect=OUT_OF_MEMORY)
        probe.do("alloc32", 5 * MIB, expect=OUT_OF_MEMORY)
        last = probe.do("alloc", 4 * MIB)["pointer"]
        assert session.charged() == LIMIT
        probe.do("alloc", 1, expect=OUT_OF_MEMORY)
        probe.do("free", held)
        probe.do("free", last)
        assert session.charged() == 0
        probe.do("alloc", LIMIT)


@pytest.mark.parametrize("path", PATHS)
def test_every_question_is_answered_with_the_limit(
    machine: Machine, session: FakeSession, path: str
) -> None:
    with machine.start(session.environment, path) as probe:
        begin(probe)
        probe.do("alloc", 24 * MIB)
        answer = probe.do("info")
        assert answer["total"] == answer["device_total"] == LIMIT
        assert answer["free"] == answer["free_alone"] == LIMIT - 24 * MIB
        nvml = probe.do("nvml")
        assert nvml["total"] == nvml["v2_total"] == LIMIT
        assert nvml["free"] == nvml["v2_free"] == LIMIT - 24 * MIB
        assert nvml["used"] == nvml["v2_used"] == 24 * MIB
        assert nvml["v2_reserved"] == 0


def test_free_is_no_more_than_the_gpu_itself_has_left(folder: Path, machine: Machine) -> None:
    total = machine.gpu()["total_memory"]
    with (
        FakeSession(folder, [machine.grant(memory=total)]) as session,
        machine.start({}, preload="") as stranger,
        machine.start(session.environment) as probe,
    ):
        begin(stranger)
        stranger.do("alloc", 3 * LIMIT)
        begin(probe)
        answer = probe.do("info")
        assert (answer["free"], answer["total"]) == (total - 3 * LIMIT, total)


def test_a_pitched_allocation_is_charged_with_its_padding(
    session: FakeSession, probe: Probe
) -> None:
    begin(probe)
    pointer = probe.do("pitch", 513, 100)["pointer"]
    assert session.charged() == 1024 * 100
    probe.do("free", pointer)
    assert session.charged() == 0


def test_a_pitched_allocation_of_absurd_size_is_out_of_memory(probe: Probe) -> None:
    begin(probe)
    probe.do("pitch", 2**64 - 1, 2**63, expect=OUT_OF_MEMORY)
    probe.do("alloc", LIMIT)


def test_what_the_driver_refuses_is_not_charged(session: FakeSession, probe: Probe) -> None:
    begin(probe)
    probe.do("alloc", 0, expect=1)
    probe.do("managed", 0, expect=1)
    probe.do("alloc32", 0, expect=1)
    assert session.charged() == 0


def test_the_first_abi_is_charged_and_given_back(session: FakeSession, probe: Probe) -> None:
    begin(probe)
    pointer = probe.do("alloc32", MIB)["pointer"]
    assert session.charged() == 2 * MIB
    probe.do("free", pointer)
    assert session.charged() == 0


def test_an_unknown_pointer_is_the_drivers_own_matter(session: FakeSession, probe: Probe) -> None:
    begin(probe)
    pointer = probe.do("alloc", 2 * MIB)["pointer"]
    probe.do("free", pointer + 512, expect=1)
    probe.do("free", 0)
    assert session.charged() == 2 * MIB
    probe.do("free", pointer)
    probe.do("free", pointer, expect=1)
    assert session.charged() == 0


def test_eight_threads_never_hold_a_byte_more_than_the_limit(
    session: FakeSession, probe: Probe
) -> None:
    begin(probe)
    session.accept()
    session.open()
    piece = LIMIT // 3 - 1
    answer = probe.do("hammer", 8, piece, 200)
    assert answer["most"] <= LIMIT
    assert answer["refused"] > 0
    assert session.charged() == 0


def test_processes_of_a_claim_share_its_limit(machine: Machine, session: FakeSession) -> None:
    with machine.start(session.environment) as one, machine.start(session.environment) as other:
        begin(one)
        begin(other)
        one.do("alloc", 600 * MIB)
        other.do("alloc", 425 * MIB, expect=OUT_OF_MEMORY)
        other.do("alloc", 424 * MIB)
        assert one.do("info")["free"] == other.do("info")["free"] == 0


def test_processes_that_allocate_at_once_stay_within_the_limit(
    machine: Machine, session: FakeSession
) -> None:
    piece = 200 * MIB
    probes = [machine.start(session.environment) for _ in range(4)]
    for probe in probes:
        begin(probe)
    for _ in probes:
        session.accept()
    session.open()
    for probe in probes:
        probe.send("hammer", 2, piece, 100)
    assert all(session.charged() <= LIMIT for _ in range(50))
    answers = [probe.answer() for probe in probes]
    assert [answer["result"] for answer in answers] == [0] * 4
    assert session.charged() == 0
    for probe in probes:
        with probe:
            assert probe.finish() == 0


def test_what_a_killed_process_held_comes_back(machine: Machine, session: FakeSession) -> None:
    with machine.start(session.environment) as probe, machine.start(session.environment) as other:
        begin(probe)
        begin(other)
        probe.do("alloc", LIMIT)
        other.do("alloc", 2 * MIB, expect=OUT_OF_MEMORY)
        probe.kill()
        assert other.do("info")["free"] == LIMIT
        other.do("alloc", LIMIT)


def test_a_context_that_ends_gives_back_what_was_in_it(session: FakeSession, probe: Probe) -> None:
    begin(probe)
    probe.do("alloc", 10 * MIB)
    probe.do("create", 0)
    probe.do("alloc", 20 * MIB)
    assert session.charged() == 30 * MIB
    probe.do("destroy")
    assert session.charged() == 10 * MIB
    probe.do("release", 0)
    assert session.charged() == 0


def test_three_thousand_allocations_are_all_known_when_they_are_freed(
    session: FakeSession, probe: Probe
) -> None:
    begin(probe)
    pointers = [probe.do("alloc", 512)["pointer"] for _ in range(3000)]
    assert session.charged() == 3000 * 512
    for pointer in pointers:
        probe.do("free", pointer)
    assert session.charged() == 0


def test_each_gpu_of_a_claim_has_its_own_limit(folder: Path) -> None:
    machine = Machine(folder, "V100x2")
    grants = [machine.grant(1, memory=100 * MIB), machine.grant(0, memory=200 * MIB)]
    with FakeSession(folder, grants) as session, machine.start(session.environment) as probe:
        begin(probe)
        probe.do("alloc", 200 * MIB)
        assert (session.charged(0), session.charged(1)) == (0, 200 * MIB)
        probe.do("retain", 1)
        probe.do("alloc", 101 * MIB, expect=OUT_OF_MEMORY)
        probe.do("alloc", 100 * MIB)
        assert session.charged(0) == 100 * MIB


def test_an_allocation_in_a_stream_asks_the_driver_one_question_and_its_free_none(
    machine: Machine, session: FakeSession
) -> None:
    """Each takes a real driver as long as the library takes for all else: unseen on the stub."""
    pairs = 100
    stub = {"LD_LIBRARY_PATH": str(machine.path("stub"))}
    bench = ["../allocation-bench", str(pairs), "stream"]
    with machine.run(bench, session.environment | stub) as running:
        printed = running.answer()
        assert running.finish() == 0
    assert printed["asked_by_allocations"] == pairs, "each asks for what its pool has reserved"
    assert printed["asked_by_frees"] == 0
