"""The device manager put together: what it watches, and what wakes which object."""

from collections.abc import Callable
from datetime import datetime
from typing import Final

from kubeshare.api.gang_members import (
    GANG,
    gang_index,
    gang_index_of_struct,
    gang_of,
    gang_of_struct,
)
from kubeshare.api.predicates.eligibility import Eligibility
from kubeshare.api.quotas import gpu_limits_changed
from kubeshare.api.state.informers import Informers, start_informers
from kubeshare.api.state.unschedulable import UnschedulableQueue
from kubeshare.api.types import core_v1
from kubeshare.api.types.constants import MANAGER_DEVICES, NAMESPACE
from kubeshare.core.policies import Policy
from kubeshare.core.quota.namespace import within_quotas
from kubeshare.device_manager.autoscaling.placeholder_pods import AutoscalerPods
from kubeshare.device_manager.autoscaling.unmet_demand import UnmetDemand
from kubeshare.device_manager.events import Events
from kubeshare.device_manager.gang.controller import GangController
from kubeshare.device_manager.metrics import Metrics
from kubeshare.device_manager.placeholder.disruption import DisruptionBudgets
from kubeshare.device_manager.placeholder.pods import Placeholders
from kubeshare.device_manager.placeholder.recovery import PlaceholderRecovery
from kubeshare.device_manager.pod.controller import PodController
from kubeshare.device_manager.pool.event_handlers import add_autoscaling, add_pool_controllers
from kubeshare.device_manager.pool.idle_times import IdleTimes
from kubeshare.device_manager.pool.state import NodePools
from kubeshare.device_manager.sharepod.controller import SharePodController
from kubeshare.device_manager.sharepod.event_handlers import (
    PodEventHandlers,
    SharePodEventHandlers,
    index_by_gpuid,
    with_assumed,
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
from kubeshare.kube.controller.leader_election import LeaderElector
from kubeshare.kube.controller.runtime import Program
from kubeshare.kube.meta import Key

NAME: Final = "kubeshare-device-manager"
"""Of the program, and of the Lease that its leader holds."""

WORKERS: Final = 8
"""Objects of one kind that are looked at at once: most of a look is waiting for the API server."""


def device_manager_program(  # noqa: PLR0913 - what it is told
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
        LeaderElector(client, NAMESPACE, NAME, instance, wall_clock=wall_clock) if elect else None
    )
    program = Program(NAME, client, elector=elector, recorder=recorder, port=port)
    informers = start_informers(program, client, MANAGER_DEVICES, recorder, built)
    sharepod_store, cluster_state = informers.sharepods, informers.cluster_state
    index_by_gpuid(sharepod_store.store)
    policy = within_quotas(policy, informers.quotas.of)
    events, metrics = Events(recorder), Metrics(program.registry)
    placeholders = Placeholders(client, cluster_state, placeholder_image, events, metrics)
    waiting: UnschedulableQueue[Key] = UnschedulableQueue()
    idle_times = IdleTimes(cluster_state.pool)
    evictions = Evictions(
        client, cluster_state, informers.nodes.store, informers.configuration, events
    )
    of_vgpus = VGPUController(
        pool=cluster_state.pool,
        orphans=OrphanedHolders(client, cluster_state, sharepod_store.store, metrics),
        deleted_nodes=DeletedNodes(client, informers.nodes.store, cluster_state.pool, events),
        deletion=VGPUDeletion(client, cluster_state, placeholders, metrics),
        placeholders=placeholders,
        health=VGPUHealth(
            client,
            cluster_state.pool,
            informers.gpunodes.store,
            placeholders,
            events=events,
            wall_clock=wall_clock,
        ),
        recovery=PlaceholderRecovery(informers.nodes.store, placeholders, events),
        evictions=evictions,
        disruption_budgets=DisruptionBudgets(client, cluster_state, placeholders, idle_times),
        events=events,
    )
    rescheduler = Rescheduler(
        client,
        cluster_state.pool,
        events,
        configuration=informers.configuration,
        wall_clock=wall_clock,
    )
    status_writer = StatusWriter(client, wall_clock)
    of_sharepods = SharePodController(
        client=client,
        sharepod_store=sharepod_store.store,
        cluster_state=cluster_state,
        waiting=waiting,
        reservations=Reservations(cluster_state, policy),
        pods=Pods(client, cluster_state, metrics),
        prebound=PreboundPods(client, cluster_state, placeholders),
        placeholders=placeholders,
        unschedulable_pods=UnschedulablePods(client, cluster_state, rescheduler, metrics),
        contended_gpus=ContendedGpus(cluster_state, placeholders, policy, rescheduler),
        lost_allocations=LostAllocations(client, cluster_state, events, metrics),
        start_retries=StartRetries(client, wall_clock),
        status_writer=status_writer,
        finalizations=Finalizations(client, cluster_state, status_writer, events, wall_clock),
        events=events,
    )
    pools = NodePools(cluster_state, placeholders, idle_times)
    add_pool_controllers(program, client, informers, pools=pools, events=events, metrics=metrics)
    of_pods = PodController(
        client,
        cluster_state,
        Pods(client, cluster_state, metrics),
        lost_allocations=LostAllocations(client, cluster_state, events, metrics),
        events=events,
        metrics=metrics,
    )
    autoscaler_pods = AutoscalerPods(
        client=client,
        pods=informers.pods,
        cluster_state=cluster_state,
        short=UnmetDemand(
            client=client,
            sharepod_store=sharepod_store.store,
            pods=informers.pods.store,
            cluster_state=cluster_state,
            eligibility=Eligibility(informers.nodes),
            policy=policy,
        ),
        configuration=informers.configuration,
        image=placeholder_image,
        events=events,
    )
    add_autoscaling(program, informers, autoscaler_pods)
    vgpu_handlers = VGPUEventHandlers(
        cluster_state, sharepod_store.store, informers.nodes.store, evictions
    )
    vgpu_controller: Controller[Key] = Controller("vgpus", of_vgpus.reconcile, workers=WORKERS)
    vgpu_controller.watch_changes(
        informers.vgpus, with_assumed(cluster_state.pool, vgpu_handlers.of_vgpu)
    )
    vgpu_controller.watch_changes(informers.pods, vgpu_handlers.of_pod)
    vgpu_controller.watch_changes(sharepod_store, vgpu_handlers.of_sharepod)
    vgpu_controller.watch(informers.nodes, vgpu_handlers.of_node, when=_changed_its_mind)
    vgpu_controller.watch(informers.gpunodes, vgpu_handlers.of_node)
    vgpu_controller.watch(informers.configmaps, vgpu_handlers.all)
    handlers = SharePodEventHandlers(sharepod_store.store, cluster_state, waiting, status_writer)
    sharepod_controller: Controller[Key] = Controller(
        "sharepods", of_sharepods.reconcile, workers=WORKERS
    )
    sharepod_controller.watch_changes(sharepod_store, handlers.of_sharepod)
    sharepod_controller.watch_changes(
        informers.vgpus, with_assumed(cluster_state.pool, handlers.of_vgpu)
    )
    sharepod_controller.watch_changes(informers.pods, handlers.of_pod)
    sharepod_controller.watch(informers.gpunodes, handlers.all_waiting)
    sharepod_controller.watch(
        informers.resourcequotas, handlers.all_waiting, when=gpu_limits_changed
    )
    sharepod_controller.watch(informers.nodes, handlers.all_waiting)
    pod_handlers = PodEventHandlers(cluster_state)
    pod_controller: Controller[Key] = Controller("pods", of_pods.reconcile, workers=WORKERS)
    pod_controller.watch_changes(informers.pods, pod_handlers.of_pod)
    pod_controller.watch_changes(
        informers.vgpus, with_assumed(cluster_state.pool, pod_handlers.of_vgpu)
    )
    program.add_controller(vgpu_controller)
    program.add_controller(pod_controller)
    program.add_controller(sharepod_controller)
    _add_gangs(program, client, informers, events=events, wall_clock=wall_clock)
    return program


def _add_gangs(
    program: Program,
    client: Client,
    informers: Informers,
    *,
    events: Events,
    wall_clock: Callable[[], datetime],
) -> None:
    """Give gangs so long to start, and no longer."""
    informers.sharepods.store.add_index(GANG, gang_index)
    informers.pods.store.add_index(GANG, gang_index_of_struct)
    timeouts = GangController(
        client,
        sharepod_store=informers.sharepods.store,
        pods=informers.pods.store,
        cluster_state=informers.cluster_state,
        events=events,
        configuration=informers.configuration,
        wall_clock=wall_clock,
    )
    of_gangs: Controller[Key] = Controller("gangs", timeouts.reconcile)
    of_gangs.watch(informers.sharepods, lambda raw: filter(None, [gang_of(raw)]))
    of_gangs.watch(informers.pods, lambda pod: filter(None, [gang_of_struct(pod)]))
    of_gangs.watch(informers.configmaps, lambda _: timeouts.starting())
    program.add_controller(of_gangs)


def _changed_its_mind(change: Change[core_v1.Node]) -> bool:
    """It came or went, or takes pods no more, or again."""
    old, new = change.old, change.object
    if change.type == DELETED or old is None:
        return True
    return (old.is_schedulable, old.driver_upgrade) != (new.is_schedulable, new.driver_upgrade)
