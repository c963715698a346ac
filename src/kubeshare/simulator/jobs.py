"""Jobs: what is simulated.

A job asks for GPUs as a pod does, and has work to do. Its work is measured in the seconds that it
takes where the job gets all that it needs of its GPUs.
"""

import math

import msgspec

from kubeshare.core.demand import Demand
from kubeshare.core.gang import Gang
from kubeshare.core.units import MICROS
from kubeshare.simulator.errors import SimulationError

FOREVER = math.inf
"""The work of a job that never ends."""


class HostRequest(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a pod requests of its node beside GPUs.

    Attributes:
        cpu_millis: thousandths of a CPU.
        memory_bytes: bytes of the node's memory.
        models: the GPU models of the nodes that it may use; empty is any.
    """

    cpu_millis: int = 0
    memory_bytes: int = 0
    models: frozenset[str] = frozenset()

    @property
    def key(self) -> str:
        """A text that differs from that of any other request; "" for one of nothing."""
        if self == NO_HOST_REQUEST:
            return ""
        models = "|".join(sorted(self.models))
        return f"cpu {self.cpu_millis}m, memory {self.memory_bytes}, models {models}"


NO_HOST_REQUEST = HostRequest()


class Job(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A job.

    Attributes:
        arrival_s: when it is submitted, in seconds since the start.
        work_s: the seconds that it takes where it gets what it needs; ``FOREVER`` for no end.
        uid: identifies it in its workload, and is that of its demand.
        name: its name, for display.
        demand: what it asks of GPUs; None if it asks for none.
        need_micros: how much of each of its GPUs it uses where nothing limits it.
        service_s: of an inference job the GPU time of a request, in seconds of a whole GPU;
            requests come as often as makes its need. 0 of other jobs.
        host: what it requests of the node.
        priority: as in :class:`kubeshare.core.simulation.PlacementQueue`.
        preemptible: whether a job of higher priority may evict it.
        gang: its gang, if any.
        kind: names it in a table of slowdowns; "" for none.

    Raises:
        SimulationError: a time or the need is out of range.
    """

    arrival_s: float
    work_s: float
    uid: str
    name: str
    demand: Demand | None = None
    need_micros: int = MICROS
    service_s: float = 0.0
    host: HostRequest = NO_HOST_REQUEST
    priority: int = 0
    preemptible: bool = False
    gang: Gang | None = None
    kind: str = ""

    def __post_init__(self) -> None:
        if not 0 <= self.arrival_s < math.inf:
            raise SimulationError(f"arrival: {self.arrival_s:g} is not a time from 0")
        if not self.work_s >= 0:
            raise SimulationError(f"duration: {self.work_s:g} s is negative")
        if not 0 <= self.service_s < math.inf:
            raise SimulationError(f"service time: {self.service_s:g} s is not a time from 0")
        if not 0 < self.need_micros <= MICROS:
            raise SimulationError("need: it is more than 0 and at most 1, a whole GPU")
