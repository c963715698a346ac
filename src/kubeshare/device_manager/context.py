"""The state and services that all controllers of the device manager share."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from kubeshare.api.configuration import DynamicConfiguration
from kubeshare.api.state.cluster_state import ClusterState
from kubeshare.api.state.informers import Informers
from kubeshare.api.state.vgpu_store import VGPUStore
from kubeshare.core.policies import Policy
from kubeshare.device_manager.events import Events
from kubeshare.device_manager.metrics import Metrics
from kubeshare.device_manager.placeholder.claims import Claims
from kubeshare.device_manager.placeholder.pods import Placeholders
from kubeshare.device_manager.pool.idle_times import IdleTimes
from kubeshare.device_manager.refused_starts import RefusedStarts
from kubeshare.kube.cache.reflector import Reflector
from kubeshare.kube.client.client import Client
from kubeshare.kube.controller.leader_election import Lease


@dataclass(frozen=True, kw_only=True)
class Context:
    """One instance for each program.

    Attributes:
        client: the API server.
        informers: the watched objects, the cluster state and the configuration.
        schedulers: watches the Lease of the scheduler.
        policy: the scheduler's: whether a demand would fit.
        on_given_gpu: whether a demand fits on the GPU that its author has named. Some policies let
            nobody name a GPU, since they choose it; an author who also names the node asks none.
        placeholders: creates and deletes placeholder pods.
        claims: the claims of placeholders.
        idle_times: how long each vGPU has been without holders.
        refused_starts: reports pods whose start a kubelet has refused.
        events: records events.
        metrics: the program's counters.
        wall_clock: the current time, timezone-aware.
    """

    client: Client
    informers: Informers
    schedulers: Reflector[Lease]
    policy: Policy
    on_given_gpu: Policy
    placeholders: Placeholders
    claims: Claims
    idle_times: IdleTimes
    refused_starts: RefusedStarts
    events: Events
    metrics: Metrics
    wall_clock: Callable[[], datetime]

    @property
    def cluster_state(self) -> ClusterState:
        """The GPUs and pods of the cluster."""
        return self.informers.cluster_state

    @property
    def pool(self) -> VGPUStore:
        """The vGPUs."""
        return self.informers.cluster_state.pool

    @property
    def configuration(self) -> DynamicConfiguration:
        """The cluster-wide configuration."""
        return self.informers.configuration
