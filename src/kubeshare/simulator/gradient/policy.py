"""Ranks nodes by prices of GPUs and by fragmentation.

Fragmentation gradient descent (:mod:`kubeshare.simulator.baselines.fgd`) with two changes.

A node is usable for a class of jobs only as far as its CPUs go: of eight idle GPUs, one is usable
for shares of .5 where the CPUs suffice for two jobs. FGD counts all eight. For jobs of one whole
GPU so does this policy: CPUs that do not suffice for one such job on each GPU may well do for
those that come, which are of all classes.

And it looks one job ahead: the part of a GPU beside a share of 0.47 seems useful because a second
such share fits there, whether or not enough of them come. The prices of parts of a GPU
(:mod:`kubeshare.simulator.gradient.prices`) weigh that for the whole workload at once, so a share
goes first where it lowers the price least. Where nearly all of the GPUs can be filled, fragments
of shares are not what is scarce, and many different prices are as good: there they do not count.
"""

import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from kubeshare.core.fragmentation.measure import DemandClass
from kubeshare.core.units import MICROS
from kubeshare.simulator.baselines.fgd import Fragmentation
from kubeshare.simulator.baselines.node_rooms import Ask
from kubeshare.simulator.baselines.usable import ClassWeights
from kubeshare.simulator.gradient.prices import PATIENT, Prices, can_fill, find_prices
from kubeshare.simulator.jobs import FOREVER, Job

SCARCE: Final = 0.98
"""Prices count where no placement can fill more of the GPUs."""

_CPU: Final = 1000
"""CPUs of a node count in whole ones: a remainder that few jobs could use decides nothing."""

_LEVELS: Final = 50
"""Rises of fragmentation are told apart in so many levels; within one, the first by name."""

_PRICE_WEIGHT: Final = 10.0
"""A GPU in price outweighs every difference in fragmentation."""


class Gradient(Fragmentation):
    """The rank of ``gradient``.

    Args:
        kinds: how often each kind of demand occurs in the workload, with its CPUs.
        offered: micros of a share → how many are asked for at once, for each GPU of the cluster.

    Attributes:
        prices: of parts of a GPU; None where they do not count.
    """

    def __init__(self, kinds: Mapping[DemandClass, int], offered: Mapping[int, float]) -> None:
        super().__init__(kinds)
        self.prices = _scarce(offered)

    def served(self, weights: ClassWeights, jobs: int, cpu_millis: int) -> tuple[float, float]:
        """As far as the CPUs go, but for jobs of one whole GPU."""
        if weights.of.count == 1 and weights.of.micros == MICROS:
            return super().served(weights, jobs, cpu_millis)
        cpus, at_most = weights.cpu_millis, weights.at_most
        whole = bisect_right(cpus, cpu_millis // jobs)
        partly, at, kinds = 0.0, whole, len(cpus)
        while at < kinds and cpus[at] <= cpu_millis:
            partly += (at_most[at + 1] - at_most[at]) * (cpu_millis // cpus[at])
            at += 1
        return at_most[whole], partly

    def counted_cpus(self, cpu_millis: int) -> int:
        """So many CPUs of a node count: whole ones."""
        return cpu_millis // _CPU * _CPU

    def score(self, rise: float, ask: Ask, left: Sequence[int]) -> float:
        """Prices first, then levels of the rise in fragmentation."""
        level = int(_LEVELS / (1 + math.exp(rise / MICROS))) / _LEVELS
        prices = self.prices
        if prices is None:
            return -level
        lost = sum([prices.lost(micros, ask.micros) for micros in left])
        return _PRICE_WEIGHT * lost - 4 * level


def _scarce(offered: Mapping[int, float]) -> Prices | None:
    """The prices for a workload that no placement can fill ``SCARCE`` of the GPUs with."""
    if can_fill(offered, SCARCE):
        return None
    prices = find_prices(offered)
    return prices if prices.bound < SCARCE else None


def offered(jobs: Iterable[Job], gpus: int) -> dict[int, float]:
    """Micros of a share → how many are asked for at once, for each GPU of the cluster.

    Jobs that end count for as long as they run, of the time in which all of them arrive.
    """
    work: defaultdict[int, float] = defaultdict(float)
    stays: defaultdict[int, float] = defaultdict(float)
    latest = 0.0
    for job in jobs:
        latest = max(latest, job.arrival_s)
        if job.demand is None:
            continue
        if job.work_s == FOREVER:
            stays[job.demand.request_micros] += job.demand.count
        else:
            work[job.demand.request_micros] += job.demand.count * job.work_s
    return {
        micros: (stays[micros] + work[micros] / max(1.0, latest)) / max(1, gpus)
        for micros in {*work, *stays}
    }


def bound_of(jobs: Iterable[Job], gpus: int) -> float:
    """The part of all GPUs that no placement of a workload exceeds; 1 if not known.

    Jobs that end make room for others, so that a placement may give away more at its peak.
    """
    known = list(jobs)
    if any(job.work_s < FOREVER for job in known):
        return 1.0
    return find_prices(offered(known, gpus), PATIENT).bound
