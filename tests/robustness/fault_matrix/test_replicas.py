"""Two replicas of each program: failover, and two leaders at once."""

import asyncio

import pytest

from expectations.pods import expect_running
from expectations.vgpus import expect_cleaned_up, expect_vgpus
from fakes.cluster import FakeCluster, run_scenario, scenario
from kubeshare.api.types.constants import NAMESPACE
from kubeshare.kube.resources import LEASES
from kubeshare.simulator.control import Fault, run_virtual
from robustness.fault_matrix.lives import LIVES, STEP_SECONDS
from robustness.fault_matrix.sample import thinned

PROGRAMS = {"scheduler": "kubeshare-scheduler", "devices": "kubeshare-device-manager"}
REPLICAS = ("scheduler", "devices", "scheduler/second", "devices/second")
TAKEN_OVER = 15.0
"""Seconds within which another replica leads after the leader was killed."""
RENEWED_EVERY = 3.2
PHASES = (0, 4, *(pytest.param(each, marks=pytest.mark.slow) for each in (1, 2, 3, 5, 6, 7)))
"""Eighths of that time; two of them are quick enough for ``make test-fast``."""


def leader(cluster: FakeCluster, program: str) -> str:
    """The holder of the Lease of a program; ``""`` if there is none."""
    lease = cluster.server.stored(LEASES, PROGRAMS[program], NAMESPACE)
    return str(lease["spec"]["holderIdentity"]) if lease else ""


async def both_led(cluster: FakeCluster) -> None:
    cluster.elect = True
    cluster.start(*REPLICAS)
    await cluster.until(lambda: leader(cluster, "scheduler") and leader(cluster, "devices"))


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("phase", PHASES)
def test_a_killed_leader_is_replaced_within_fifteen_seconds(program: str, phase: int) -> None:
    """The leader is killed at different times between two renewals."""

    async def scenario(cluster: FakeCluster) -> None:
        await both_led(cluster)
        await cluster.quiet(20 + phase * RENEWED_EVERY / 8)
        first = leader(cluster, program)
        await cluster.kill(first)
        killed = asyncio.get_running_loop().time()
        await cluster.until(lambda: leader(cluster, program) != first)
        assert asyncio.get_running_loop().time() - killed <= TAKEN_OVER
        await cluster.run("a")

    run_scenario(scenario, n1=1)


@scenario(n1=2)
async def test_only_the_leaders_write(cluster: FakeCluster) -> None:
    await both_led(cluster)
    leaders = {leader(cluster, program) for program in PROGRAMS}
    await cluster.run("a", "0.6")
    await cluster.run("b", "0.6")
    wrote = {
        each.client.rpartition("-")[0]
        for each in cluster.server.requests
        if each.is_write and each.resource != "leases"
    }
    assert wrote == leaders


@scenario(n1=1)
async def test_the_next_leaders_go_on_where_the_killed_ones_were(cluster: FakeCluster) -> None:
    await both_led(cluster)
    cluster.share("a")
    await expect_vgpus(cluster, 1)
    await cluster.kill(*(leader(cluster, program) for program in PROGRAMS))
    await expect_running(cluster, "a")
    assert cluster.sharepod("a")["spec"]["gpu"]["attempt"] == 1


@pytest.mark.slow
@pytest.mark.parametrize("jump", [-7200.0, 7200.0], ids=["back", "forward"])
@pytest.mark.parametrize("waiting", [False, True], ids=["of the leader", "of the other"])
def test_a_clock_that_jumps_makes_no_other_leader(jump: float, *, waiting: bool) -> None:
    async def scenario(cluster: FakeCluster) -> None:
        await both_led(cluster)
        first = {program: leader(cluster, program) for program in PROGRAMS}
        leaders = set(first.values())
        cluster.clocks = dict.fromkeys(set(REPLICAS) - leaders if waiting else leaders, jump)
        await cluster.quiet(120)
        await cluster.run("a")
        assert {program: leader(cluster, program) for program in PROGRAMS} == first

    run_scenario(scenario, n1=1)


async def _two_leaders(cluster: FakeCluster, life: str, write: int, seconds: float) -> None:
    """Runs a life with two leaders of each program, and delays one write."""
    cluster.invariants.doubles = True
    cluster.server.inject_at_write(write, Fault.slow(seconds))
    cluster.start(*REPLICAS)
    await LIVES[life].play(cluster)
    await cluster.until(lambda: not cluster.invariants.held_twice(), STEP_SECONDS)
    cluster.clear()
    await expect_cleaned_up(cluster, seconds=STEP_SECONDS)


async def _writes(life: str) -> int:
    cluster = FakeCluster(**LIVES[life].gpus)
    await cluster.play(lambda cluster: _two_leaders(cluster, life, 0, 0))
    return cluster.server.writes


@pytest.mark.slow
@pytest.mark.parametrize("life", ["queue", "named", "wide", "plain"])
@pytest.mark.parametrize("seconds", [0.02, 12.0], ids=["for a moment", "for long"])
def test_two_leaders_at_once_never_overcommit_and_end_with_one_vgpu_a_demand(
    life: str, seconds: float
) -> None:
    """As after a pause of a process, or a jump of a clock, just before a write."""
    for write in thinned(range(1, run_virtual(_writes(life)) + 1)):
        cluster = FakeCluster(**LIVES[life].gpus)

        async def life_struck(cluster: FakeCluster, write: int = write) -> None:
            await _two_leaders(cluster, life, write, seconds)

        try:
            run_virtual(cluster.play(life_struck))
        except AssertionError as error:
            raise AssertionError(f"write {write} held up for {seconds:g} s") from error


PAUSED = 25.0
"""Seconds for which a leader is paused: another one takes over long before."""


async def _paused_leader(cluster: FakeCluster, life: str, write: int) -> None:
    """Runs a life in which the leader is paused at a write, for longer than its Lease."""
    cluster.elect = cluster.invariants.doubles = True
    cluster.server.inject_at_write(write, lambda: _pause(cluster))
    cluster.start(*REPLICAS)
    await LIVES[life].play(cluster)
    await cluster.until(lambda: not cluster.invariants.held_twice(), STEP_SECONDS)
    cluster.clear()
    await expect_cleaned_up(cluster, seconds=STEP_SECONDS)


def _pause(cluster: FakeCluster) -> Fault:
    """Pauses the program that writes; its write arrives when it goes on."""
    name = cluster.server.requests[-1].client.rpartition("-")[0]
    cluster.cut_off(name)

    async def going_on() -> None:
        await cluster.quiet(PAUSED)
        cluster.reconnect(name)

    cluster.beside(going_on())
    return Fault.late(PAUSED)


async def _writes_of_a_leader(life: str) -> int:
    cluster = FakeCluster(**LIVES[life].gpus)
    await cluster.play(lambda cluster: _paused_leader(cluster, life, 0))
    return cluster.server.writes


@pytest.mark.slow
@pytest.mark.parametrize("life", ["queue", "node full"])
def test_a_leader_that_was_stopped_for_longer_than_its_lease_does_no_harm(life: str) -> None:
    """Its last write arrives long after another replica has taken over."""
    for write in thinned(range(5, run_virtual(_writes_of_a_leader(life)) + 1)):
        cluster = FakeCluster(**LIVES[life].gpus)

        async def life_struck(cluster: FakeCluster, write: int = write) -> None:
            await _paused_leader(cluster, life, write)

        try:
            run_virtual(cluster.play(life_struck))
        except AssertionError as error:
            raise AssertionError(f"the leader was stopped at write {write}") from error
