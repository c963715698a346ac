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
from kubeshare.scheduler.requesters.base import RequesterKind


@dataclass(frozen=True, kw_only=True)
class SchedulingContext:
    """The parts that all decisions need.

    Attributes:
        policy: places a demand.
        cluster_state: the cluster's GPUs.
        candidates: the nodes that askers may go to.
        kinds: where askers of each kind are found.
        binder: does what follows a decision.
        preemptor: makes room for those of higher priority.
        nominations: the places that are kept for them.
    """

    policy: Policy
    cluster_state: ClusterState
    candidates: CandidateNodes
    kinds: Mapping[str, RequesterKind]
    binder: Binder
    preemptor: Preemptor
    nominations: Nominations

    @property
    def pool(self) -> VGPUStore:
        """The vGPUs."""
        return self.cluster_state.pool
