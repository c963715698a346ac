"""Shares by the fake GPU's log, with real daemon and library.

Few tests with several jobs each, and windows of seconds; `bench/tokens/shares.py` has the
matrix of kernel lengths and the goals in points.
"""

import signal
import time
from collections.abc import Iterable, Iterator

import pytest
from bench.node.jobs import Node, eventually

from kubeshare import native
from kubeshare.demo import timeline
from kubeshare.demo.figure import JOBS, STAGES, targets
from kubeshare.tokens.files.grants import remove_grant
from wakeups import Wakeups, least_disturbed

pytestmark = [pytest.mark.native, pytest.mark.slow, pytest.mark.serial]

MILLISECOND_NS = 1_000_000
SECOND_NS = 1_000_000_000

SETTLE_S = 2.0
WINDOW_S = 5.0
NEAR = 0.03
"""Of a share over a window; a test machine is busier than a bench should be."""

MOST = 0.9
"""Of the GPU in use: what is lost here is lost by threads that such a machine wakes late."""

KEEPS_BUSY = ("--kernel-us", "1000", "--inflight", "32")
"""More in flight than by default: a machine that wakes the job late does not starve the GPU."""


@pytest.fixture
def node() -> Iterator[Node]:
    with Node() as made:
        yield made


def settle(node: Node, *names: str) -> None:
    node.wait_until_busy(*names)
    time.sleep(SETTLE_S)


def measure(
    node: Node, seconds: float = WINDOW_S, jobs: Iterable[str] = ()
) -> tuple[dict[str, float], float]:
    """The shares of jobs, and the part of the window that the machine lost, which widens NEAR."""
    names = tuple(jobs)
    return least_disturbed(lambda: node.shares(seconds, names))


def near(shares: dict[str, float], expected: dict[str, float], within: float) -> bool:
    return all(abs(shares[name] - share) <= within for name, share in expected.items())


def test_figure_6_in_all_its_stages(node: Node) -> None:
    jobs = {job.name: job for job in JOBS}
    for stage in STAGES:
        if stage.comes in stage.running:
            job = jobs[stage.comes]
            node.start(job.name, float(job.request), *KEEPS_BUSY, limit=float(job.limit))
        if stage.goes:
            node.end(stage.goes)
        settle(node, *stage.running)
        shares, lost = measure(node)
        assert near(shares, targets(stage), NEAR + lost), (stage.title, shares, lost)


def test_a_limit_while_alone_holds_until_another_comes_and_again_when_it_goes(node: Node) -> None:
    node.start("a", 0.3, *KEEPS_BUSY, limit=0.3, limit_alone=0.9)
    expected = {"alone": 0.9, "beside an idle one": 0.3, "alone again": 0.9}
    for stage, share in expected.items():
        if stage == "beside an idle one":
            node.grant("idle", 0.5)
        elif stage == "alone again":
            remove_grant(node.paths, "idle")
        settle(node, "a")
        shares, lost = measure(node)
        assert near(shares, {"a": share}, NEAR + lost), (stage, shares, lost)


def test_unlike_jobs_beside_each_other(node: Node) -> None:
    requests = {"tiny": 0.2, "ordinary": 0.2, "greedy": 0.2, "long": 0.2, "bursts": 0.05}
    node.start("tiny", 0.2, "--kernel-us", "50", "--inflight", "600")
    node.start("ordinary", 0.2, *KEEPS_BUSY)
    node.start("greedy", 0.2, "--kernel-us", "200", "--no-sync")
    node.start("long", 0.2, "--kernel-us", "20000", "--inflight", "4")
    node.start("bursts", 0.05, "--kernel-us", "1000", "--busy-ms", "30", "--idle-ms", "200")
    node.start("idle", 0.1, "--rate", "0.01")
    with Wakeups() as wakeups:
        settle(node, *requests)
        shares, lost = measure(node, 10)
    used = sum(shares.values())
    assert used > MOST - lost, (shares, lost)
    assert shares["idle"] == 0
    for name in ("tiny", "ordinary", "greedy", "long"):
        assert shares[name] > 0.2 - NEAR - lost, (shares, lost)
    # What the idle one and the pauses leave goes to the others in equal parts.
    busy = [shares[name] for name in ("tiny", "ordinary", "greedy", "long")]
    assert max(busy) - min(busy) < 2 * (NEAR + lost), (shares, lost)
    longest = {name: view["longestWaitNs"] for name, view in node.views().items()}
    bound = (1.5 + wakeups.lost_seconds) * SECOND_NS
    assert max(longest.values()) < bound, (longest, wakeups.lost_seconds)


