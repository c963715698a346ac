"""No claim, no GPU; and who may say which claim."""

import sys
from pathlib import Path

import pytest

from fakes.session import MIB, FakeSession, Machine, eventually, runs_python
from kubeshare.tokens.files import counters
from kubeshare.tokens.wire.protocol import PAGE_HEADER, PAGE_MAGIC, VERSION, GrantState

pytestmark = pytest.mark.native

NOT_PERMITTED = 800


def test_without_a_claim_the_gpu_cannot_be_initialised_and_the_process_goes_on(
    machine: Machine,
) -> None:
    with machine.start({}) as probe:
        probe.do("init", expect=NOT_PERMITTED)
        probe.do("init", expect=NOT_PERMITTED)
        assert probe.finish() == 0


@pytest.mark.parametrize("state", [GrantState.PENDING, GrantState.REFUSED, GrantState.REVOKED])
def test_a_grant_that_is_not_active_permits_nothing(
    machine: Machine, session: FakeSession, state: GrantState
) -> None:
    session.page.set_grant_state(state)
    with machine.start(session.environment) as probe:
        probe.do("init", expect=NOT_PERMITTED)
        session.page.set_grant_state(GrantState.ACTIVE)
        probe.do("init")


@pytest.mark.parametrize(
    "page",
    [
        b"",
        b"\0" * 128,
        PAGE_HEADER.pack(PAGE_MAGIC, VERSION + 1, 128, 1, GrantState.ACTIVE, 0) + bytes(64),
        PAGE_HEADER.pack(PAGE_MAGIC, VERSION, 128, 0, GrantState.ACTIVE, 0) + bytes(64),
        PAGE_HEADER.pack(PAGE_MAGIC, VERSION, 128, 17, GrantState.ACTIVE, 0) + bytes(64),
        PAGE_HEADER.pack(PAGE_MAGIC, VERSION, 64, 1, GrantState.ACTIVE, 0) + bytes(64),
        PAGE_HEADER.pack(PAGE_MAGIC, VERSION, 128, 1, GrantState.ACTIVE, 0),
    ],
    ids=["empty", "zeros", "version", "no cell", "too many cells", "size", "cut off"],
)
def test_a_page_of_another_format_permits_nothing(
    machine: Machine, session: FakeSession, page: bytes
) -> None:
    path = session.folder / "page"
    path.unlink()
    path.write_bytes(page)
    with machine.start(session.environment) as probe:
        probe.do("init", expect=NOT_PERMITTED)


def test_without_a_file_of_counters_nothing_is_permitted(
    machine: Machine, session: FakeSession, folder: Path
) -> None:
    environment = session.environment | {"KUBESHARE_COUNTERS": str(folder / "none")}
    with machine.start(environment) as probe:
        probe.do("init", expect=NOT_PERMITTED)


def test_it_is_silent_unless_asked(machine: Machine, session: FakeSession) -> None:
    with machine.start({}) as probe:
        probe.do("init", expect=NOT_PERMITTED)
        assert probe.errors() == ""
    with machine.start(session.environment | {"KUBESHARE_DEBUG": "1"}) as probe:
        probe.do("init")
        probe.do("retain", 0)
        probe.do("alloc", 2**40, expect=2)
        assert "refused 1099511627776 bytes" in probe.errors()


@runs_python
def test_a_table_of_the_driver_is_handed_out_and_told_of_where_somebody_asks(
    machine: Machine,
) -> None:
    program = (
        "import ctypes, json\n"
        "table, name = ctypes.c_void_p(), bytes.fromhex('6bd5fb6c' + 24 * '0')\n"
        "cuda = ctypes.CDLL('libcuda.so.1')\n"
        "result = cuda.cuGetExportTable(ctypes.byref(table), name)\n"
        "print(json.dumps({'result': result}), flush=True)\n"
        "input()\n"
    )
    invalid_value = 1
    with machine.run([sys.executable, "-c", program], {"KUBESHARE_DEBUG": "1"}) as probe:
        assert probe.answer() == {"result": invalid_value}
        assert "export table 6bd5fb6c-...: result 1" in probe.errors()


