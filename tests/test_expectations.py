"""Expectations fail where a test must fail, and describe the cluster."""

import asyncio

import pytest

from expectations.pods import expect_running
from expectations.scheduling import (
    assert_pending,
    assert_scheduled,
    expect_pending,
    expect_scheduled,
)
from expectations.vgpus import expect_holders, expect_released
from fakes.cluster import FakeCluster, scenario


def now() -> float:
    return asyncio.get_running_loop().time()


@scenario(n1=1)
async def test_a_failure_describes_the_objects(cluster: FakeCluster) -> None:
    cluster.start("scheduler")
    cluster.share("a", "0.7")
    cluster.share("b", "0.6")
    await expect_pending(cluster, "b", "compute 0.3 left")

    with pytest.raises(AssertionError) as failed:
        await expect_running(cluster, "b", seconds=5)

    report = str(failed.value)
    (gpuid,) = cluster.vgpus()
    assert "expected ('b',) running: not so within 5 s" in report
    assert "SharePod b: no phase, no node; Scheduled False NoRoom" in report
    assert "event: NoRoom: " in report
    assert f"VGPU {gpuid} (no GPU): Creating, n1; holders ['a']" in report


@scenario(n1=1)
async def test_the_first_decision_counts(cluster: FakeCluster) -> None:
    cluster.native_pod("whole")
    await expect_running(cluster, "whole")
    cluster.start("scheduler")
    cluster.share("a")
    started = now()

    with pytest.raises(AssertionError, match="a has no node"):
        await expect_scheduled(cluster, "a")

    assert now() - started < 5, "it waited for a second decision"
    cluster.end("whole")
    await expect_scheduled(cluster, "a", node="n1")


@scenario(n1=1)
async def test_a_pending_sharepod_may_get_another_reason_but_not_any(cluster: FakeCluster) -> None:
    cluster.start("scheduler")
    cluster.share("a", "2")
    await expect_pending(cluster, "a", reason="Invalid")

    with pytest.raises(AssertionError, match="a pending NoRoom"):
        await expect_pending(cluster, "a", reason="NoRoom", seconds=5)
    with pytest.raises(AssertionError, match="a is not pending for NoRoom"):
        assert_pending(cluster, "a", "request")
    with pytest.raises(AssertionError, match="'no such words' is not in the condition"):
        assert_pending(cluster, "a", "no such words", reason="Invalid")


@scenario(n1=2)
async def test_the_place_and_the_holders_have_to_be_the_named_ones(cluster: FakeCluster) -> None:
    cluster.start("scheduler")
    cluster.share("a")
    await expect_scheduled(cluster, "a")

    for place in ({"node": "n2"}, {"gpuid": "another"}):
        with pytest.raises(AssertionError, match="not"):
            assert_scheduled(cluster, "a", **place)
    with pytest.raises(AssertionError, match="holders"):
        await expect_holders(cluster, ["a"], ["b"], seconds=1)
    with pytest.raises(AssertionError, match="released"):
        await expect_released(cluster, "a", seconds=1)
