"""Every function that gives the GPU work waits for the claim's turn."""

import sys
from pathlib import Path

import pytest
from driver_api import rows
from driver_api.rows import GENERATED

from fakes.session import FakeSession, Machine, Probe, eventually
from kubeshare.tokens.wire.protocol import MessageType

pytestmark = pytest.mark.native

PROGRAM = Path(__file__).parent / "clients" / "all_at_once.py"
GENERIC_COPIES = sorted(
    [f"cuMemcpy{rows}{twin}" for rows in ("", "2D_v2") for twin in ("", "_ptds")]
    + [f"cuMemcpy{rows}{twin}" for rows in ("Async", "2DAsync_v2") for twin in ("", "_ptsz")]
)


def start(machine: Machine, session: FakeSession, names: list[str]) -> Probe:
    return machine.run([sys.executable, str(PROGRAM), *names], session.environment)


def returned(probe: Probe) -> list[str]:
    probe.send("returned")
    answer: list[str] = probe.answer()["returned"]
    return answer


def test_every_gated_function_waits_while_the_gate_is_closed(
    machine: Machine, session: FakeSession
) -> None:
    names = sorted(row.symbol for row in rows.read() if row.body == GENERATED)
    assert len(names) > 80
    with start(machine, session, names) as probe:
        session.accept().expect(MessageType.WANT)
        assert not eventually(lambda: returned(probe) != [], within_s=0.3)
        session.open()
        assert eventually(lambda: returned(probe) == names)


def test_a_function_that_only_asks_does_not_wait(machine: Machine, session: FakeSession) -> None:
    names = ["cuCtxGetDevice", "cuMemGetInfo_v2", "cuStreamQuery"]
    with start(machine, session, names) as probe:
        assert eventually(lambda: returned(probe) == names)


@pytest.mark.slow
def test_generic_copies_wait_only_where_they_stay_inside_the_gpu(
    machine: Machine, session: FakeSession
) -> None:
    with start(machine, session, []) as probe:
        probe.do("copy", 1, expect=None)
        assert eventually(lambda: returned(probe) == GENERIC_COPIES)
        probe.do("copy", 0, expect=None)
        assert not eventually(lambda: returned(probe) != GENERIC_COPIES, within_s=0.2)
        session.open()
        assert eventually(lambda: returned(probe) == sorted(GENERIC_COPIES * 2))
