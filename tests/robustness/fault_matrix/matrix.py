"""Plays points of the fault matrix and counts how they ended."""

import logging
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import structlog

from fakes.cluster import FakeCluster
from kubeshare.api.types.v1 import SHAREPODS
from kubeshare.kube.resources import PODS, RESOURCE_CLAIMS
from kubeshare.simulator.control import run_virtual
from robustness.fault_matrix import lives, node_lives
from robustness.fault_matrix.lives import LIVES, STEP_SECONDS, Life
from robustness.fault_matrix.strikes import Strike, inject
from robustness.fault_matrix.troubles import TROUBLES

_STEPS_FILES = (lives.__file__, node_lives.__file__)


class Point(NamedTuple):
    """One run of a life: the trouble, and the write (from 1) that it strikes.

    The seed decides all that is random: jitter and uids.
    """

    life: str
    trouble: str
    write: int
    seed: int = 0

    def __str__(self) -> str:
        return f"{self.life}: {self.trouble}, write {self.write}, seed {self.seed}"


@dataclass
class Tally:
    """How the points that were played ended; each list has a line for each failure.

    Attributes:
        tried: points played.
        converged: points after which everything was right and nothing was left.
        struck: trouble -> points in which it struck its write.
        showed: trouble -> points in which its effect was seen.
        missed: points in which the trouble never struck.
    """

    tried: int = 0
    converged: int = 0
    struck: Counter[str] = field(default_factory=Counter)
    showed: Counter[str] = field(default_factory=Counter)
    missed: list[str] = field(default_factory=list)
    stuck: list[str] = field(default_factory=list)
    overcommitted: list[str] = field(default_factory=list)
    leaked: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return (
            f"{self.tried} points tried, {self.struck.total()} struck, {self.converged} converged, "
            f"{len(self.overcommitted)} over-commits, {len(self.leaked)} leaks"
        )

    def add(self, other: "Tally") -> None:
        """Count the points of another tally too."""
        self.tried += other.tried
        self.converged += other.converged
        self.struck += other.struck
        self.showed += other.showed
        self.missed += other.missed
        self.stuck += other.stuck
        self.overcommitted += other.overcommitted
        self.leaked += other.leaked

    @property
    def wrong(self) -> list[str]:
        """All failures, those of the matrix itself included: no point, no strike."""
        return [
            *([] if self.tried else ["no point was played"]),
            *(f"{point}: it never struck" for point in self.missed),
            *self.overcommitted,
            *self.leaked,
            *self.stuck,
        ]

    @property
    def unseen(self) -> list[str]:
        """The troubles that struck and showed no effect; in few points that may be chance.

        A program killed at the last write of all has nothing left to show.
        """
        return [name for name in self.struck if not self.showed[name]]


def points(life: str, troubles: Iterable[str] = tuple(TROUBLES), seed: int = 0) -> Iterator[Point]:
    """Every point of a life."""
    writes = count_writes(life, seed)
    for trouble in troubles:
        for write in range(1, writes + 1):
            yield Point(life, trouble, write, seed)


def count_writes(life: str, seed: int = 0) -> int:
    """The writes of a life without trouble, which must go well."""
    outcome = run_virtual(run_life(_cluster(LIVES[life], seed), LIVES[life]))
    assert not outcome.stuck, outcome.stuck
    return outcome.cluster.server.writes


class Outcome(NamedTuple):
    """The cluster at the end of a life, what never came true (``""``), and what is left over."""

    cluster: FakeCluster
    stuck: str
    left: list[str]


def run_point(point: Point) -> tuple[Outcome, Strike]:
    """Run a life with its trouble."""
    life = LIVES[point.life]
    cluster = _cluster(life, point.seed)
    strike = inject(cluster, point.write, TROUBLES[point.trouble].strike)
    return run_virtual(run_life(cluster, life, strike.has_arrived)), strike


def play(point: Point, tally: Tally) -> None:
    """Run a life once with its trouble, and count how it ended.

    The seed is that of the run that counted the writes, so the run has as many writes before
    the trouble strikes.
    """
    (cluster, stuck, left), strike = run_point(point)
    tally.tried += 1
    if strike.request is None:
        tally.missed.append(str(point))
    else:
        tally.struck[point.trouble] += 1
        tally.showed[point.trouble] += TROUBLES[point.trouble].shows(cluster, strike)
    if cluster.invariants.violations:
        tally.overcommitted.append(f"{point}: {cluster.invariants.violations[0]}")
    if stuck:
        tally.stuck.append(f"{point}: {stuck}; left: {left}")
    elif left:
        tally.leaked.append(f"{point}: {left}")
    if not (cluster.invariants.violations or left or stuck):
        tally.converged += 1


def log_nothing() -> None:
    """Drop what the programs log in so many runs: formatting it takes a tenth of the time.

    Errors still pass the invariants, which look for exceptions in them.
    """
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR), processors=[_drop]
    )


def _drop(
    _: structlog.typing.WrappedLogger, __: str, ___: structlog.typing.EventDict
) -> structlog.typing.EventDict:
    raise structlog.DropEvent


def _cluster(life: Life, seed: int) -> FakeCluster:
    cluster = FakeCluster(seed, **life.gpus)
    cluster.agents = True
    return cluster


async def run_life(
    cluster: FakeCluster, life: Life, settled: Callable[[], bool] = lambda: True
) -> Outcome:
    """Run the life, then delete everything; nothing may be left once all is settled."""
    left: list[str] = []

    async def story(cluster: FakeCluster) -> None:
        cluster.start()
        try:
            await life.play(cluster)
            await cluster.until(lambda: not cluster.invariants.held_twice(), STEP_SECONDS)
            cluster.clear()
            await cluster.until(lambda: settled() and not _left(cluster), STEP_SECONDS)
        finally:
            left.extend(_left(cluster))

    stuck = ""
    try:
        await cluster.play(story)
    except AssertionError as error:
        stuck = f"{error} at {_where(error)}".strip()
    return Outcome(cluster, stuck, left)


def _where(error: BaseException) -> str:
    """The step of the life that did not come true."""
    frames = traceback.extract_tb(error.__traceback__)
    steps = [frame for frame in frames if frame.filename in _STEPS_FILES]
    return steps[-1].line or "" if steps else "its end"


def _left(cluster: FakeCluster) -> list[str]:
    """What exists although nothing asks for it any more."""
    sharepods = {each["metadata"]["uid"] for each in cluster.server.view(SHAREPODS)}
    vgpus = [f"vGPU {gpuid} {held}" for gpuid, held in cluster.vgpus().items()]
    pods = [
        f"pod {pod['metadata']['namespace']}/{pod['metadata']['name']}"
        for pod in cluster.server.view(PODS)
    ]
    claims = [
        f"claim {claim['metadata']['name']}" for claim in cluster.server.view(RESOURCE_CLAIMS)
    ]
    on_disk = [each for machine in cluster.machines.values() for each in machine.left()]
    if sharepods:
        return [f"SharePod {uid}" for uid in sorted(sharepods)]
    return [*vgpus, *pods, *claims, *on_disk]
