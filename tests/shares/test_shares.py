"""Shares by the fake GPU's log, with real daemon and library.

Few tests with several jobs each, and windows of seconds; `bench/tokens/shares.py` has the
matrix of kernel lengths and the goals in points.
"""

import signal
import time
from collections.abc import Iterator

import pytest
from bench.node.jobs import Node, eventually

from kubeshare import native
from kubeshare.demo import timeline
from kubeshare.demo.figure import JOBS, STAGES, targets

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


def near(shares: dict[str, float], expected: dict[str, float], within: float = NEAR) -> bool:
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
        shares = node.shares(WINDOW_S)
        assert near(shares, targets(stage)), (stage.title, shares)


def test_unlike_jobs_beside_each_other(node: Node) -> None:
    requests = {"tiny": 0.2, "ordinary": 0.2, "greedy": 0.2, "long": 0.2, "bursts": 0.05}
    node.start("tiny", 0.2, "--kernel-us", "50", "--inflight", "600")
    node.start("ordinary", 0.2, *KEEPS_BUSY)
    node.start("greedy", 0.2, "--kernel-us", "200", "--no-sync")
    node.start("long", 0.2, "--kernel-us", "20000", "--inflight", "4")
    node.start("bursts", 0.05, "--kernel-us", "1000", "--busy-ms", "30", "--idle-ms", "200")
    node.start("idle", 0.1, "--rate", "0.01")
    settle(node, *requests)
    shares = node.shares(10)
    used = sum(shares.values())
    assert used > MOST, shares
    assert shares["idle"] == 0
    for name in ("tiny", "ordinary", "greedy", "long"):
        assert shares[name] > 0.2 - NEAR, shares
    # What the idle one and the pauses leave goes to the others in equal parts.
    busy = [shares[name] for name in ("tiny", "ordinary", "greedy", "long")]
    assert max(busy) - min(busy) < 2 * NEAR, shares
    longest = {name: view["longestWaitNs"] for name, view in node.views().items()}
    assert max(longest.values()) < 1.5 * SECOND_NS, longest


def test_kernels_longer_than_a_turn_are_paid_back(node: Node) -> None:
    node.start("long", 0.3, "--kernel-us", "500000", "--inflight", "2")
    node.start("short", 0.7, *KEEPS_BUSY)
    settle(node, "long", "short")
    shares = node.shares(12)
    assert near(shares, {"long": 0.3, "short": 0.7}, 0.06), shares
    assert sum(shares.values()) > MOST


def test_who_stops_answering_is_passed_over_and_who_dies_leaves_nothing_behind(node: Node) -> None:
    for name in ("a", "b", "stops", "dies"):
        node.start(name, 0.25, *KEEPS_BUSY)
    settle(node, "a", "b", "stops", "dies")
    node.jobs["stops"].signal(signal.SIGSTOP)
    node.jobs["dies"].signal(signal.SIGKILL)
    eventually(lambda: node.views()["stops"]["state"] in ("hung", "idle"), "it is passed over")
    shares = node.shares(WINDOW_S, ("a", "b"))
    assert sum(shares.values()) > MOST, shares
    assert near(shares, {"a": 0.5, "b": 0.5}), shares
    node.jobs["stops"].signal(signal.SIGCONT)
    node.end("dies")
    settle(node, "stops")
    shares = node.shares(WINDOW_S, ("a", "b", "stops"))
    assert near(shares, dict.fromkeys(("a", "b", "stops"), 1 / 3)), shares


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
    assert node.shares(2)["busy"] > MOST


def test_a_daemon_that_is_killed_under_load_leaves_shares_and_its_successor_takes_over(
    node: Node,
) -> None:
    requests = {"a": 0.2, "b": 0.4}
    for name, request in requests.items():
        node.start(name, request, *KEEPS_BUSY)
    settle(node, *requests)
    node.kill_daemon()
    time.sleep(1)  # turns that were open come to their end
    shares = node.shares(WINDOW_S)
    # What a job loses at the start of its part, because a busy machine wakes it late, is lost.
    assert all(request / 3 < shares[job] < request + NEAR for job, request in requests.items())
    node.start_daemon()
    eventually(
        lambda: all(view["processes"] == 1 for view in node.views().values()),
        "the jobs are connected again",
    )
    time.sleep(SETTLE_S)
    shares = node.shares(WINDOW_S)
    assert near(shares, {"a": 0.5, "b": 0.5}), shares
    assert sum(shares.values()) > MOST


def test_a_rolling_restart_of_the_daemon_ends_no_job_and_moves_no_share(node: Node) -> None:
    requests = {"a": 0.5, "b": 0.3, "c": 0.2}
    for name, request in requests.items():
        node.start(name, request, *KEEPS_BUSY)
    settle(node, *requests)
    before = node.sample()
    for _ in range(3):
        node.exchange_daemon()
        eventually(
            lambda: all(view["processes"] == 1 for view in node.views().values()),
            "the jobs are connected again",
        )
        time.sleep(SETTLE_S)
    shares = timeline.shares(before, node.sample(), requests)
    used = sum(shares.values())
    assert used > MOST, shares
    # What a busy machine loses that wakes them late is lost to all of them.
    parts = {name: share / used for name, share in shares.items()}
    assert near(parts, requests), shares
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
        before = node.sample(1)
        shares = node.shares(WINDOW_S, gpu=0)
        other = {
            name: (node.sample(1).busy_ns[name] - before.busy_ns[name]) / (WINDOW_S * SECOND_NS)
            for name in requests
        }
        assert near(shares, other, 0.02), (shares, other)
        used = sum(shares.values())
        assert used > MOST, shares
        # What a machine loses that wakes them late is lost to both.
        assert shares["a"] / used > 0.3 - NEAR, shares
        assert shares["b"] / used > 0.6 - NEAR, shares
