"""Expectations fail where a test must fail, and describe the cluster."""

import asyncio

import pytest

from expectations import (
    assert_pending,
    assert_scheduled,
    expect_holders,
    expect_pending,
    expect_released,
    expect_running,
    expect_scheduled,
)
from fakes.cluster import World, scenario


def now() -> float:
    return asyncio.get_running_loop().time()


@scenario(n1=1)
async def test_a_failure_describes_the_objects(world: World) -> None:
    world.start("scheduler")
    world.share("a", "0.7")
    world.share("b", "0.6")
    await expect_pending(world, "b", "compute 0.3 left")

    with pytest.raises(AssertionError) as failed:
        await expect_running(world, "b", seconds=5)

    report = str(failed.value)
    (gpuid,) = world.vgpus()
    assert "expected ('b',) running: not so within 5 s" in report
    assert "SharePod b: no phase, no node; Scheduled False NoRoom" in report
    assert "event: NoRoom: " in report
    assert f"VGPU {gpuid} (no GPU): Creating, n1; holders ['a']" in report


@scenario(n1=1)
async def test_the_first_decision_counts(world: World) -> None:
    world.native_pod("whole")
    await expect_running(world, "whole")
    world.start("scheduler")
    world.share("a")
    started = now()

    with pytest.raises(AssertionError, match="a has no node"):
        await expect_scheduled(world, "a")

    assert now() - started < 5, "it waited for a second decision"
    world.end("whole")
    await expect_scheduled(world, "a", node="n1")


@scenario(n1=1)
async def test_a_pending_sharepod_may_get_another_reason_but_not_any(world: World) -> None:
    world.start("scheduler")
    world.share("a", "2")
    await expect_pending(world, "a", reason="Invalid")

    with pytest.raises(AssertionError, match="a pending NoRoom"):
        await expect_pending(world, "a", reason="NoRoom", seconds=5)
    with pytest.raises(AssertionError, match="a is not pending for NoRoom"):
        assert_pending(world, "a", "request")
    with pytest.raises(AssertionError, match="'no such words' is not in the condition"):
        assert_pending(world, "a", "no such words", reason="Invalid")


@scenario(n1=2)
async def test_the_place_and_the_holders_have_to_be_the_named_ones(world: World) -> None:
    world.start("scheduler")
    world.share("a")
    await expect_scheduled(world, "a")

    for place in ({"node": "n2"}, {"gpuid": "another"}):
        with pytest.raises(AssertionError, match="not"):
            assert_scheduled(world, "a", **place)
    with pytest.raises(AssertionError, match="holders"):
        await expect_holders(world, ["a"], ["b"], seconds=1)
    with pytest.raises(AssertionError, match="released"):
        await expect_released(world, "a", seconds=1)
