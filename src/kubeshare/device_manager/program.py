"""The device manager put together: what it watches, and what wakes which object."""

from collections.abc import Callable
from datetime import datetime
from typing import Final

from kubeshare.api.gang_members import GANG, gang_index, gang_index_of_shape, gang_of, gang_of_shape
from kubeshare.api.predicates.eligibility import Eligibility
from kubeshare.api.quotas import quota_differs
from kubeshare.api.state.informers import Informers, watch
from kubeshare.api.state.unschedulable import UnschedulableQueue
from kubeshare.api.types import core_v1
from kubeshare.api.types.constants import MANAGER_DEVICES, NAMESPACE
from kubeshare.core.policies import Policy
from kubeshare.core.quota.namespace import within
from kubeshare.device_manager.autoscaling.placeholder_pods import AutoscalerPods
from kubeshare.device_manager.autoscaling.unmet_demand import UnmetDemand
from kubeshare.device_manager.events import Events
from kubeshare.device_manager.gang.controller import GangController
from kubeshare.device_manager.metrics import Metrics
from kubeshare.device_manager.placeholder.disruption import DisruptionBudgets
from kubeshare.device_manager.placeholder.pods import Placeholders
from kubeshare.device_manager.placeholder.recovery import PlaceholderRecovery
from kubeshare.device_manager.pod.controller import PodController
from kubeshare.device_manager.pool.event_handlers import add_missing, add_pools
from kubeshare.device_manager.pool.idle_times import IdleTimes
from kubeshare.device_manager.pool.state import NodePools
from kubeshare.device_manager.sharepod.controller import SharePodController
from kubeshare.device_manager.sharepod.event_handlers import (
    PodEventHandlers,
    SharePodEventHandlers,
    as_known,
    index_by_gpuid,
)
from kubeshare.device_manager.sharepod.finalization import Finalizations
from kubeshare.device_manager.sharepod.pods import Pods
from kubeshare.device_manager.sharepod.prebound import PreboundPods
from kubeshare.device_manager.sharepod.rescheduling.gpu_contention import ContendedGpus
from kubeshare.device_manager.sharepod.rescheduling.lost_allocation import LostAllocations
from kubeshare.device_manager.sharepod.rescheduling.reschedule import Rescheduler
from kubeshare.device_manager.sharepod.rescheduling.unschedulable import UnschedulablePods
from kubeshare.device_manager.sharepod.reservation import Reservations
from kubeshare.device_manager.sharepod.start_retry import StartRetries
from kubeshare.device_manager.sharepod.status_writer import StatusWriter
from kubeshare.device_manager.vgpu.controller import VGPUController
from kubeshare.device_manager.vgpu.deletion import VGPUDeletion
from kubeshare.device_manager.vgpu.event_handlers import VGPUEventHandlers
from kubeshare.device_manager.vgpu.eviction import Evictions
from kubeshare.device_manager.vgpu.health import VGPUHealth
from kubeshare.device_manager.vgpu.node_deletion import DeletedNodes
from kubeshare.device_manager.vgpu.orphans import OrphanedHolders
from kubeshare.kube.cache.store import DELETED, Change
from kubeshare.kube.client.client import Client
from kubeshare.kube.clock import utc_now
from kubeshare.kube.controller.controller import Controller
from kubeshare.kube.controller.events import EventRecorder
from kubeshare.kube.controller.leader_election import LeaseElector
from kubeshare.kube.controller.runtime import Program
from kubeshare.kube.meta import Key

NAME: Final = "kubeshare-device-manager"
"""Of the program, and of the Lease that its leader holds."""

WORKERS: Final = 8
"""Objects of one kind that are looked at at once: most of a look is waiting for the API server."""


