"""What wakes the pools of vGPUs, and what shows that GPUs are missing."""

from collections.abc import Iterable
from typing import Final

from kubeshare.api.predicates.eligibility import Eligibility
from kubeshare.api.predicates.node_resources import NodeResources
from kubeshare.api.state.informers import Informers
from kubeshare.api.types import core_v1
from kubeshare.api.types.v1 import VGPU
from kubeshare.device_manager.autoscaling.placeholder_pods import AutoscalerPods
from kubeshare.device_manager.events import Events
from kubeshare.device_manager.metrics import Metrics
from kubeshare.device_manager.pool.controller import PoolController
from kubeshare.device_manager.pool.reclaim import Reclaimer, waits_for_whole_gpu
from kubeshare.device_manager.pool.state import NodePools
from kubeshare.device_manager.sharepod.event_handlers import with_assumed
from kubeshare.kube.cache.store import DELETED, Change
from kubeshare.kube.client.client import Client
from kubeshare.kube.controller.controller import Controller, own_key
from kubeshare.kube.controller.runtime import Program
from kubeshare.kube.meta import Key

_EVERYTHING: Final = (Key("", "all"),)
"""The key of what is worked out for the whole cluster at once."""


def add_pool_controllers(  # noqa: PLR0913 - its parts
    program: Program,
    client: Client,
    informers: Informers,
    *,
    pools: NodePools,
    events: Events,
    metrics: Metrics,
) -> None:
    """Keep each node's pool as its policy says.

    Args:
        program: runs it.
        client: the cluster.
        informers: what it looks at.
        pools: the nodes' vGPUs.
        events: tells people.
        metrics: counts.
    """
    reclaimer = Reclaimer(
        client=client,
        pods=informers.pods,
        nodes=informers.nodes,
        eligibility=Eligibility(informers.nodes),
        rooms=NodeResources(informers.nodes, informers.pods, informers.cluster_state),
        pools=pools,
        configuration=informers.configuration,
        changed=lambda node: of_pools.queue.add(Key("", node)),
    )
    life = PoolController(
        nodes=informers.nodes.store,
        cluster_state=informers.cluster_state,
        pools=pools,
        configuration=informers.configuration,
        reclaimer=reclaimer,
        events=events,
        metrics=metrics,
    )
    of_pools: Controller[Key] = Controller("pools", life.reconcile)
    of_pools.watch_changes(
        informers.vgpus, with_assumed(informers.cluster_state.pool, _counts_differ)
    )
    of_pools.watch(informers.nodes, own_key, when=_node_differs)
    of_pools.watch(informers.gpunodes, own_key)
    of_pools.watch(informers.pods, _whole_gpu_node, when=_takes_otherwise)
    of_yields: Controller[Key] = Controller("yields", reclaimer.reconcile)
    of_yields.watch(
        informers.pods,
        lambda pod: _EVERYTHING if waits_for_whole_gpu(pod) or reclaimer.needed else (),
    )
    of_yields.watch(informers.vgpus, lambda _: _EVERYTHING, when=lambda _: reclaimer.needed)
    of_yields.watch(
        informers.nodes, lambda _: _EVERYTHING if reclaimer.needed else (), _node_differs
    )

    def configured() -> None:
        for key in informers.nodes.store.snapshot():
            of_pools.queue.add(key)
        of_yields.queue.add(*_EVERYTHING)

    informers.configuration.subscribe(configured)
    of_pools.watch(informers.configmaps, lambda _: ())
    program.add_controller(of_pools)
    program.add_controller(of_yields)


def add_autoscaling(
    program: Program, informers: Informers, autoscaler_pods: AutoscalerPods
) -> None:
    """Show cluster autoscalers what is missing, where that is configured."""
    controller: Controller[Key] = Controller("missing", autoscaler_pods.reconcile)

    def needed(_: object) -> bool:
        return autoscaler_pods.needed

    def everything(_: object) -> Iterable[Key]:
        return _EVERYTHING

    controller.watch(informers.sharepods, everything, when=needed)
    controller.watch(
        informers.pods, lambda pod: _EVERYTHING if pod.whole_gpus or pod.gated else (), when=needed
    )
    controller.watch(informers.gpunodes, everything, when=needed)
    controller.watch(informers.configmaps, everything)
    program.add_controller(controller)


def _counts_differ(change: Change[VGPU]) -> Iterable[Key]:
    """Its node, by not who shares a vGPU, but whether anybody does, and whether it is there."""
    old, new = change.old, change.object
    if change.type == DELETED or old is None or _counted(old) != _counted(new):
        yield Key("", new.spec.node_name)


def _counted(vgpu: VGPU) -> tuple[object, ...]:
    status, metadata = vgpu.status, vgpu.metadata
    return bool(status.holders), status.phase, vgpu.spec.uuid, metadata.deletion_timestamp


def _whole_gpu_node(pod: core_v1.Pod) -> Iterable[Key]:
    return [Key("", pod.spec.node_name)] if pod.spec.node_name and pod.whole_gpus else []


def _takes_otherwise(change: Change[core_v1.Pod]) -> bool:
    """It has come to its node, has ended, or is gone."""
    old, new = change.old, change.object
    if change.type == DELETED or old is None:
        return True
    return (old.spec.node_name, old.terminal) != (new.spec.node_name, new.terminal)


def _node_differs(change: Change[core_v1.Node]) -> bool:
    """More than a sign of life."""
    old, new = change.old, change.object
    return (
        change.type == DELETED
        or old is None
        or (old.metadata.labels, old.spec, old.ready, old.status.allocatable)
        != (new.metadata.labels, new.spec, new.ready, new.status.allocatable)
    )
