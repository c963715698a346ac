"""What every scheduling decision needs, for one requester or for a gang."""

from collections.abc import Mapping
from dataclasses import dataclass

from kubeshare.api.state.cluster_state import ClusterState
from kubeshare.api.state.vgpu_store import VGPUStore
from kubeshare.api.upgrades import Upgrades
from kubeshare.core.fragmentation.recent import RecentDemands
from kubeshare.core.policies import Policy
from kubeshare.scheduler.binding import Binder
from kubeshare.scheduler.candidate_nodes import CandidateNodes
from kubeshare.scheduler.preemption.nominations import Nominations
from kubeshare.scheduler.preemption.preemption import Preemptor
from kubeshare.scheduler.requesters.base import RequesterKind


@dataclass(frozen=True, kw_only=True)
class SchedulingContext:
    """The collaborators of :class:`Scheduler` and :class:`GangScheduler`.

    Attributes:
        policy: places demands.
        cluster_state: the GPUs of the cluster.
        candidates: the nodes that requesters may run on.
        upgrades: whether the device manager can carry out a demand.
        kinds: finds requesters, by the kind of object.
        binder: carries decisions out.
        preemptor: evicts pods for requesters of higher priority.
        nominations: the room that is reserved for those requesters.
        recent: the demands of late.
    """

    policy: Policy
    cluster_state: ClusterState
    candidates: CandidateNodes
    upgrades: Upgrades
    kinds: Mapping[str, RequesterKind]
    binder: Binder
    preemptor: Preemptor
    nominations: Nominations
    recent: RecentDemands

    @property
    def pool(self) -> VGPUStore:
        """The vGPUs."""
        return self.cluster_state.pool
