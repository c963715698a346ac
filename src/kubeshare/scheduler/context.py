"""What decisions are made by and carried out with, about one asker or about a gang."""

from collections.abc import Mapping
from dataclasses import dataclass

from kubeshare.api.state.cluster_state import Inventory
from kubeshare.api.state.vgpu_store import Pool
from kubeshare.core.policies import Policy
from kubeshare.scheduler.binding import CarryOut
from kubeshare.scheduler.candidate_nodes import Places
from kubeshare.scheduler.preemption.nominations import Kept
from kubeshare.scheduler.preemption.preemption import Preempt
from kubeshare.scheduler.requesters.base import Kind


@dataclass(frozen=True, kw_only=True)
class Parts:
    """The parts that all decisions need.

    Attributes:
        policy: places a demand.
        inventory: the cluster's GPUs.
        places: the nodes that askers may go to.
        kinds: where askers of each kind are found.
        carry_out: does what follows a decision.
        preempt: makes room for those of higher priority.
        kept: the places that are kept for them.
    """

    policy: Policy
    inventory: Inventory
    places: Places
    kinds: Mapping[str, Kind]
    carry_out: CarryOut
    preempt: Preempt
    kept: Kept

    @property
    def pool(self) -> Pool:
        """The vGPUs."""
        return self.inventory.pool
