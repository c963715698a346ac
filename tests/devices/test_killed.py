"""What happens at each single write of a life, and that it converges all the same.

Everybody runs, nobody holds twice, no GPU is promised twice (the world checks that
at each change), and nothing is left at the end.
"""

import asyncio

import pytest

from cluster_fake import World
from kube_fake import Fault, run_virtual


async def _life(world: World) -> None:
    """Two that do not fit together, one that joins, all of them gone."""
    world.share("a", "0.6")
    world.share("b", "0.6")
    world.share("c", "0.4")
    await world.until(lambda: world.running("a", "b", "c"), seconds=200)
    assert len(world.vgpus()) == 2
    world.delete("a")
    world.end("b")
    world.delete("c")
    await world.until(lambda: not world.vgpus() and not world.placeholders(), seconds=200)
    await world.until(
        lambda: world.sharepod("b").get("status", {}).get("phase") == "Succeeded", seconds=200
    )


async def _writes_of_a_life() -> int:
    world = World(n1=1, n2=1)

    async def story(world: World) -> None:
        world.start()
        await _life(world)
        await world.quiet()

    await world.play(story)
    return world.server.writes


async def _killed_at(write: int, *, after: bool) -> None:
    killed = asyncio.Event()

    async def restart(world: World) -> None:
        await killed.wait()
        await world.kill()
        await world.quiet(0.5)
        world.start()

    async def story(world: World) -> None:
        world.server.inject_at_write(write, Fault.hang(after=after, action=killed.set))
        restarting = asyncio.create_task(restart(world))
        world.start()
        try:
            await _life(world)
        finally:
            restarting.cancel()

    await World(n1=1, n2=1).play(story)


async def _met_at(write: int, fault: Fault) -> None:
    async def story(world: World) -> None:
        world.server.inject_at_write(write, fault)
        world.start()
        await _life(world)

    await World(n1=1, n2=1).play(story)


@pytest.mark.slow
@pytest.mark.parametrize("after", [False, True], ids=["before it", "after it"])
def test_both_programs_killed_at_any_write_and_started_again(after: bool) -> None:
    for write in range(1, run_virtual(_writes_of_a_life()) + 1):
        try:
            run_virtual(_killed_at(write, after=after))
        except AssertionError as error:
            raise AssertionError(f"killed at write {write}") from error


@pytest.mark.slow
@pytest.mark.parametrize(
    "fault",
    [
        Fault.answer(409, "Conflict"),
        Fault.answer(500, "InternalError", after=True),
        Fault.reset(),
        Fault.reset(after=True),
        Fault.hang(after=True),
        Fault.duplicate(),
    ],
    ids=lambda fault: f"{fault.kind} {fault.status or ''} {'after' if fault.after else ''}".strip(),
)
def test_any_write_meets_a_fault(fault: Fault) -> None:
    for write in range(1, run_virtual(_writes_of_a_life()) + 1):
        try:
            run_virtual(_met_at(write, fault))
        except AssertionError as error:
            raise AssertionError(f"at write {write}") from error