def devices_program(  # noqa: PLR0913 - what it is told
    client: Client,
    policy: Policy,
    *,
    placeholder_image: str,
    instance: str,
    port: int | None = None,
    elect: bool = False,
    wall_clock: Callable[[], datetime] = utc_now,
    built: Callable[[], None] = lambda: None,
) -> Program:
    """KubeShare-DevMgr, ready to run.

    Args:
        client: the cluster.
        policy: says whether a demand fits on a GPU that it names.
        placeholder_image: any that has ``sh`` and ``sleep``.
        instance: the name of this replica, for events and for the Lease.
        port: of probes and metrics; None for no server.
        elect: whether it works only while it holds the Lease of its name.
        wall_clock: the times that people read.
        built: called after the ledger of the cluster has been made.
    """
    recorder = EventRecorder(
        client, "kubeshare.nthu/device-manager", instance, wall_clock=wall_clock
    )
    elector = (
        LeaseElector(client, NAMESPACE, NAME, instance, wall_clock=wall_clock) if elect else None
    )
    program = Program(NAME, client, elector=elector, recorder=recorder, port=port)
    watched = watch(program, client, MANAGER_DEVICES, recorder, built)
    asked, cluster_state = watched.sharepods, watched.cluster_state
    index_by_gpuid(asked.store)
    policy = within(policy, watched.quotas.of)
    events, metrics = Events(recorder), Metrics(program.registry)
    placeholders = Placeholders(client, cluster_state, placeholder_image, events, metrics)
    waiting: UnschedulableQueue[Key] = UnschedulableQueue()
    idle_times = IdleTimes(cluster_state.pool)
    evictions = Evictions(client, cluster_state, watched.nodes.store, watched.configuration, events)
    of_vgpus = VGPUController(
        pool=cluster_state.pool,
        release=OrphanedHolders(client, cluster_state, asked.store, metrics),
        lost_nodes=DeletedNodes(client, watched.nodes.store, cluster_state.pool, events),
        dismantle=VGPUDeletion(client, cluster_state, placeholders, metrics),
        placeholders=placeholders,
        degraded=VGPUHealth(
            client,
            cluster_state.pool,
            watched.gpunodes.store,
            placeholders,
            events=events,
            wall_clock=wall_clock,
        ),
        regain=PlaceholderRecovery(watched.nodes.store, placeholders, events),
        evictions=evictions,
        guard=DisruptionBudgets(client, cluster_state, placeholders, idle_times),
        events=events,
    )
    move_on = Rescheduler(
        client,
        cluster_state.pool,
        events,
        configuration=watched.configuration,
        wall_clock=wall_clock,
    )
    mirror = StatusWriter(client, wall_clock)
    of_sharepods = SharePodController(
        client=client,
        asked=asked.store,
        cluster_state=cluster_state,
        waiting=waiting,
        reserve=Reservations(cluster_state, policy),
        pods=Pods(client, cluster_state, metrics),
        early=PreboundPods(client, cluster_state, placeholders),
        placeholders=placeholders,
        full_nodes=UnschedulablePods(client, cluster_state, move_on, metrics),
        taken_gpus=ContendedGpus(cluster_state, placeholders, policy, move_on),
        taken_back=LostAllocations(client, cluster_state, events, metrics),
        nudges=StartRetries(client, wall_clock),
        mirror=mirror,
        endings=Finalizations(client, cluster_state, mirror, events, wall_clock),
        events=events,
    )
    pools = NodePools(cluster_state, placeholders, idle_times)
    add_pools(program, client, watched, pools=pools, events=events, metrics=metrics)
    of_pods = PodController(
        client,
        cluster_state,
        Pods(client, cluster_state, metrics),
        taken_back=LostAllocations(client, cluster_state, events, metrics),
        events=events,
        metrics=metrics,
    )
    missing = AutoscalerPods(
        client=client,
        pods=watched.pods,
        cluster_state=cluster_state,
        short=UnmetDemand(
            client=client,
            asked=asked.store,
            pods=watched.pods.store,
            cluster_state=cluster_state,
            eligibility=Eligibility(watched.nodes),
            policy=policy,
        ),
        configuration=watched.configuration,
        image=placeholder_image,
        events=events,
    )
    add_missing(program, watched, missing)
    vgpu_wakes = VGPUEventHandlers(cluster_state, asked.store, watched.nodes.store, evictions)
    vgpu_controller: Controller[Key] = Controller("vgpus", of_vgpus.reconcile, workers=WORKERS)
    vgpu_controller.watch_changes(watched.vgpus, as_known(cluster_state.pool, vgpu_wakes.of_vgpu))
    vgpu_controller.watch_changes(watched.pods, vgpu_wakes.of_pod)
    vgpu_controller.watch_changes(asked, vgpu_wakes.of_sharepod)
    vgpu_controller.watch(watched.nodes, vgpu_wakes.of_node, when=_changed_its_mind)
    vgpu_controller.watch(watched.gpunodes, vgpu_wakes.of_node)
    vgpu_controller.watch(watched.configmaps, vgpu_wakes.all)
    wakes = SharePodEventHandlers(asked.store, cluster_state, waiting, mirror)
    sharepod_controller: Controller[Key] = Controller(
        "sharepods", of_sharepods.reconcile, workers=WORKERS
    )
    sharepod_controller.watch_changes(asked, wakes.of_sharepod)
    sharepod_controller.watch_changes(watched.vgpus, as_known(cluster_state.pool, wakes.of_vgpu))
    sharepod_controller.watch_changes(watched.pods, wakes.of_pod)
    sharepod_controller.watch(watched.gpunodes, wakes.all_waiting)
    sharepod_controller.watch(watched.resourcequotas, wakes.all_waiting, when=quota_differs)
    sharepod_controller.watch(watched.nodes, wakes.all_waiting)
    pod_wakes = PodEventHandlers(cluster_state)
    pod_controller: Controller[Key] = Controller("pods", of_pods.reconcile, workers=WORKERS)
    pod_controller.watch_changes(watched.pods, pod_wakes.of_pod)
    pod_controller.watch_changes(watched.vgpus, as_known(cluster_state.pool, pod_wakes.of_vgpu))
    program.add_controller(vgpu_controller)
    program.add_controller(pod_controller)
    program.add_controller(sharepod_controller)
    _add_gangs(program, client, watched, events=events, wall_clock=wall_clock)
    return program


def _add_gangs(
    program: Program,
    client: Client,
    watched: Informers,
    *,
    events: Events,
    wall_clock: Callable[[], datetime],
) -> None:
    """Give gangs so long to start, and no longer."""
    watched.sharepods.store.add_index(GANG, gang_index)
    watched.pods.store.add_index(GANG, gang_index_of_shape)
    timeouts = GangController(
        client,
        asked=watched.sharepods.store,
        pods=watched.pods.store,
        cluster_state=watched.cluster_state,
        events=events,
        configuration=watched.configuration,
        wall_clock=wall_clock,
    )
    of_gangs: Controller[Key] = Controller("gangs", timeouts.reconcile)
    of_gangs.watch(watched.sharepods, lambda raw: filter(None, [gang_of(raw)]))
    of_gangs.watch(watched.pods, lambda pod: filter(None, [gang_of_shape(pod)]))
    of_gangs.watch(watched.configmaps, lambda _: timeouts.starting())
    program.add_controller(of_gangs)


def _changed_its_mind(change: Change[core_v1.Node]) -> bool:
    """It came or went, or takes pods no more, or again."""
    old, new = change.old, change.object
    if change.type == DELETED or old is None:
        return True
    return (old.takes_pods, old.driver_upgrade) != (new.takes_pods, new.driver_upgrade)
