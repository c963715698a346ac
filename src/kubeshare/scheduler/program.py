"""Constructs the scheduler: its informers, collaborators and event handlers."""

from collections.abc import Callable, Mapping
from datetime import datetime
from functools import partial
from typing import Any, Final

from kubeshare.api.configuration import DynamicConfiguration
from kubeshare.api.predicates.eligibility import Eligibility
from kubeshare.api.predicates.node_resources import NodeResources
from kubeshare.api.quotas.gpu_quotas import limits_changed
from kubeshare.api.quotas.resource_quotas import gpu_limits_changed
from kubeshare.api.state.assume_cache import AssumeCache
from kubeshare.api.state.informers import Informers, start_informers
from kubeshare.api.state.ledger_cache import Upkeep
from kubeshare.api.state.stripping import strip
from kubeshare.api.state.unschedulable import UnschedulableQueue
from kubeshare.api.types import core_v1
from kubeshare.api.types.constants import (
    DEVICE_MANAGER,
    LABEL_ROLE,
    MANAGER_SCHEDULER,
    ROLE_POD,
    SCHEDULER,
)
from kubeshare.api.types.v1 import VGPU, GPUDevice, GPUNode
from kubeshare.api.upgrades import (
    Upgrades,
    leader_changed,
    leader_elector,
    watch_leader,
)
from kubeshare.core.fragmentation.recent import RecentDemands
from kubeshare.core.policies import Policy
from kubeshare.core.policies.by_family import by_family
from kubeshare.core.policies.gpuid_scope import within_gpuid_scope
from kubeshare.core.policies.indexes import attach_indexes
from kubeshare.kube.cache.reflector import Reflector
from kubeshare.kube.cache.store import DELETED, Change, Store
from kubeshare.kube.client.client import Client
from kubeshare.kube.clock import utc_now
from kubeshare.kube.controller.controller import Controller
from kubeshare.kube.controller.events import EventRecorder
from kubeshare.kube.controller.runtime import Program
from kubeshare.kube.controller.workqueue import WorkQueue
from kubeshare.kube.resources import PODS, Raw
from kubeshare.scheduler.binding import Binder
from kubeshare.scheduler.candidate_nodes import CandidateNodes
from kubeshare.scheduler.context import SchedulingContext
from kubeshare.scheduler.controller import Scheduler
from kubeshare.scheduler.events import Events
from kubeshare.scheduler.gang.scheduling import GangScheduler
from kubeshare.scheduler.metrics import FragmentationMeter, Metrics
from kubeshare.scheduler.preemption.nominations import Nominations
from kubeshare.scheduler.preemption.preemption import Preemptor
from kubeshare.scheduler.queue_sort import GangMembers, affects_gang, by_priority
from kubeshare.scheduler.requesters import pod, sharepod
from kubeshare.scheduler.requesters.base import RequesterKey, RequesterKind
from kubeshare.scheduler.requesters.pod import GatedPods
from kubeshare.scheduler.requesters.sharepod import SharePods
from kubeshare.scheduler.scheduled_condition import ScheduledCondition
from kubeshare.scheduler.volume_binding import VolumeBinder
from kubeshare.scheduler.wakeups import Wakeups, gpunode_changed, node_changed

NAME: Final = SCHEDULER
"""The name of the program and of its Lease."""
CONCURRENT_BINDS: Final = 16
"""Requesters that are bound in the background while the next one is scheduled."""


