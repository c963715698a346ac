"""Plays every point: which came right, and what was wrong with the others."""

import traceback
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from fakes.cluster import World
from kubeshare.api.types.v1 import SHAREPODS
from kubeshare.kube.resources import PODS
from kubeshare.simulator.control import run_virtual
from robustness.fault_matrix import lives
from robustness.fault_matrix.lives import LIVES, STEP_SECONDS, Life
from robustness.fault_matrix.troubles import TROUBLES

TOLD_IN = lives.__file__


class Point(NamedTuple):
    """One telling of a life: the trouble and the write (from 1) that meets it.

    The seed says how chance falls: which jitter and which uids there are.
    """

    life: str
    trouble: str
    write: int
    seed: int = 0

    def __str__(self) -> str:
        return f"{self.life}: {self.trouble}, write {self.write}, seed {self.seed}"


@dataclass
class Tally:
    """What became of the points that were tried; each list has a line for each that went wrong."""

    tried: int = 0
    converged: int = 0
    stuck: list[str] = field(default_factory=list)
    overcommitted: list[str] = field(default_factory=list)
    leaked: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return (
            f"{self.tried} points tried, {self.converged} converged, "
            f"{len(self.overcommitted)} over-commits, {len(self.leaked)} leaks"
        )

    def add(self, other: "Tally") -> None:
        """Count the points of another tally too."""
        self.tried += other.tried
        self.converged += other.converged
        self.stuck += other.stuck
        self.overcommitted += other.overcommitted
        self.leaked += other.leaked

    @property
    def wrong(self) -> list[str]:
        """All that went wrong."""
        return [*self.overcommitted, *self.leaked, *self.stuck]


def points(life: str, troubles: Iterable[str] = tuple(TROUBLES), seed: int = 0) -> Iterator[Point]:
    """Every point of a life."""
    writes = run_virtual(_count(LIVES[life], seed))
    for trouble in troubles:
        for write in range(1, writes + 1):
            yield Point(life, trouble, write, seed)


class Told(NamedTuple):
    """The world at the end of a life, what never came true (``""``), and what is left over."""

    world: World
    stuck: str
    left: list[str]


def tell(point: Point) -> Told:
    """Tell a life with its trouble."""
    world = _world(LIVES[point.life], point.seed)
    trouble = TROUBLES[point.trouble]
    world.server.inject_at_write(point.write, lambda: trouble(world))
    return run_virtual(live(world, LIVES[point.life]))


def play(point: Point, tally: Tally) -> None:
    """Tell a life once, with its trouble, and note how it went.

    Not each telling has as many writes: one in which the trouble never struck is no point.
    """
    world, stuck, left = tell(point)
    if world.server.writes < point.write and not stuck:
        return
    tally.tried += 1
    if world.invariants.violations:
        tally.overcommitted.append(f"{point}: {world.invariants.violations[0]}")
    if stuck:
        tally.stuck.append(f"{point}: {stuck}; left: {left}")
    elif left:
        tally.leaked.append(f"{point}: {left}")
    if not (world.invariants.violations or left or stuck):
        tally.converged += 1


async def _count(life: Life, seed: int) -> int:
    told = await live(_world(life, seed), life)
    assert not told.stuck, told.stuck
    return told.world.server.writes


def _world(life: Life, seed: int) -> World:
    world = World(seed, **life.gpus)
    world.agents = True
    return world


async def live(world: World, life: Life) -> Told:
    """Tell the life, then delete everything."""
    left: list[str] = []

    async def told(world: World) -> None:
        world.start()
        try:
            await life.tell(world)
            await world.until(lambda: not world.invariants.held_twice(), STEP_SECONDS)
            world.clear()
            await world.until(lambda: not _left(world), STEP_SECONDS)
        finally:
            left.extend(_left(world))

    stuck = ""
    try:
        await world.play(told)
    except AssertionError as error:
        stuck = f"{error} at {_where(error)}".strip()
    return Told(world, stuck, left)


def _where(error: BaseException) -> str:
    """The step of the life that did not come true."""
    steps = [step for step in traceback.extract_tb(error.__traceback__) if step.filename == TOLD_IN]
    return steps[-1].line or "" if steps else "its end"


def _left(world: World) -> list[str]:
    """What is there although nobody asks for it any more."""
    asked = {each["metadata"]["uid"] for each in world.server.all(SHAREPODS)}
    vgpus = [f"vGPU {gpuid} {held}" for gpuid, held in world.vgpus().items()]
    pods = [
        f"pod {pod['metadata']['namespace']}/{pod['metadata']['name']}"
        for pod in world.server.all(PODS)
    ]
    on_disk = [each for machine in world.machines.values() for each in machine.left()]
    return [*vgpus, *pods, *on_disk] if not asked else [f"SharePod {uid}" for uid in sorted(asked)]