def test_kernels_longer_than_a_turn_are_paid_back(node: Node) -> None:
    node.start("long", 0.3, "--kernel-us", "500000", "--inflight", "2")
    node.start("short", 0.7, *KEEPS_BUSY)
    settle(node, "long", "short")
    shares, lost = measure(node, 12)
    assert near(shares, {"long": 0.3, "short": 0.7}, 0.06 + lost), (shares, lost)
    assert sum(shares.values()) > MOST - lost, (shares, lost)


def test_who_stops_answering_is_passed_over_and_who_dies_leaves_nothing_behind(node: Node) -> None:
    for name in ("a", "b", "stops", "dies"):
        node.start(name, 0.25, *KEEPS_BUSY)
    settle(node, "a", "b", "stops", "dies")
    node.jobs["stops"].signal(signal.SIGSTOP)
    node.jobs["dies"].signal(signal.SIGKILL)
    eventually(lambda: node.views()["stops"]["state"] in ("hung", "idle"), "it is passed over")
    shares, lost = measure(node, jobs=("a", "b"))
    assert sum(shares.values()) > MOST - lost, (shares, lost)
    assert near(shares, {"a": 0.5, "b": 0.5}, NEAR + lost), (shares, lost)
    node.jobs["stops"].signal(signal.SIGCONT)
    node.end("dies")
    settle(node, "stops")
    shares, lost = measure(node, jobs=("a", "b", "stops"))
    thirds = dict.fromkeys(("a", "b", "stops"), 1 / 3)
    assert near(shares, thirds, NEAR + lost), (shares, lost)


def test_a_stream_that_waits_for_a_launch_at_the_closed_gate_gets_it(node: Node) -> None:
    node.start("busy", 0.5, *KEEPS_BUSY)
    node.wait_until_busy("busy")
    waits = node.start("waits", 0.5, program=[str(native.folder() / "tests" / "work")])
    waits.tell("init", "launch 0 1000 1", "wait 0 7", "launch 0 1000 1")
    assert [waits.answer()["result"] for _ in range(4)] == [0, 0, 0, 0]
    eventually(lambda: node.views()["waits"]["state"] == "closing", "its turn is over")
    waits.tell("pass 1 7", "sync")
    assert [waits.answer()["result"] for _ in range(2)] == [0, 0]
    assert node.views()["waits"]["bypasses"] == 0
    shares, lost = measure(node, 2)
    assert shares["busy"] > MOST - lost, (shares, lost)


def test_a_daemon_that_is_killed_under_load_leaves_shares_and_its_successor_takes_over(
    node: Node,
) -> None:
    requests = {"a": 0.2, "b": 0.4}
    for name, request in requests.items():
        node.start(name, request, *KEEPS_BUSY)
    settle(node, *requests)
    node.kill_daemon()
    time.sleep(1)  # turns that were open come to their end
    shares, lost = measure(node)
    # What a job loses at the start of its share, because a busy machine wakes it late, is lost.
    assert all(
        request / 3 - lost < shares[job] < request + NEAR + lost
        for job, request in requests.items()
    ), (shares, lost)
    node.start_daemon()
    eventually(
        lambda: all(view["processes"] == 1 for view in node.views().values()),
        "the jobs are connected again",
    )
    time.sleep(SETTLE_S)
    shares, lost = measure(node)
    assert near(shares, {"a": 0.5, "b": 0.5}, NEAR + lost), (shares, lost)
    assert sum(shares.values()) > MOST - lost, (shares, lost)


