"""Two replicas of each program: failover, and two leaders at once."""

import asyncio

import pytest

from expectations import expect_cleaned_up, expect_running, expect_vgpus
from fakes.cluster import World, run_scenario, scenario
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


def leader(world: World, program: str) -> str:
    """The holder of the Lease of a program; ``""`` if there is none."""
    lease = world.server.stored(LEASES, PROGRAMS[program], NAMESPACE)
    return str(lease["spec"]["holderIdentity"]) if lease else ""


async def both_led(world: World) -> None:
    world.elect = True
    world.start(*REPLICAS)
    await world.until(lambda: leader(world, "scheduler") and leader(world, "devices"))


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("phase", range(8))
def test_a_killed_leader_is_replaced_within_fifteen_seconds(program: str, phase: int) -> None:
    """The leader is killed at different times between two renewals."""

    async def scenario(world: World) -> None:
        await both_led(world)
        await world.quiet(20 + phase * RENEWED_EVERY / 8)
        first = leader(world, program)
        await world.kill(first)
        killed = asyncio.get_running_loop().time()
        await world.until(lambda: leader(world, program) != first)
        assert asyncio.get_running_loop().time() - killed <= TAKEN_OVER
        await world.run("a")

    run_scenario(scenario, n1=1)


@scenario(n1=2)
async def test_only_the_leaders_write(world: World) -> None:
    await both_led(world)
    leaders = {leader(world, program) for program in PROGRAMS}
    await world.run("a", "0.6")
    await world.run("b", "0.6")
    wrote = {
        each.client.rpartition("-")[0]
        for each in world.server.requests
        if each.is_write and each.resource != "leases"
    }
    assert wrote == leaders


@scenario(n1=1)
async def test_the_next_leaders_go_on_where_the_killed_ones_were(world: World) -> None:
    await both_led(world)
    world.share("a")
    await expect_vgpus(world, 1)
    await world.kill(*(leader(world, program) for program in PROGRAMS))
    await expect_running(world, "a")
    assert world.sharepod("a")["spec"]["gpu"]["attempt"] == 1


@pytest.mark.slow
@pytest.mark.parametrize("jump", [-7200.0, 7200.0], ids=["back", "forward"])
@pytest.mark.parametrize("waiting", [False, True], ids=["of the leader", "of the other"])
def test_a_clock_that_jumps_makes_no_other_leader(jump: float, *, waiting: bool) -> None:
    async def scenario(world: World) -> None:
        await both_led(world)
        first = {program: leader(world, program) for program in PROGRAMS}
        leaders = set(first.values())
        world.clocks = dict.fromkeys(set(REPLICAS) - leaders if waiting else leaders, jump)
        await world.quiet(120)
        await world.run("a")
        assert {program: leader(world, program) for program in PROGRAMS} == first

    run_scenario(scenario, n1=1)


async def _two_leaders(world: World, life: str, write: int, seconds: float) -> None:
    """Runs a life with two leaders of each program, and delays one write."""
    world.invariants.doubles = True
    world.server.inject_at_write(write, Fault.slow(seconds))
    world.start(*REPLICAS)
    await LIVES[life].play(world)
    await world.until(lambda: not world.invariants.held_twice(), STEP_SECONDS)
    world.clear()
    await expect_cleaned_up(world, seconds=STEP_SECONDS)


async def _writes(life: str) -> int:
    world = World(**LIVES[life].gpus)
    await world.play(lambda world: _two_leaders(world, life, 0, 0))
    return world.server.writes


@pytest.mark.slow
@pytest.mark.parametrize("life", ["queue", "named", "wide", "plain"])
@pytest.mark.parametrize("seconds", [0.02, 12.0], ids=["for a moment", "for long"])
def test_two_leaders_at_once_never_overcommit_and_end_with_one_vgpu_a_demand(
    life: str, seconds: float
) -> None:
    """As after a pause of a process, or a jump of a clock, just before a write."""
    for write in thinned(range(1, run_virtual(_writes(life)) + 1)):
        world = World(**LIVES[life].gpus)

        async def life_struck(world: World, write: int = write) -> None:
            await _two_leaders(world, life, write, seconds)

        try:
            run_virtual(world.play(life_struck))
        except AssertionError as error:
            raise AssertionError(f"write {write} held up for {seconds:g} s") from error


PAUSED = 25.0
"""Seconds for which a leader is paused: another one takes over long before."""


async def _paused_leader(world: World, life: str, write: int) -> None:
    """Runs a life in which the leader is paused at a write, for longer than its Lease."""
    world.elect = world.invariants.doubles = True
    world.server.inject_at_write(write, lambda: _pause(world))
    world.start(*REPLICAS)
    await LIVES[life].play(world)
    await world.until(lambda: not world.invariants.held_twice(), STEP_SECONDS)
    world.clear()
    await expect_cleaned_up(world, seconds=STEP_SECONDS)


def _pause(world: World) -> Fault:
    """Pauses the program that writes; its write arrives when it goes on."""
    name = world.server.requests[-1].client.rpartition("-")[0]
    world.cut_off(name)

    async def going_on() -> None:
        await world.quiet(PAUSED)
        world.reconnect(name)

    world.beside(going_on())
    return Fault.late(PAUSED)


async def _writes_of_a_leader(life: str) -> int:
    world = World(**LIVES[life].gpus)
    await world.play(lambda world: _paused_leader(world, life, 0))
    return world.server.writes


@pytest.mark.slow
@pytest.mark.parametrize("life", ["queue", "node full"])
def test_a_leader_that_was_stopped_for_longer_than_its_lease_does_no_harm(life: str) -> None:
    """Its last write arrives long after another replica has taken over."""
    for write in thinned(range(5, run_virtual(_writes_of_a_leader(life)) + 1)):
        world = World(**LIVES[life].gpus)

        async def life_struck(world: World, write: int = write) -> None:
            await _paused_leader(world, life, write)

        try:
            run_virtual(world.play(life_struck))
        except AssertionError as error:
            raise AssertionError(f"the leader was stopped at write {write}") from error
