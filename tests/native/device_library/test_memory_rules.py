"""What the account does where the simple sum is not the whole story."""

from pathlib import Path

import pytest

from fakes.session import MIB, FakeSession, Machine, Probe
from kubeshare.tokens.files import counters
from kubeshare.tokens.wire import protocol
from kubeshare.tokens.wire.protocol import GrantState

pytestmark = pytest.mark.native

LIMIT = 1024 * MIB
CHUNK = 32 * MIB  # what the driver takes at once for a pool
OUT_OF_MEMORY = 2
NOT_PERMITTED = 800
STACK_SIZE, MALLOC_HEAP = 0, 2
COUNTS = 8  # in a slot, behind used and pid
THREADS = 80 * 2048  # that a V100 can run at once


def begin(session: FakeSession, probe: Probe) -> None:
    probe.do("init")
    probe.do("retain", 0)
    session.accept()
    session.open()


def taken(machine: Machine) -> int:
    return int(machine.gpu()["used_memory"])


def test_what_a_pool_keeps_stays_charged_until_it_is_trimmed(
    machine: Machine, session: FakeSession, probe: Probe
) -> None:
    begin(session, probe)
    probe.do("keep", LIMIT)
    index = probe.do("hold", "stream", 100 * MIB)["index"]
    probe.do("drop", index)
    assert session.charged() == taken(machine) == 128 * MIB
    assert probe.do("info")["free"] == LIMIT - 128 * MIB
    probe.do("trim", 0)
    assert session.charged() == taken(machine) == 0


def test_what_a_pool_keeps_makes_way_for_who_needs_it(
    machine: Machine, session: FakeSession, probe: Probe
) -> None:
    begin(session, probe)
    probe.do("keep", LIMIT)
    index = probe.do("hold", "stream", LIMIT)["index"]
    probe.do("drop", index)
    assert session.charged() == LIMIT
    probe.do("hold", "linear", LIMIT)
    assert session.charged() == taken(machine) == LIMIT


def test_a_pool_with_room_gives_out_at_the_limit_what_fits_it(
    machine: Machine, session: FakeSession, probe: Probe
) -> None:
    begin(session, probe)
    probe.do("hold", "stream", 600)
    probe.do("hold", "linear", LIMIT - CHUNK)
    for _ in range(20):
        probe.do("hold", "stream", MIB)
    assert session.charged() == taken(machine) == LIMIT
    probe.do("hold", "stream", 16 * MIB, expect=OUT_OF_MEMORY)
    assert taken(machine) == LIMIT


def test_the_pool_that_the_device_allocates_from_now_is_charged(
    machine: Machine, session: FakeSession, probe: Probe
) -> None:
    begin(session, probe)
    for reserved, form in enumerate(["stream", "pool-chosen", "pool-chosen"], start=1):
        index = probe.do("hold", form, 600)["index"]
        assert session.charged() == taken(machine) == reserved * CHUNK
    probe.do("hold", "stream", CHUNK - MIB)  # beside 600 bytes of the last one
    assert session.charged() == taken(machine) == 3 * CHUNK
    probe.do("drop", index)  # with its pool, which memory is still held of
    assert session.charged() == taken(machine)
    probe.do("hold", "stream", CHUNK - MIB)  # from the device's own
    assert session.charged() == taken(machine) == 3 * CHUNK


def test_a_pool_does_not_grow_where_no_chunk_is_left(
    machine: Machine, session: FakeSession, probe: Probe
) -> None:
    begin(session, probe)
    probe.do("hold", "linear", LIMIT - CHUNK + 2 * MIB)
    probe.do("hold", "stream", 600, expect=OUT_OF_MEMORY)
    assert session.charged() == taken(machine) == LIMIT - CHUNK + 2 * MIB


def test_what_contexts_and_code_need_is_no_longer_to_be_had(
    session: FakeSession, probe: Probe
) -> None:
    begin(session, probe)
    probe.do("hold", "linear", 24 * MIB)
    session.page.set_overhead(0, 500 * MIB)
    assert probe.do("info")["free"] == 500 * MIB
    assert probe.do("nvml")["used"] == 524 * MIB
    probe.do("hold", "linear", 502 * MIB, expect=OUT_OF_MEMORY)
    probe.do("hold", "linear", 500 * MIB)
    session.page.set_overhead(0, 2 * LIMIT)
    assert probe.do("info")["free"] == 0
    probe.do("hold", "linear", 1, expect=OUT_OF_MEMORY)
    session.page.set_overhead(0, 0)
    probe.do("hold", "linear", 500 * MIB)
    assert session.charged() == LIMIT


