"""The state of a node's pool and its policy settings, for :mod:`kubeshare.core.pool`."""

from typing import Final

from kubeshare.api.configuration import PoolConfiguration
from kubeshare.api.state.cluster_state import ClusterState
from kubeshare.api.state.ledger_builder import DELETING
from kubeshare.api.types.constants import LABEL_POOL
from kubeshare.api.types.core_v1 import Node
from kubeshare.api.types.v1 import VGPU
from kubeshare.core.pool import FOREVER, IdleVGPU, NodePool, PoolSettings
from kubeshare.device_manager.placeholder.pods import Placeholders
from kubeshare.device_manager.pool.idle_times import FIRST_HOLDER_SECONDS, IdleTimes

_LEAVING: Final = PoolSettings()
_POLICIES: Final = ("onDemand", "reservation", "hybrid")


class NodePools:
    """Summarizes the vGPUs of each node.

    Args:
        cluster_state: the GPUs and pods of the cluster.
        placeholders: which vGPUs get no placeholder any more.
        idle_times: how long vGPUs have been idle.
    """

    def __init__(
        self, cluster_state: ClusterState, placeholders: Placeholders, idle_times: IdleTimes
    ) -> None:
        self._cluster_state = cluster_state
        self._placeholders = placeholders
        self._idle_times = idle_times

    def of(self, node: Node) -> NodePool:
        """The pool of a node as it is now."""
        held, idle, freeing, awaiting = 0, [], 0, 0
        for vgpu in self._cluster_state.pool.on_node(node.metadata.name):
            if vgpu.spec.is_static:
                continue  # it is neither created nor deleted by the pool policy
            if vgpu.status.phase == DELETING:
                # Its GPU is not offered as free before the object is gone.
                freeing += bool(vgpu.spec.uuid) or self._cluster_state.has_bound_placeholder(
                    vgpu.metadata.name
                )
                continue
            awaiting += not self._cluster_state.has_bound_placeholder(vgpu.metadata.name)
            if vgpu.status.holders or self._cluster_state.runs_unrecorded(vgpu):
                held += 1
            else:
                idle.append(self._idle(vgpu))
        return NodePool(
            held=held,
            idle=tuple(idle),
            free=self._free(node, awaiting),
            freeing=freeing,
            makes=node.is_schedulable,
        )

    def _free(self, node: Node, awaiting: int) -> int:
        """The number of free GPUs; negative where more are promised than are free.

        While a kubelet starts, its node offers no GPUs: 0, so that vGPUs keep theirs.
        """
        if not self._cluster_state.offers_gpus(node):
            return 0
        return max(self._cluster_state.free_gpus(node), -awaiting)

    def _idle(self, vgpu: VGPU) -> IdleVGPU:
        seconds = self._idle_times.seconds(vgpu)
        not_before = self._idle_times.minimum_seconds(vgpu)
        useless = self._useless(vgpu)
        if useless and seconds < FIRST_HOLDER_SECONDS:
            # The cached pods may be older than the cached vGPU.
            useless, not_before = False, FIRST_HOLDER_SECONDS
        return IdleVGPU(
            id=vgpu.metadata.name,
            seconds=seconds,
            not_before=not_before,
            ready=self._cluster_state.has_bound_placeholder(vgpu.metadata.name),
            useless=useless,
        )

    def _useless(self, vgpu: VGPU) -> bool:
        device = self._cluster_state.ledger().devices.get(vgpu.metadata.name)
        unfit = device is not None and (device.fenced or not device.healthy)
        return unfit or self._placeholders.given_up(vgpu)


def settings_of(configured: PoolConfiguration, node: Node) -> PoolSettings:
    """The pool settings of a node: the policy of its label, else the configured one."""
    if node.is_closed:
        return _LEAVING
    policy = node.metadata.labels.get(LABEL_POOL, configured.policy)
    if policy not in _POLICIES:
        policy = configured.policy
    if policy == "onDemand":
        return PoolSettings()
    keep = FOREVER if policy == "reservation" else configured.idle_seconds
    return PoolSettings(keep=keep, minimum=configured.minimum, warm=configured.warm)


def unknown_policy(node: Node) -> str:
    """The policy that a node's label names where there is no such policy; else ``""``."""
    policy = node.metadata.labels.get(LABEL_POOL, "")
    return "" if policy in ("", *_POLICIES) else policy