@runs_python
def test_a_context_that_a_table_made_is_refused_when_a_thread_takes_it(folder: Path) -> None:
    """The CUDA runtime's way to primary contexts is not hooked."""
    state = folder / "gpus"
    state.mkdir()
    machine = Machine(state, profile="V100x2")
    program = (
        "import ctypes, json\n"
        "cuda = ctypes.CDLL('libcuda.so.1')\n"
        "table = ctypes.POINTER(ctypes.c_void_p)()\n"
        "name = bytes.fromhex('6bd5fb6c5bf4e74a8987d93912fd9df9')\n"
        "assert cuda.cuInit(0) == cuda.cuGetExportTable(ctypes.byref(table), name) == 0\n"
        "kind = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int)\n"
        "made, current = (ctypes.c_void_p * 2)(), ctypes.c_void_p()\n"
        "for device in (0, 1):\n"
        "    at = ctypes.addressof(made) + 8 * device\n"
        "    assert kind(table[2])(at, device) == 0\n"
        "own, other = map(ctypes.c_void_p, made)\n"
        "answer = [cuda.cuCtxSetCurrent(own), cuda.cuCtxSetCurrent(other),\n"
        "          cuda.cuCtxPushCurrent(other), cuda.cuCtxPushCurrent_v2(other)]\n"
        "cuda.cuCtxGetCurrent(ctypes.byref(current))\n"
        "answer.append(current.value == own.value)\n"
        "print(json.dumps({'results': answer}), flush=True)\n"
        "input()\n"
    )
    with (
        FakeSession(folder, [machine.grant(0)]) as session,
        machine.run([sys.executable, "-c", program], session.environment) as probe,
    ):
        refused = [NOT_PERMITTED] * 3
        assert probe.answer() == {"results": [0, *refused, True]}
        session.accept()


def test_a_path_too_long_for_an_address_is_reached_too(machine: Machine, folder: Path) -> None:
    long = folder / ("x" * 120)
    long.mkdir()
    (folder / "short").symlink_to(long)
    with (
        FakeSession(folder / "short", [machine.grant()]) as session,
        machine.start(
            {
                "KUBESHARE_CLAIM": str(long / "claim"),
                "KUBESHARE_COUNTERS": str(long / "counters"),
            }
        ) as probe,
    ):
        probe.do("init")
        probe.do("retain", 0)
        session.accept()


def test_a_process_is_in_the_claims_account_from_its_first_context_on(
    machine: Machine, session: FakeSession
) -> None:
    with machine.start(session.environment) as probe:
        probe.do("init")
        assert not counters.processes(session.counters)
        probe.do("retain", 0)
        [process] = counters.processes(session.counters)
        assert process.pid == probe.process.pid
        assert process.memory_bytes[0] == session.charged()
        probe.do("alloc", 2 * MIB)
        [process] = counters.processes(session.counters)
        assert process.memory_bytes[0] >= 2 * MIB
    assert eventually(lambda: not counters.processes(session.counters))


@runs_python
def test_no_way_to_make_a_context_leads_to_a_gpu_of_somebody_else(folder: Path) -> None:
    """The second GPU is another claim's; the fake driver does not know all of these ways."""
    state = folder / "gpus"
    state.mkdir()
    machine = Machine(state, profile="V100x2")
    program = (
        "import ctypes, json\n"
        "cuda = ctypes.CDLL('libcuda.so.1')\n"
        "context = ctypes.byref(ctypes.c_void_p())\n"
        "assert cuda.cuInit(0) == 0\n"
        "print(json.dumps({str(device): [\n"
        "    cuda.cuCtxCreate(context, 0, device),\n"
        "    cuda.cuCtxCreate_v2(context, 0, device),\n"
        "    cuda.cuCtxCreate_v3(context, None, 0, 0, device),\n"
        "    cuda.cuCtxCreate_v4(context, None, 0, device),\n"
        "    cuda.cuDevicePrimaryCtxRetain(context, device),\n"
        "    cuda.cuGreenCtxCreate(context, None, device, 1),\n"
        "    cuda.cuGLCtxCreate(context, 0, device),\n"
        "    cuda.cuGLCtxCreate_v2(context, 0, device),\n"
        "    cuda.cuVDPAUCtxCreate(context, 0, device, 0, None),\n"
        "    cuda.cuVDPAUCtxCreate_v2(context, 0, device, 0, None),\n"
        "] for device in (0, 1)}))\n"
    )
    with (
        FakeSession(folder, [machine.grant(0)]) as session,
        machine.run([sys.executable, "-c", program], session.environment) as probe,
    ):
        answer = probe.answer()
        assert NOT_PERMITTED not in answer["0"]
        assert answer["1"] == [NOT_PERMITTED] * 10
