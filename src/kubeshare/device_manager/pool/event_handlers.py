"""Maps watch events to the nodes whose pools must be reconciled."""

from collections.abc import Iterable

from kubeshare.api.types import core_v1
from kubeshare.api.types.v1 import VGPU
from kubeshare.kube.cache.store import DELETED, Change
from kubeshare.kube.meta import Key


def on_vgpu(change: Change[VGPU]) -> Iterable[Key]:
    """The vGPU's node, when whether the vGPU exists or has holders changes."""
    old, new = change.old, change.object
    if change.type == DELETED or old is None or _pool_facts(old) != _pool_facts(new):
        yield Key("", new.spec.node_name)


def node_of_whole_gpu_pod(pod: core_v1.Pod) -> Iterable[Key]:
    """The node of a pod that uses whole GPUs; none for other pods."""
    return [Key("", pod.spec.node_name)] if pod.spec.node_name and pod.whole_gpus else []


def pod_usage_differs(change: Change[core_v1.Pod]) -> bool:
    """The pod was bound, has ended, or is gone."""
    old, new = change.old, change.object
    if change.type == DELETED or old is None:
        return True
    return (old.spec.node_name, old.terminal) != (new.spec.node_name, new.terminal)


def node_differs(change: Change[core_v1.Node]) -> bool:
    """More of the node has changed than its heartbeat."""
    old, new = change.old, change.object
    return (
        change.type == DELETED
        or old is None
        or (old.metadata.labels, old.spec, old.ready, old.status.allocatable)
        != (new.metadata.labels, new.spec, new.ready, new.status.allocatable)
    )


def _pool_facts(vgpu: VGPU) -> tuple[object, ...]:
    status, metadata = vgpu.status, vgpu.metadata
    return bool(status.holders), status.phase, vgpu.spec.uuid, metadata.deletion_timestamp
