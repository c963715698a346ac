"""What decisions are made by and carried out with, about one asker or about a gang."""

from collections.abc import Mapping
from dataclasses import dataclass

from kubeshare.api.state.cluster_state import ClusterState
from kubeshare.api.state.vgpu_store import VGPUStore
from kubeshare.core.policies import Policy
from kubeshare.scheduler.binding import Binder
from kubeshare.scheduler.candidate_nodes import CandidateNodes
from kubeshare.scheduler.preemption.nominations import Nominations
from kubeshare.scheduler.preemption.preemption import Preemptor
from kubeshare.scheduler.requesters.base import Kind


@dataclass(frozen=True, kw_only=True)
class Context:
    """The parts that all decisions need.

    Attributes:
        policy: places a demand.
        cluster_state: the cluster's GPUs.
        places: the nodes that askers may go to.
        kinds: where askers of each kind are found.
        binder: does what follows a decision.
        preempt: makes room for those of higher priority.
        kept: the places that are kept for them.
    """

    policy: Policy
    cluster_state: ClusterState
    places: CandidateNodes
    kinds: Mapping[str, Kind]
    binder: Binder
    preempt: Preemptor
    kept: Nominations

    @property
    def pool(self) -> VGPUStore:
        """The vGPUs."""
        return self.cluster_state.pool
