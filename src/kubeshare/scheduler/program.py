"""The scheduler put together: what it watches, and what wakes which SharePod."""

from collections.abc import Callable, Iterable
from datetime import UTC, datetime

from kubeshare.api import cluster
from kubeshare.api.inventory import Inventory
from kubeshare.api.latest import Latest
from kubeshare.api.names import MANAGER_SCHEDULER
from kubeshare.api.v1 import GPUNODES, SHAREPODS, VGPU, VGPUS, GPUNode
from kubeshare.api.waiting import Waiting
from kubeshare.core.policies import Policy
from kubeshare.kube.api import Api
from kubeshare.kube.controller import Controller, own_key
from kubeshare.kube.events import EventRecorder
from kubeshare.kube.meta import Key
from kubeshare.kube.reflector import Reflector
from kubeshare.kube.resources import Raw
from kubeshare.kube.runtime import Program
from kubeshare.kube.store import Change
from kubeshare.scheduler.bind import Binder
from kubeshare.scheduler.controller import Scheduler
from kubeshare.scheduler.events import Events
from kubeshare.scheduler.metrics import Metrics
from kubeshare.scheduler.status import Status


def _utc_now() -> datetime:
    return datetime.now(UTC)


def scheduler_program(
    api: Api,
    policy: Policy,
    *,
    instance: str,
    port: int | None = None,
    wall_clock: Callable[[], datetime] = _utc_now,
) -> Program:
    """KubeShare-Sched, ready to run.

    Args:
        api: the cluster.
        policy: places demands.
        instance: the name of this replica, for events.
        port: of probes and metrics; None for no server.
        wall_clock: the times that people read.
    """
    recorder = EventRecorder(api, "kubeshare.nthu/scheduler", instance, wall_clock=wall_clock)
    program = Program("kubeshare-scheduler", api, recorder=recorder, port=port)
    asked: Reflector[Raw] = program.add_reflector(Reflector(api, SHAREPODS))
    vgpus: Reflector[VGPU] = program.add_reflector(Reflector(api, VGPUS.into(VGPU)))
    gpunodes: Reflector[GPUNode] = program.add_reflector(Reflector(api, GPUNODES.into(GPUNode)))
    nodes: Reflector[cluster.Node] = program.add_reflector(Reflector(api, cluster.NODES))
    pods: Reflector[cluster.Pod] = program.add_reflector(Reflector(api, cluster.PODS))
    known = Latest(asked)
    waiting = Waiting()
    scheduler = Scheduler(
        policy=policy,
        inventory=Inventory(
            api, MANAGER_SCHEDULER, vgpus=vgpus, gpunodes=gpunodes, nodes=nodes, pods=pods
        ),
        known=known,
        waiting=waiting,
        binder=Binder(api, known),
        status=Status(api, known, wall_clock),
        events=Events(recorder),
        metrics=Metrics(program.registry, waiting),
    )

    def all_waiting(_: object) -> Iterable[Key]:
        return waiting.oldest_first()

    controller: Controller[Key] = Controller("scheduler", scheduler.reconcile, workers=1)
    controller.watch(asked, own_key)
    controller.watch(vgpus, all_waiting)
    controller.watch(gpunodes, all_waiting)
    controller.watch(nodes, all_waiting, when=_node_differs)
    controller.watch(pods, all_waiting, when=_concerns_whole_gpus)
    program.add_controller(controller)
    return program


def _node_differs(change: Change[cluster.Node]) -> bool:
    """More than a sign of life."""
    old, new = change.old, change.object
    return old is None or (old.metadata.labels, old.spec, old.status) != (
        new.metadata.labels,
        new.spec,
        new.status,
    )


def _concerns_whole_gpus(change: Change[cluster.Pod]) -> bool:
    return change.object.whole_gpus > 0