def test_a_rolling_restart_of_the_daemon_ends_no_job_and_moves_no_share(node: Node) -> None:
    requests = {"a": 0.5, "b": 0.3, "c": 0.2}
    for name, request in requests.items():
        node.start(name, request, *KEEPS_BUSY)
    settle(node, *requests)

    def exchanges() -> dict[str, float]:
        before = node.sample()
        for _ in range(3):
            node.exchange_daemon()
            eventually(
                lambda: all(view["processes"] == 1 for view in node.views().values()),
                "the jobs are connected again",
            )
            time.sleep(SETTLE_S)
        return timeline.shares(before, node.sample(), requests)

    shares, lost = least_disturbed(exchanges)
    used = sum(shares.values())
    assert used > MOST - lost, (shares, lost)
    # What a busy machine loses that wakes them late is lost to all of them.
    parts = {name: share / used for name, share in shares.items()}
    assert near(parts, requests, NEAR + lost), (shares, lost)
    assert [job.process.poll() for job in node.jobs.values()] == [None] * 3


def test_jobs_on_the_same_two_gpus_get_both_at_once() -> None:
    with Node("V100x2") as node:
        requests = {"a": 0.3, "b": 0.6}
        for name, request in requests.items():
            node.start(
                name, request, "--gpus", "2", "--kernel-us", "1000", "--inflight", "16", gpus=(0, 1)
            )
        for gpu in (0, 1):
            node.wait_until_busy(*requests, gpu=gpu)
        time.sleep(SETTLE_S)
        (shares, other), lost = least_disturbed(lambda: _on_each(node, 2))
        assert near(shares, other, 0.02 + lost), (shares, other, lost)
        used = sum(shares.values())
        assert used > MOST - lost, (shares, lost)
        # What a machine loses that wakes them late is lost to both.
        assert shares["a"] / used > 0.3 - NEAR - lost, (shares, lost)
        assert shares["b"] / used > 0.6 - NEAR - lost, (shares, lost)


def test_the_whole_gpus_of_a_claim_run_on_while_its_third_is_shared() -> None:
    """Each process has a GPU; that of the first is always inside a launch, its queue being full."""
    with Node("V100x3") as node:
        greedy = ("--kernel-us", "1000", "--no-sync", "--device", "0")
        node.start("wide", 0.5, *greedy, gpus=(0, 1, 2))
        node.start_beside("wide", "wide-1", *KEEPS_BUSY, "--device", "1")
        node.start_beside("wide", "wide-2", *KEEPS_BUSY, "--device", "2")
        node.start("beside", 0.5, *KEEPS_BUSY, "--device", "2", gpus=(2,))
        on = {0: ("wide",), 1: ("wide-1",), 2: ("wide-2", "beside")}
        for gpu, names in on.items():
            node.wait_until_busy(*names, gpu=gpu)
        time.sleep(SETTLE_S)

        measured, lost = least_disturbed(lambda: _on_each(node, 3))

        assert near(measured[0], {"wide": 1}, NEAR + lost), (measured, lost)
        assert near(measured[1], {"wide-1": 1}, NEAR + lost), (measured, lost)
        assert near(measured[2], {"wide-2": 0.5, "beside": 0.5}, NEAR + lost), (measured, lost)
        assert sum(measured[2].values()) > MOST - lost, (measured, lost)


def _on_each(node: Node, gpus: int) -> list[dict[str, float]]:
    """The shares of each of the first GPUs over one window."""
    before = [node.sample(gpu) for gpu in range(gpus)]
    time.sleep(WINDOW_S)
    return [timeline.shares(begin, node.sample(gpu), node.jobs) for gpu, begin in enumerate(before)]