def test_a_limit_below_one_page_still_holds_small_allocations(
    folder: Path, machine: Machine
) -> None:
    with (
        FakeSession(folder, [machine.grant(memory=MIB)]) as session,
        machine.start(session.environment) as probe,
    ):
        begin(session, probe)
        assert probe.do("info")["total"] == MIB
        probe.do("hold", "linear", MIB, expect=OUT_OF_MEMORY)
        probe.do("hold", "stream", 1, expect=OUT_OF_MEMORY)
        probe.do("hold", "linear", MIB - 512)
        probe.do("hold", "linear", 1)
        probe.do("hold", "linear", 1, expect=OUT_OF_MEMORY)
        assert session.charged() == taken(machine) == MIB


def test_a_limit_below_one_unit_holds_nothing(folder: Path, machine: Machine) -> None:
    with (
        FakeSession(folder, [machine.grant(memory=511)]) as session,
        machine.start(session.environment) as probe,
    ):
        begin(session, probe)
        probe.do("hold", "linear", 1, expect=OUT_OF_MEMORY)
        answer = probe.do("info")
        assert (answer["free"], answer["total"]) == (511, 511)


def test_a_context_that_ends_gives_back_what_ends_with_it(
    machine: Machine, session: FakeSession, probe: Probe
) -> None:
    begin(session, probe)
    probe.do("create", 0)
    for form in ("linear", "array", "mipmapped", "physical", "stream"):
        probe.do("hold", form, 8 * MIB)
    probe.do("limit", MALLOC_HEAP, 64 * MIB)
    probe.do("destroy")
    assert session.charged() == taken(machine) == 8 * MIB + CHUNK
    probe.do("release", 0)
    assert session.charged() == taken(machine)


def test_what_a_limit_of_a_context_takes_is_charged(
    machine: Machine, session: FakeSession, probe: Probe
) -> None:
    begin(session, probe)
    probe.do("limit", STACK_SIZE, 2048)
    assert session.charged() == taken(machine) == 1024 * THREADS
    probe.do("limit", MALLOC_HEAP, 108 * MIB)
    assert session.charged() == taken(machine) == 1024 * THREADS + 100 * MIB
    probe.do("limit", STACK_SIZE, 16 * 1024, expect=OUT_OF_MEMORY)
    assert session.charged() == taken(machine) == 1024 * THREADS + 100 * MIB
    probe.do("limit", STACK_SIZE, 1024)
    probe.do("limit", MALLOC_HEAP, 8 * MIB)
    assert session.charged() == taken(machine) == 0


@pytest.mark.parametrize(
    "form", ["linear", "pitched", "managed", "stream", "pool", "physical", "array", "mipmapped"]
)
def test_who_lost_its_grant_allocates_nothing(
    session: FakeSession, probe: Probe, form: str
) -> None:
    begin(session, probe)
    session.page.set_grant_state(GrantState.REVOKED)
    probe.do("hold", form, 8 * MIB, expect=NOT_PERMITTED)
    assert session.charged() == 0


def test_what_a_process_set_aside_is_to_be_had_for_another(
    machine: Machine, session: FakeSession
) -> None:
    with machine.start(session.environment) as one, machine.start(session.environment) as other:
        begin(session, one)
        begin(session, other)
        for _ in range(3):
            index = one.do("hold", "linear", 2 * MIB)["index"]
            one.do("drop", index)
            index = other.do("hold", "linear", LIMIT)["index"]
            one.do("hold", "linear", 1, expect=OUT_OF_MEMORY)
            other.do("drop", index)
        assert session.charged() == 0


@pytest.mark.parametrize("form", ["linear", "physical-for-others"])
def test_who_shares_memory_pays_for_it_and_nobody_else(
    machine: Machine, session: FakeSession, form: str
) -> None:
    with machine.start(session.environment) as one, machine.start(session.environment) as other:
        begin(session, one)
        begin(session, other)
        index = one.do("hold", form, LIMIT)["index"]
        other.do("bring", one.do("share", index)["shared"])
        assert session.charged() == taken(machine) == LIMIT


