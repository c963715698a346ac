"""Measures the fragmentation of a run by what was asked for."""

from collections.abc import Callable
from typing import Final

import msgspec

from kubeshare.core.fragmentation.left import nodes_left
from kubeshare.core.fragmentation.measure import DemandClass, fragmented_in_all
from kubeshare.core.fragmentation.recent import RecentDemands
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.units import MICROS
from kubeshare.simulator.jobs import Job

AT: Final = (0.5, 0.9, 1.3)
"""For which parts of all GPUs jobs have asked together: as in FGD's evaluation."""

NEARLY: Final = 0.99
"""Of one of those parts, what suffices at the end of the jobs."""

MAX_KINDS: Final = 256
"""The most kinds that are told apart: those that occur most often."""


class Fragments(msgspec.Struct, frozen=True, kw_only=True):
    """The fragmentation of a cluster at one moment.

    Attributes:
        requested: for how much jobs had asked together, as a part of all GPUs.
        idle: what was left of the GPUs, as a part of all.
        fragmented: what of that the kinds of the last jobs could not use, by how often each
            occurs, as a part of all GPUs.
    """

    requested: float
    idle: float
    fragmented: float


class FragmentMeter:
    """Follows the jobs that arrive, as long as none has ended.

    Args:
        ledger: the cluster.
        cpu_millis: what is left of the CPUs of a node; None if they are ignored.

    Attributes:
        points: what was measured, at each of ``AT`` that was reached.
    """

    def __init__(self, ledger: Ledger, cpu_millis: Callable[[str], int | None]) -> None:
        self._ledger, self._cpu_millis = ledger, cpu_millis
        self._gpus = len(ledger.devices) + sum(len(node.free) for node in ledger.nodes.values())
        self._recent = RecentDemands()
        self._asked = 0
        self.points: list[Fragments] = []

    def arrive(self, job: Job) -> None:
        """Measure before this job, if with it so much is asked for."""
        demand = job.demand
        if len(self.points) == len(AT) or not self._gpus:
            return
        if demand is not None:
            self._asked += sum(share.request_micros * share.count for share in demand.reduced())
        if self._asked >= AT[len(self.points)] * self._gpus * MICROS:
            self.measure()
        self._recent.add_kinds(job.uid, kinds_of(job))

    def measure(self) -> None:
        """Measure now."""
        left = list(nodes_left(self._ledger, self._cpu_millis))
        fragmented = fragmented_in_all(left, self._recent.most_common(MAX_KINDS))
        everything = self._gpus * MICROS
        self.points.append(
            Fragments(
                requested=self._asked / everything,
                idle=sum(node.micros for node in left) / everything,
                fragmented=fragmented / everything,
            )
        )

    def last_arrived(self) -> None:
        """Measure once more where nearly enough is asked for: the next job would be too much."""
        if self._gpus and len(self.points) < len(AT):
            nearly = AT[len(self.points)] * self._gpus * MICROS * NEARLY
            if self._asked >= nearly:
                self.measure()

    def stop(self) -> None:
        """Measure nothing more: a job has ended."""
        self._gpus = 0


def kinds_of(job: Job) -> tuple[DemandClass, ...]:
    """The kinds of demand of a job: one for each of its shares."""
    if job.demand is None:
        return (DemandClass(micros=0, count=0),)
    kinds = map(DemandClass.of, job.demand.reduced())
    cpu_millis, models = job.host.cpu_millis, job.host.models
    return tuple(
        msgspec.structs.replace(kind, cpu_millis=cpu_millis, models=kind.models or models)
        for kind in kinds
    )
