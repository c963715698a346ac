"""The device manager put together: what it watches, and what wakes which object."""

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any, Final

from kubeshare.api import cluster, sharepods
from kubeshare.api.eligibility import Eligibility
from kubeshare.api.gangs import GANG, gang_index, gang_index_of_shape, gang_of, gang_of_shape
from kubeshare.api.names import LABEL_VGPU, MANAGER_DEVICES, NAMESPACE
from kubeshare.api.pool import Pool
from kubeshare.api.quotas import quota_differs
from kubeshare.api.v1 import VGPU, GPUNode, Holder
from kubeshare.api.waiting import Waiting
from kubeshare.api.watched import Watched, watch
from kubeshare.core.namespace_quota import within
from kubeshare.core.policies import Policy
from kubeshare.devices.degraded import Degraded
from kubeshare.devices.dismantle import Dismantle
from kubeshare.devices.early import EarlyPods
from kubeshare.devices.events import Events
from kubeshare.devices.evict import Evictions
from kubeshare.devices.full_node import FullNodes
from kubeshare.devices.gang import GangTimeouts
from kubeshare.devices.guard import Guard
from kubeshare.devices.idle import IdleTimes
from kubeshare.devices.lost_node import LostNodes
from kubeshare.devices.metrics import Metrics
from kubeshare.devices.mirror import Mirror
from kubeshare.devices.missing import Missing
from kubeshare.devices.move_on import MoveOn
from kubeshare.devices.node_pool import NodePools
from kubeshare.devices.nudge import Nudges
from kubeshare.devices.placeholder import Placeholders
from kubeshare.devices.plain_pods import PlainPodLife
from kubeshare.devices.pod import Pods
from kubeshare.devices.pool_program import add_missing, add_pools
from kubeshare.devices.regain import Regain
from kubeshare.devices.release import Release
from kubeshare.devices.reserve import Reserve
from kubeshare.devices.sharepods import SharePodLife
from kubeshare.devices.taken_gpu import TakenGpus
from kubeshare.devices.vgpus import VGPULife
from kubeshare.kube.api import Api
from kubeshare.kube.clock import utc_now
from kubeshare.kube.controller import Controller, own_key
from kubeshare.kube.events import EventRecorder
from kubeshare.kube.lease import LeaseElector
from kubeshare.kube.meta import Key, key_of
from kubeshare.kube.resources import Raw
from kubeshare.kube.runtime import Program
from kubeshare.kube.store import DELETED, Change, Store

NAME: Final = "kubeshare-device-manager"
"""Of the program, and of the Lease that its leader holds."""

_BY_GPUID = "names a vGPU"


