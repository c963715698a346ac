"""What decisions are made by and carried out with, about one asker or about a gang."""

from collections.abc import Mapping
from dataclasses import dataclass

from kubeshare.api.inventory import Inventory
from kubeshare.api.pool import Pool
from kubeshare.core.policies import Policy
from kubeshare.scheduler.asker import Kind
from kubeshare.scheduler.carry_out import CarryOut
from kubeshare.scheduler.kept import Kept
from kubeshare.scheduler.places import Places
from kubeshare.scheduler.preempt import Preempt


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
