"""Shares where the driver or the program is not the usual one, by the fake GPU's log."""

from pathlib import Path

import pytest
from bench.node.jobs import Node

from fakes.profiles import CALL_COSTS
from kubeshare import native
from wakeups import least_disturbed

pytestmark = [pytest.mark.native, pytest.mark.slow, pytest.mark.serial]

BEGUN_NS = 300_000_000
WINDOW_S = 4.0
NEAR = 0.03
"""Of a share over a window."""

MOST = 0.9
"""Of the GPU in use; what a busy machine loses that wakes threads late is lost here too."""

KEEPS_BUSY = ("--kernel-us", "1000", "--inflight", "32")


def parts(shares: dict[str, float]) -> dict[str, float]:
    """Of the time that was used: what a busy machine loses is lost to all."""
    used = sum(shares.values())
    return {name: share / used for name, share in shares.items()}


@pytest.mark.parametrize(
    ("driver", "queues", "costs"),
    [
        pytest.param(535, 0, "", id="no event of a context"),
        pytest.param(535, 1, "", id="and the library's own behind the work"),
        pytest.param(535, 8, "", id="or beside it, the usual case"),
        pytest.param(615, 1, "", id="one hardware queue"),
        pytest.param(615, 8, "", id="eight"),
        pytest.param(615, 8, CALL_COSTS, id="eight, and calls have costs"),
    ],
)
def test_two_halves_are_halves(tmp_path: Path, driver: int, queues: int, costs: str) -> None:
    profile = tmp_path / "one.profile"
    profile.write_text(f"driver_version = {driver}\nhardware_queues = {queues}\n{costs}")
    with Node(str(profile)) as node:
        for name in ("a", "b"):
            node.start(name, 0.5, *KEEPS_BUSY, "--streams", "4")
        node.wait_until_busy("a", "b", busy_ns=BEGUN_NS)

        shares, lost = least_disturbed(lambda: node.shares(WINDOW_S))

        assert parts(shares) == pytest.approx({"a": 0.5, "b": 0.5}, abs=NEAR + lost), lost
        assert sum(shares.values()) > MOST - lost, (shares, lost)
        assert {view["bypasses"] for view in node.views().values()} == {0}


def test_a_capture_that_never_ends_keeps_nobody_from_their_share() -> None:
    with Node() as node:
        for name, request in {"a": 0.5, "b": 0.4}.items():
            node.start(name, request, *KEEPS_BUSY)
        captures = node.start(
            "captures", 0.1, limit=0.1, program=[str(native.folder() / "tests" / "work")]
        )
        captures.tell("init", "begin 0 2")
        assert [captures.answer()["result"] for _ in range(2)] == [0, 0]
        captures.tell("launch 1 1000 1000000")
        node.wait_until_busy("a", "b", "captures", busy_ns=BEGUN_NS)

        shares, lost = least_disturbed(lambda: node.shares(WINDOW_S))

        expected = {"a": 0.5, "b": 0.4, "captures": 0.1}
        assert parts(shares) == pytest.approx(expected, abs=NEAR + lost), lost
        assert sum(shares.values()) > MOST - lost, (shares, lost)
        assert {view["bypasses"] for view in node.views().values()} == {0}