def test_memory_that_its_own_process_imports_is_charged_until_its_last_handle_goes(
    machine: Machine, session: FakeSession, probe: Probe
) -> None:
    begin(session, probe)
    imported = []
    for _ in range(8):
        index = probe.do("hold", "physical-for-others", LIMIT // 8)["index"]
        imported.append(probe.do("bring", probe.do("share", index)["shared"])["index"])
        probe.do("drop", index)
    assert session.charged() == taken(machine) == LIMIT
    probe.do("hold", "linear", 1, expect=OUT_OF_MEMORY)
    for index in imported:
        probe.do("drop", index)
    assert session.charged() == taken(machine) == 0


@pytest.mark.parametrize("first", ["small", "large"])
def test_imported_memory_that_ends_crosswise_is_never_charged_too_little(
    machine: Machine, session: FakeSession, probe: Probe, first: str
) -> None:
    begin(session, probe)
    small = probe.do("hold", "physical-for-others", 128 * MIB)["index"]
    large = probe.do("hold", "physical-for-others", 512 * MIB)["index"]
    exported = [probe.do("share", index)["shared"] for index in (small, large)]
    of_small, of_large = (probe.do("bring", file)["index"] for file in exported)
    for index in (small, large) if first == "small" else (large, small):
        probe.do("drop", index)
    assert session.charged() == taken(machine) == 640 * MIB
    probe.do("drop", of_small)
    assert session.charged() == taken(machine) == 512 * MIB
    probe.do("drop", of_large)
    assert session.charged() == taken(machine) == 0


def test_memory_imported_before_an_export_takes_no_charge_of_it(
    machine: Machine, session: FakeSession, probe: Probe
) -> None:
    begin(session, probe)
    with machine.start(session.environment) as other:
        begin(session, other)
        index = other.do("hold", "physical-for-others", 128 * MIB)["index"]
        probe.do("bring", other.do("share", index)["shared"])
        index = probe.do("hold", "physical-for-others", 512 * MIB)["index"]
        probe.do("share", index)
        probe.do("drop", index)
        assert session.charged() == 128 * MIB


def test_memory_of_another_gpu_takes_no_charge(folder: Path) -> None:
    state = folder / "gpus"
    state.mkdir()
    machine = Machine(state, profile="V100x2")
    grants = [machine.grant(gpu) for gpu in (0, 1)]
    with (
        FakeSession(folder, grants) as session,
        machine.start(session.environment) as one,
        machine.start(session.environment) as other,
    ):
        begin(session, one)
        begin(session, other)
        other.do("retain", 1)
        theirs = other.do("hold", "physical-for-others-of-second", 128 * MIB)["index"]
        index = one.do("hold", "physical-for-others", 512 * MIB)["index"]
        one.do("share", index)
        one.do("bring", other.do("share", theirs)["shared"])
        one.do("drop", index)
        assert (session.charged(0), session.charged(1)) == (0, 128 * MIB)


def test_a_count_that_somebody_has_cleared_does_not_wrap_around(
    session: FakeSession, probe: Probe
) -> None:
    begin(session, probe)
    index = probe.do("hold", "linear", 100 * MIB)["index"]
    with session.counters.open("r+b") as file:
        file.seek(
            protocol.COUNTERS_HEADER.size + protocol.PROCESSES_MAX * protocol.COUNTERS_SLOT.size
        )
        file.write(bytes(protocol.PROCESSES_MAX * protocol.COUNTERS_BUDGET.size))
    probe.do("drop", index)
    assert probe.do("info")["free"] == LIMIT
    probe.do("hold", "linear", LIMIT)
    probe.do("hold", "linear", 1, expect=OUT_OF_MEMORY)


def test_counts_for_people_do_not_wrap_around(session: FakeSession, probe: Probe) -> None:
    """The container can clear them, as it can all of that file."""
    begin(session, probe)
    held = [probe.do("hold", form, 3 * MIB)["index"] for form in ("host", "linear")]
    (process,) = counters.processes(session.counters)
    assert (process.host_memory_bytes, process.memory_bytes[0]) == (3 * MIB, 4 * MIB)
    with session.counters.open("r+b") as file:
        file.seek(protocol.COUNTERS_HEADER.size + COUNTS)
        file.write(bytes(protocol.COUNTERS_SLOT.size - COUNTS))
    for index in held:
        probe.do("drop", index)
    (process,) = counters.processes(session.counters)
    assert (process.host_memory_bytes, process.memory_bytes[0]) == (0, 0)


def test_memory_that_is_unmapped_to_sleep_is_for_others_until_it_wakes(
    machine: Machine, session: FakeSession
) -> None:
    with machine.start(session.environment) as model, machine.start(session.environment) as other:
        begin(session, model)
        begin(session, other)
        for _ in range(3):
            awake = [model.do("hold", "mapped", 100 * MIB)["index"] for _ in range(8)]
            other.do("hold", "linear", 300 * MIB, expect=OUT_OF_MEMORY)
            for index in awake:
                model.do("drop", index)
            index = other.do("hold", "stream", 992 * MIB)["index"]
            model.do("hold", "mapped", 100 * MIB, expect=OUT_OF_MEMORY)
            other.do("drop", index)
        assert session.charged() == taken(machine) == 0


def test_a_program_that_runs_out_of_memory_frees_and_goes_on(
    machine: Machine, session: FakeSession, probe: Probe
) -> None:
    begin(session, probe)
    cached = []
    while probe.do("info")["free"] >= 64 * MIB:
        cached.append(probe.do("hold", "linear", 64 * MIB)["index"])
    probe.do("hold", "linear", 64 * MIB, expect=OUT_OF_MEMORY)
    assert probe.do("info")["free"] == probe.do("nvml")["free"] == 0
    for index in cached:
        probe.do("drop", index)
    probe.do("hold", "linear", int(0.9 * probe.do("info")["free"]))
    assert session.charged() == taken(machine)