def scheduler_program(  # noqa: PLR0913 - its options
    client: Client,
    policy: Policy,
    *,
    instance: str,
    port: int | None = None,
    elect: bool = False,
    wall_clock: Callable[[], datetime] = utc_now,
    built: Callable[[], None] = lambda: None,
) -> Program:
    """KubeShare-Sched, ready to run.

    Args:
        client: the API server.
        policy: places demands.
        instance: the name of this replica, for events and for the Lease.
        port: serves probes and metrics; None for no server.
        elect: whether to work only as the holder of the Lease.
        wall_clock: gives the times in conditions and events.
        built: called after the cluster's ledger has been built.
    """
    recorder = EventRecorder(client, "kubeshare.nthu/scheduler", instance, wall_clock=wall_clock)
    elector = leader_elector(client, NAME, instance, wall_clock) if elect else None
    program = Program(NAME, client, elector=elector, recorder=recorder, port=port)
    informers = start_informers(program, client, MANAGER_SCHEDULER, recorder, built)
    leases = program.add_reflector(watch_leader(client, DEVICE_MANAGER))
    upgrades = Upgrades(leases.store, informers.gpunodes.store)
    gated: Reflector[Raw] = program.add_reflector(
        Reflector(
            client,
            PODS,
            labels=f"{LABEL_ROLE}={ROLE_POD}",
            fields="spec.nodeName=",
            transform=strip,
        )
    )
    status = ScheduledCondition(client, wall_clock)
    configuration = informers.configuration
    sharepods = SharePods(
        client,
        AssumeCache(informers.sharepods),
        status,
        partial(_max_priority, configuration),
        demands=informers.cluster_state.demands,
        device_manager_leads=upgrades.device_manager_leads,
    )
    pods = _gated_pods(client, AssumeCache(gated), status, informers, wall_clock)
    kinds: Mapping[str, RequesterKind] = {sharepod.KIND: sharepods, pod.KIND: pods}
    unschedulable: UnschedulableQueue[RequesterKey] = UnschedulableQueue()
    metrics = Metrics(program.registry, unschedulable, wall_clock)
    recent = RecentDemands()
    meter = FragmentationMeter(program.registry, informers.cluster_state.ledger, recent)
    candidates = CandidateNodes(
        Eligibility(informers.nodes, configuration), configuration, upgrades, wall_clock
    )
    queue: WorkQueue[RequesterKey] = WorkQueue("scheduler", priority=by_priority(kinds))
    wakeups = Wakeups(queue, unschedulable, informers.cluster_state, kinds)
    nominations = Nominations(on_freed=wakeups.queue_all)
    events = Events(recorder)
    policy = within_gpuid_scope(
        informers.quotas.within(by_family(policy)),
        lambda: informers.configuration.now().gpuid_scope,
    )
    informers.keep_ledger(program, Upkeep(partial(attach_indexes, policy)))
    preemptor = Preemptor(
        client,
        policy,
        cluster_state=informers.cluster_state,
        pods=informers.pods.store,
        nominations=nominations,
        configuration=informers.configuration,
        events=events,
        kinds=kinds,
    )
    context = SchedulingContext(
        policy=policy,
        cluster_state=informers.cluster_state,
        candidates=candidates,
        upgrades=upgrades,
        kinds=kinds,
        binder=Binder(
            policy,
            informers.cluster_state,
            candidates,
            unschedulable=unschedulable,
            events=events,
            metrics=metrics,
        ),
        preemptor=preemptor,
        nominations=nominations,
        recent=recent,
    )
    gangs = GangScheduler(context, informers.configuration, queue.add, metrics)
    scheduler = Scheduler(context, gangs, unschedulable, metrics, queue.upcoming)
    controller: Controller[RequesterKey] = Controller(
        "scheduler", scheduler.reconcile, workers=1, background=CONCURRENT_BINDS, queue=queue
    )
    controller.watch_changes(informers.sharepods, sharepods.keys)
    members = GangMembers(controller, kinds)
    controller.watch(informers.sharepods, members.of, when=affects_gang)
    controller.watch(gated, pods.keys)
    controller.watch(gated, members.of, when=affects_gang)
    controller.watch(informers.pods, pods.short_of_resources, when=_frees_resources)
    _watch_cluster(controller, informers, wakeups)
    controller.watch(informers.pods, wakeups.all, when=preemptor.victim_found)
    controller.watch(informers.vgpus, wakeups.all, when=preemptor.victim_holds)
    controller.watch(informers.configmaps, gangs.oversized)
    controller.watch(leases, wakeups.all, when=leader_changed)
    program.add_controller(controller)
    program.add_task(wakeups.resync, leading=True)
    program.add_task(meter.follow, leading=True)
    return program


def _gated_pods(
    client: Client,
    known: AssumeCache[Raw],
    status: ScheduledCondition,
    informers: Informers,
    wall_clock: Callable[[], datetime],
) -> GatedPods:
    return GatedPods(
        client,
        known,
        status,
        partial(_max_priority, informers.configuration),
        bound=informers.pods.store,
        cluster_state=informers.cluster_state,
        node_resources=NodeResources(informers.nodes, informers.pods, informers.cluster_state),
        volumes=VolumeBinder(client, informers.nodes.store),
        models=partial(_models, informers.gpunodes.store),
        unit=lambda: informers.configuration.now().gpushare.unit_bytes,
        gpu_of=partial(_gpu_of, informers.gpunodes.store),
        wall_clock=wall_clock,
        by_extender=lambda family: informers.configuration.now().door_of(family) == "extender",
    )


def _watch_cluster(
    controller: Controller[RequesterKey], informers: Informers, wakeups: Wakeups
) -> None:
    """Queue unschedulable requesters when the cluster changes in a way that may let them in."""
    watched: tuple[Reflector[Any], ...] = (
        informers.vgpus,
        informers.gpunodes,
        informers.nodes,
        informers.pods,
    )
    for changed in watched:
        controller.watch_changes(changed, wakeups.update_ledger)
    controller.watch(informers.vgpus, wakeups.of_vgpu)
    controller.watch(informers.pods, wakeups.of_placeholder)
    controller.watch(informers.nodes, wakeups.all, when=node_changed)
    controller.watch(informers.gpunodes, wakeups.all, when=gpunode_changed)
    controller.watch(informers.resourcequotas, wakeups.all, when=gpu_limits_changed)
    controller.watch(informers.gpuquotas, wakeups.all, when=limits_changed)
    controller.watch(informers.configmaps, wakeups.all)


def _max_priority(configuration: DynamicConfiguration, namespace: str) -> int:
    """The highest priority that demands of a namespace may have."""
    return configuration.now().max_priority.of(namespace)


def _frees_resources(change: Change[core_v1.Pod]) -> bool:
    """Whether a pod that used resources of a node has ended or was deleted."""
    changed = change.object
    return bool(changed.spec.node_name) and (changed.terminal or change.type == DELETED)


def _gpu_of(gpunodes: Store[GPUNode], vgpu: VGPU) -> GPUDevice | None:
    found = gpunodes.get(vgpu.spec.node_name)
    devices = found.spec.devices if found is not None else ()
    return next((each for each in devices if each.uuid == vgpu.spec.uuid), None)


def _models(gpunodes: Store[GPUNode]) -> set[str]:
    found = gpunodes.snapshot().values()
    return {device.model for node in found for device in node.spec.devices}
