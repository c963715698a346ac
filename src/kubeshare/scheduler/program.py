"""The scheduler put together: what it watches, and what wakes which asker."""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from functools import partial
from typing import Final

from kubeshare.api.predicates.eligibility import Eligibility
from kubeshare.api.predicates.node_resources import NodeResources
from kubeshare.api.quotas import gpu_limits_changed
from kubeshare.api.state.assume_cache import AssumeCache
from kubeshare.api.state.informers import start_informers
from kubeshare.api.state.unschedulable import UnschedulableQueue
from kubeshare.api.types import core_v1
from kubeshare.api.types.constants import LABEL_ROLE, MANAGER_SCHEDULER, NAMESPACE, ROLE_POD
from kubeshare.api.types.v1 import GPUNode
from kubeshare.core.policies import Policy
from kubeshare.core.quota.namespace import within_quotas
from kubeshare.kube.cache.reflector import Reflector
from kubeshare.kube.cache.store import DELETED, Change, Store
from kubeshare.kube.client.client import Client
from kubeshare.kube.clock import utc_now
from kubeshare.kube.controller.controller import Controller
from kubeshare.kube.controller.events import EventRecorder
from kubeshare.kube.controller.leader_election import LeaderElector
from kubeshare.kube.controller.runtime import Program
from kubeshare.kube.controller.workqueue import WorkQueue
from kubeshare.kube.resources import PODS, Raw
from kubeshare.scheduler.binding import Binder
from kubeshare.scheduler.candidate_nodes import CandidateNodes
from kubeshare.scheduler.context import SchedulingContext
from kubeshare.scheduler.controller import Scheduler
from kubeshare.scheduler.events import Events
from kubeshare.scheduler.gang.scheduling import GangScheduler
from kubeshare.scheduler.metrics import Metrics
from kubeshare.scheduler.preemption.nominations import Nominations
from kubeshare.scheduler.preemption.preemption import Preemptor
from kubeshare.scheduler.queue_sort import affects_gang, by_priority, gang_members
from kubeshare.scheduler.requesters import pod as pods
from kubeshare.scheduler.requesters import sharepod
from kubeshare.scheduler.requesters.base import RequesterKey, RequesterKind
from kubeshare.scheduler.requesters.pod import GatedPods
from kubeshare.scheduler.requesters.sharepod import SharePods
from kubeshare.scheduler.scheduled_condition import ScheduledCondition
from kubeshare.scheduler.volume_binding import VolumeBinder

NAME: Final = "kubeshare-scheduler"
"""Of the program, and of the Lease that its leader holds."""
CONCURRENT_BINDS: Final = 16
"""Askers that are being told of what was decided, while the next ones are decided about."""


def scheduler_program(  # noqa: PLR0913 - what it is told
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
        client: the cluster.
        policy: places demands.
        instance: the name of this replica, for events and for the Lease.
        port: of probes and metrics; None for no server.
        elect: whether it works only while it holds the Lease of its name.
        wall_clock: the times that people read.
        built: called after the ledger of the cluster has been made.
    """
    recorder = EventRecorder(client, "kubeshare.nthu/scheduler", instance, wall_clock=wall_clock)
    elector = (
        LeaderElector(client, NAMESPACE, NAME, instance, wall_clock=wall_clock) if elect else None
    )
    program = Program(NAME, client, elector=elector, recorder=recorder, port=port)
    watched = start_informers(program, client, MANAGER_SCHEDULER, recorder, built)
    policy = within_quotas(policy, watched.quotas.of)
    status = ScheduledCondition(client, wall_clock)
    of_sharepods = SharePods(
        client, AssumeCache(watched.sharepods), status, watched.cluster_state.demands
    )
    gated: Reflector[Raw] = program.add_reflector(
        Reflector(client, PODS, labels=f"{LABEL_ROLE}={ROLE_POD}", fields="spec.nodeName=")
    )
    of_pods = GatedPods(
        client,
        AssumeCache(gated),
        status,
        bound=watched.pods.store,
        cluster_state=watched.cluster_state,
        rooms=NodeResources(watched.nodes, watched.pods, watched.cluster_state),
        volumes=VolumeBinder(client, watched.nodes.store),
        models=partial(_models, watched.gpunodes.store),
    )
    waiting: UnschedulableQueue[RequesterKey] = UnschedulableQueue()
    kinds: Mapping[str, RequesterKind] = {sharepod.KIND: of_sharepods, pods.KIND: of_pods}
    metrics = Metrics(program.registry, waiting)
    places = CandidateNodes(Eligibility(watched.nodes), watched.configuration, wall_clock)
    events, kept = Events(recorder), Nominations()
    binder = Binder(
        policy, watched.cluster_state, places, waiting=waiting, events=events, metrics=metrics
    )
    preempt = Preemptor(
        client,
        policy,
        cluster_state=watched.cluster_state,
        pods=watched.pods.store,
        kept=kept,
        configuration=watched.configuration,
        events=events,
    )
    parts = SchedulingContext(
        policy=policy,
        cluster_state=watched.cluster_state,
        candidates=places,
        kinds=kinds,
        binder=binder,
        preemptor=preempt,
        nominations=kept,
    )
    scheduler = Scheduler(parts, GangScheduler(parts, watched.configuration), waiting, metrics)

    def all_waiting(_: object) -> Iterable[RequesterKey]:
        return waiting.oldest_first()

    queue: WorkQueue[RequesterKey] = WorkQueue("scheduler", priority=by_priority(kinds))
    controller: Controller[RequesterKey] = Controller(
        "scheduler", scheduler.reconcile, workers=1, background=CONCURRENT_BINDS, queue=queue
    )
    controller.watch_changes(watched.sharepods, of_sharepods.keys)
    controller.watch(watched.sharepods, gang_members(kinds), when=affects_gang)
    controller.watch(gated, of_pods.keys)
    controller.watch(gated, gang_members(kinds), when=affects_gang)
    controller.watch(watched.vgpus, all_waiting)
    controller.watch(watched.gpunodes, all_waiting)
    controller.watch(watched.nodes, all_waiting, when=_node_differs)
    controller.watch(watched.pods, all_waiting, when=_concerns_whole_gpus)
    controller.watch(watched.resourcequotas, all_waiting, when=gpu_limits_changed)
    controller.watch(watched.pods, of_pods.short_of_resources, when=_makes_room)
    controller.watch(watched.configmaps, all_waiting)
    program.add_controller(controller)
    return program


def _node_differs(change: Change[core_v1.Node]) -> bool:
    """More than a sign of life."""
    old, new = change.old, change.object
    return old is None or (old.metadata.labels, old.spec, old.status) != (
        new.metadata.labels,
        new.spec,
        new.status,
    )


def _concerns_whole_gpus(change: Change[core_v1.Pod]) -> bool:
    return change.object.whole_gpus > 0


def _makes_room(change: Change[core_v1.Pod]) -> bool:
    """A pod that took room of a node has ended or is gone."""
    pod = change.object
    return bool(pod.spec.node_name) and (pod.terminal or change.type == DELETED)


def _models(gpunodes: Store[GPUNode]) -> set[str]:
    found = gpunodes.snapshot().values()
    return {device.model for node in found for device in node.spec.devices}