def devices_program(  # noqa: PLR0913 - what it is told
    api: Api,
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
        api: the cluster.
        policy: says whether a demand fits on a GPU that it names.
        placeholder_image: any that has ``sh`` and ``sleep``.
        instance: the name of this replica, for events and for the Lease.
        port: of probes and metrics; None for no server.
        elect: whether it works only while it holds the Lease of its name.
        wall_clock: the times that people read.
        built: called after the ledger of the cluster has been made.
    """
    recorder = EventRecorder(api, "kubeshare.nthu/device-manager", instance, wall_clock=wall_clock)
    elector = LeaseElector(api, NAMESPACE, NAME, instance, wall_clock=wall_clock) if elect else None
    program = Program(NAME, api, elector=elector, recorder=recorder, port=port)
    watched = watch(program, api, MANAGER_DEVICES, recorder, built)
    asked, inventory = watched.sharepods, watched.inventory
    asked.store.add_index(_BY_GPUID, lambda raw: sharepods.gpuids(sharepods.view(raw)))
    policy = within(policy, watched.quotas.of)
    events, metrics = Events(recorder), Metrics(program.registry)
    placeholders = Placeholders(api, inventory, placeholder_image, events, metrics)
    waiting: Waiting[Key] = Waiting()
    idle_times = IdleTimes(inventory.pool)
    of_vgpus = VGPULife(
        pool=inventory.pool,
        release=Release(api, inventory, asked.store, metrics),
        lost_nodes=LostNodes(api, watched.nodes.store, inventory.pool, events),
        dismantle=Dismantle(api, inventory, placeholders, metrics),
        placeholders=placeholders,
        degraded=Degraded(
            api,
            inventory.pool,
            watched.gpunodes.store,
            placeholders,
            events=events,
            wall_clock=wall_clock,
        ),
        regain=Regain(watched.nodes.store, placeholders, events),
        evictions=Evictions(api, inventory, watched.nodes.store, watched.configuration, events),
        guard=Guard(api, inventory, placeholders, idle_times),
        events=events,
    )
    move_on = MoveOn(
        api,
        inventory.pool,
        events,
        configuration=watched.configuration,
        wall_clock=wall_clock,
    )
    of_sharepods = SharePodLife(
        api=api,
        asked=asked.store,
        inventory=inventory,
        waiting=waiting,
        reserve=Reserve(inventory, policy),
        pods=Pods(api, inventory, metrics),
        early=EarlyPods(api, inventory, placeholders),
        placeholders=placeholders,
        full_nodes=FullNodes(api, inventory, move_on, metrics),
        taken_gpus=TakenGpus(inventory, placeholders, policy, move_on),
        nudges=Nudges(api, wall_clock),
        mirror=Mirror(api, wall_clock),
        events=events,
    )
    pools = NodePools(inventory, placeholders, idle_times)
    add_pools(program, api, watched, pools=pools, events=events, metrics=metrics)
    of_pods = PlainPodLife(api, inventory, Pods(api, inventory, metrics), events, metrics)
    missing = Missing(
        api=api,
        asked=asked.store,
        pods=watched.pods,
        inventory=inventory,
        eligibility=Eligibility(watched.nodes),
        policy=policy,
        configuration=watched.configuration,
        image=placeholder_image,
        events=events,
    )
    add_missing(program, watched, missing)
    wakes = _Wakes(asked.store, inventory.pool, waiting)
    vgpu_controller: Controller[Key] = Controller("vgpus", of_vgpus.reconcile)
    vgpu_controller.watch(watched.vgpus, own_key)
    vgpu_controller.watch(watched.pods, wakes.vgpus_of_pod)
    vgpu_controller.watch(asked, wakes.vgpus_of_sharepod, when=_asks_otherwise)
    vgpu_controller.watch(watched.nodes, wakes.vgpus_of_node, when=_changed_its_mind)
    vgpu_controller.watch(watched.gpunodes, wakes.vgpus_of_node)
    sharepod_controller: Controller[Key] = Controller("sharepods", of_sharepods.reconcile)
    sharepod_controller.watch(asked, own_key)
    sharepod_controller.watch_changes(watched.vgpus, wakes.sharepods_of_change)
    sharepod_controller.watch(watched.pods, wakes.sharepods_of_pod)
    sharepod_controller.watch(watched.gpunodes, wakes.all_waiting)
    sharepod_controller.watch(watched.resourcequotas, wakes.all_waiting, when=quota_differs)
    sharepod_controller.watch(watched.nodes, wakes.all_waiting)
    pod_controller: Controller[Key] = Controller("pods", of_pods.reconcile)
    pod_controller.watch(watched.pods, wakes.plain_pod)
    pod_controller.watch(watched.vgpus, wakes.pods_of_vgpu)
    program.add_controller(vgpu_controller)
    program.add_controller(pod_controller)
    program.add_controller(sharepod_controller)
    _add_gangs(program, api, watched, events=events, wall_clock=wall_clock)
    return program


def _add_gangs(
    program: Program,
    api: Api,
    watched: Watched,
    *,
    events: Events,
    wall_clock: Callable[[], datetime],
) -> None:
    """Give gangs so long to start, and no longer."""
    watched.sharepods.store.add_index(GANG, gang_index)
    watched.pods.store.add_index(GANG, gang_index_of_shape)
    timeouts = GangTimeouts(
        api,
        asked=watched.sharepods.store,
        pods=watched.pods.store,
        inventory=watched.inventory,
        events=events,
        configuration=watched.configuration,
        wall_clock=wall_clock,
    )
    of_gangs: Controller[Key] = Controller("gangs", timeouts.reconcile)
    of_gangs.watch(watched.sharepods, lambda raw: filter(None, [gang_of(raw)]))
    of_gangs.watch(watched.pods, lambda pod: filter(None, [gang_of_shape(pod)]))
    program.add_controller(of_gangs)


def _changed_its_mind(change: Change[cluster.Node]) -> bool:
    """It came or went, or takes pods no more, or again."""
    old, new = change.old, change.object
    if change.type == DELETED or old is None:
        return True
    return (old.takes_pods, old.driver_upgrade) != (new.takes_pods, new.driver_upgrade)


def _asks_otherwise(change: Change[Raw]) -> bool:
    """More than what its conditions say."""
    old, new = change.old, change.object
    return change.type == DELETED or old is None or _asked_for(old) != _asked_for(new)


def _asked_for(raw: Raw) -> tuple[Any, ...]:
    metadata, status = raw["metadata"], raw.get("status") or {}
    told = (metadata.get(key) for key in ("uid", "deletionTimestamp", "annotations", "labels"))
    return (*told, raw.get("spec"), status.get("phase"), status.get("nodeName"))


def _differs_for_all(old: VGPU, new: VGPU) -> bool:
    """The GPU itself is another, or there may be more room on it."""
    parts = set(map(_part, new.status.holders))
    return (
        (old.metadata.uid, old.metadata.annotations, old.metadata.deletion_timestamp)
        != (new.metadata.uid, new.metadata.annotations, new.metadata.deletion_timestamp)
        or (old.spec, old.status.phase, old.status.conditions)
        != (new.spec, new.status.phase, new.status.conditions)
        or any(
            (each.demand, each.container, each.attempt) not in parts for each in old.status.holders
        )
    )


def _part(holder: Holder) -> tuple[str, str, int]:
    return holder.demand, holder.container, holder.attempt


def _asker(holder: Holder) -> Key:
    return Key(holder.namespace, holder.name)


class _Wakes:
    """Which keys a changed object concerns.

    Args:
        asked: the SharePods.
        pool: the vGPUs.
        waiting: SharePods for which a GPU given by name has no room.
    """

    def __init__(self, asked: Store[Raw], pool: Pool, waiting: Waiting[Key]) -> None:
        self._asked = asked
        self._pool = pool
        self._waiting = waiting

    def all_waiting(self, _: object) -> Iterable[Key]:
        return self._waiting.oldest_first()

    def vgpus_of_pod(self, pod: cluster.Pod) -> Iterable[Key]:
        """The one that it names, and those of which it has a part as a plain pod."""
        gpuid = pod.metadata.labels.get(LABEL_VGPU)
        held = self._pool.held_by(pod.metadata.uid)
        names = {vgpu.metadata.name for vgpu in held} | ({gpuid} if gpuid else set())
        return [Key("", name) for name in sorted(names)]

    def plain_pod(self, pod: cluster.Pod) -> Iterable[Key]:
        """Its own key, if it has a part of a GPU itself rather than through a SharePod."""
        return [pod.metadata.key] if self._pool.held_by(pod.metadata.uid) else []

    def pods_of_vgpu(self, vgpu: VGPU) -> Iterable[Key]:
        """Those that may have a part of it and wait for their node to be told."""
        return [
            Key(holder.namespace, holder.name)
            for holder in vgpu.status.holders
            if not holder.pod_uid
        ]

    def vgpus_of_node(self, node: cluster.Node | GPUNode) -> Iterable[Key]:
        return [Key("", vgpu.metadata.name) for vgpu in self._pool.on_node(node.metadata.name)]

    def vgpus_of_sharepod(self, raw: Raw) -> Iterable[Key]:
        """Those that it names, and those of which it has a part all the same."""
        sharepod = sharepods.view(raw)
        held = self._pool.held_by(sharepod.metadata.uid)
        names = {*sharepods.gpuids(sharepod), *(vgpu.metadata.name for vgpu in held)}
        return [Key("", name) for name in sorted(names)]

    def sharepods_of_vgpu(self, vgpu: VGPU) -> Iterable[Key]:
        """Those that have a part of it, and those that name it."""
        naming = self._asked.by_index(_BY_GPUID, vgpu.metadata.name)
        return sorted({key_of(raw) for raw in naming} | set(map(_asker, vgpu.status.holders)))

    def sharepods_of_change(self, change: Change[VGPU]) -> Iterable[Key]:
        """All of them, or those whose own part is new, where the others notice nothing.

        Many share a GPU, and each writes its own part of it: what all of them looked at each
        time would grow with the square of their number.
        """
        old, new = change.old, change.object
        if change.type == DELETED or old is None or _differs_for_all(old, new):
            states = (new,) if old is None else (old, new)
            return {key for state in states for key in self.sharepods_of_vgpu(state)}
        return {_asker(holder) for holder in new.status.holders if holder not in old.status.holders}

    def sharepods_of_pod(self, pod: cluster.Pod) -> Iterable[Key]:
        """Its own, or of a placeholder, those that wait for its GPU."""
        vgpu = self._pool.get(pod.placeholder_of) if pod.placeholder_of else None
        if vgpu is not None:
            return self.sharepods_of_vgpu(vgpu)
        waiting = self._waiting.oldest_first() if pod.whole_gpus else ()
        return [pod.metadata.key, *waiting]
