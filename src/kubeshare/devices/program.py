"""The device manager put together: what it watches, and what wakes which object."""

from collections.abc import Callable, Iterable
from datetime import UTC, datetime

from kubeshare.api import cluster, sharepods
from kubeshare.api.inventory import Inventory
from kubeshare.api.names import LABEL_VGPU, MANAGER_DEVICES
from kubeshare.api.v1 import GPUNODES, SHAREPODS, VGPU, VGPUS, GPUNode
from kubeshare.api.waiting import Waiting
from kubeshare.core.policies import Policy
from kubeshare.devices.dismantle import Dismantle
from kubeshare.devices.events import Events
from kubeshare.devices.metrics import Metrics
from kubeshare.devices.mirror import Mirror
from kubeshare.devices.placeholder import Placeholders
from kubeshare.devices.pod import Pods
from kubeshare.devices.release import Release
from kubeshare.devices.reserve import Reserve
from kubeshare.devices.sharepods import SharePodLife
from kubeshare.devices.vgpus import VGPULife
from kubeshare.kube.api import Api
from kubeshare.kube.controller import Controller, own_key
from kubeshare.kube.events import EventRecorder
from kubeshare.kube.meta import Key
from kubeshare.kube.reflector import Reflector
from kubeshare.kube.resources import Raw
from kubeshare.kube.runtime import Program
from kubeshare.kube.store import Store

_BY_GPUID = "names a vGPU"
_BY_HOLDER = "held by"


def _utc_now() -> datetime:
    return datetime.now(UTC)


def devices_program(  # noqa: PLR0913 - what it is told
    api: Api,
    policy: Policy,
    *,
    placeholder_image: str,
    instance: str,
    port: int | None = None,
    wall_clock: Callable[[], datetime] = _utc_now,
) -> Program:
    """KubeShare-DevMgr, ready to run.

    Args:
        api: the cluster.
        policy: says whether a demand fits on a GPU that it names.
        placeholder_image: any that has ``sh`` and ``sleep``.
        instance: the name of this replica, for events.
        port: of probes and metrics; None for no server.
        wall_clock: the times that people read.
    """
    recorder = EventRecorder(api, "kubeshare.nthu/device-manager", instance, wall_clock=wall_clock)
    program = Program("kubeshare-device-manager", api, recorder=recorder, port=port)
    asked: Reflector[Raw] = program.add_reflector(Reflector(api, SHAREPODS))
    vgpus: Reflector[VGPU] = program.add_reflector(Reflector(api, VGPUS.into(VGPU)))
    gpunodes: Reflector[GPUNode] = program.add_reflector(Reflector(api, GPUNODES.into(GPUNode)))
    nodes: Reflector[cluster.Node] = program.add_reflector(Reflector(api, cluster.NODES))
    pods: Reflector[cluster.Pod] = program.add_reflector(Reflector(api, cluster.PODS))
    asked.store.add_index(_BY_GPUID, lambda raw: sharepods.gpuids(sharepods.view(raw)))
    vgpus.store.add_index(_BY_HOLDER, _demands)
    inventory = Inventory(
        api, MANAGER_DEVICES, vgpus=vgpus, gpunodes=gpunodes, nodes=nodes, pods=pods
    )
    events, metrics = Events(recorder), Metrics(program.registry)
    placeholders = Placeholders(api, inventory, placeholder_image, events, metrics)
    waiting = Waiting()
    of_vgpus = VGPULife(
        inventory.pool,
        Release(api, inventory, asked.store, events, metrics),
        Dismantle(api, inventory, placeholders, metrics),
        placeholders,
        events,
    )
    of_sharepods = SharePodLife(
        api=api,
        asked=asked.store,
        inventory=inventory,
        waiting=waiting,
        reserve=Reserve(inventory, policy),
        pods=Pods(api, inventory, metrics),
        placeholders=placeholders,
        mirror=Mirror(api, wall_clock),
        events=events,
    )
    wakes = _Wakes(asked.store, vgpus.store, waiting)
    vgpu_controller: Controller[Key] = Controller("vgpus", of_vgpus.reconcile)
    vgpu_controller.watch(vgpus, own_key)
    vgpu_controller.watch(pods, wakes.vgpus_of_pod)
    vgpu_controller.watch(asked, wakes.vgpus_of_sharepod)
    sharepod_controller: Controller[Key] = Controller("sharepods", of_sharepods.reconcile)
    sharepod_controller.watch(asked, own_key)
    sharepod_controller.watch(vgpus, wakes.sharepods_of_vgpu)
    sharepod_controller.watch(pods, wakes.sharepods_of_pod)
    sharepod_controller.watch(gpunodes, wakes.all_waiting)
    sharepod_controller.watch(nodes, wakes.all_waiting)
    program.add_controller(vgpu_controller)
    program.add_controller(sharepod_controller)
    return program


class _Wakes:
    """Which keys a changed object concerns.

    Args:
        asked: the SharePods.
        vgpus: the vGPUs.
        waiting: SharePods for which a GPU given by name has no room.
    """

    def __init__(self, asked: Store[Raw], vgpus: Store[VGPU], waiting: Waiting) -> None:
        self._asked = asked
        self._vgpus = vgpus
        self._waiting = waiting

    def all_waiting(self, _: object) -> Iterable[Key]:
        return self._waiting.oldest_first()

    def vgpus_of_pod(self, pod: cluster.Pod) -> Iterable[Key]:
        gpuid = pod.metadata.labels.get(LABEL_VGPU)
        return [Key("", gpuid)] if gpuid else []

    def vgpus_of_sharepod(self, raw: Raw) -> Iterable[Key]:
        """Those that it names, and those of which it has a part all the same."""
        sharepod = sharepods.view(raw)
        held = self._vgpus.by_index(_BY_HOLDER, sharepod.metadata.uid)
        names = {*sharepods.gpuids(sharepod), *(vgpu.metadata.name for vgpu in held)}
        return [Key("", name) for name in sorted(names)]

    def sharepods_of_vgpu(self, vgpu: VGPU) -> Iterable[Key]:
        """Those that have a part of it, and those that name it."""
        naming = self._asked.by_index(_BY_GPUID, vgpu.metadata.name)
        keys = {sharepods.view(raw).metadata.key for raw in naming}
        keys |= {Key(holder.namespace, holder.name) for holder in vgpu.status.holders}
        return sorted(keys)

    def sharepods_of_pod(self, pod: cluster.Pod) -> Iterable[Key]:
        """Its own, or of a placeholder, those that wait for its GPU."""
        vgpu = self._vgpus.get(pod.placeholder_of) if pod.placeholder_of else None
        if vgpu is not None:
            return self.sharepods_of_vgpu(vgpu)
        waiting = self._waiting.oldest_first() if pod.whole_gpus else ()
        return [pod.metadata.key, *waiting]


def _demands(vgpu: VGPU) -> list[str]:
    return [holder.demand for holder in vgpu.status.holders]
