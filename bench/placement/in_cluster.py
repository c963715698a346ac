"""What a decision costs in the cluster's programs: a cached ledger beside one built each time.

Before each decision something has happened, as in a cluster: a watch has delivered a vGPU that
got a holder or lost one. The slow side does what the fast one is proven equal to: it builds the
ledger, and the policy's index, from all objects. Both sides and all sizes take turns.
"""

import asyncio
import gc
import time
from collections.abc import Callable
from functools import partial
from itertools import groupby, islice
from typing import Any

import msgspec
from bench.placement.clusters import GPUS_ON_A_NODE, Cluster
from bench.report import Met, median, report, time_at_most

from kubeshare.api.predicates.eligibility import Eligibility, eligible
from kubeshare.api.state import ledger_builder
from kubeshare.api.state.ledger_cache import LedgerCache
from kubeshare.api.state.vgpu_store import VGPUStore
from kubeshare.api.types import core_v1 as objects
from kubeshare.api.types import v1
from kubeshare.api.types.constants import (
    LABEL_ROLE,
    LABEL_VGPU,
    NAMESPACE,
    ROLE_PLACEHOLDER,
    WHOLE_GPU_RESOURCE,
)
from kubeshare.core.demand import Demand
from kubeshare.core.ledger.device import Device
from kubeshare.core.policies import policy
from kubeshare.kube.cache.reflector import Reflector
from kubeshare.kube.meta import Condition, ObjectMeta
from kubeshare.scheduler.scheduling import decide
from kubeshare.simulator.control import FakeApiServer

SIZES = (1_000, 10_000)

_ROUNDS = 5
_DECISIONS = 60  # in each round


def run() -> list[Met]:
    """Both sides at two sizes of a cluster."""
    try:
        return asyncio.run(_compare())
    finally:
        gc.unfreeze()


async def _compare() -> list[Met]:
    clusters = [_WatchedCluster(gpus) for gpus in SIZES]
    for cluster in clusters:
        cluster.build_once()
    gc.collect()
    gc.freeze()
    for _ in range(_ROUNDS):
        for cluster in clusters:
            cluster.round()
    return [cluster.report() for cluster in clusters]


class _WatchedCluster:
    """The objects of a cluster, as watches have delivered them."""

    def __init__(self, gpus: int) -> None:
        self._gpus = gpus
        self._events = 0
        self._cached_us: list[float] = []
        self._built_us: list[float] = []
        drawn = Cluster("mixed", gpus)
        self.demands = drawn.demands()
        client = FakeApiServer().client()
        self._vgpus: Reflector[v1.VGPU] = Reflector(client, v1.VGPUS.into(v1.VGPU))
        self._gpunodes: Reflector[v1.GPUNode] = Reflector(client, v1.GPUNODES.into(v1.GPUNode))
        self._nodes: Reflector[objects.Node] = Reflector(client, objects.NODES)
        self._pods: Reflector[objects.Pod] = Reflector(client, objects.PODS)
        self._pool = VGPUStore(client, self._vgpus, "bench")
        self._kept = LedgerCache(
            self._pool, gpunodes=self._gpunodes, nodes=self._nodes, pods=self._pods
        )
        self._eligibility = Eligibility(self._nodes)
        self._devices = drawn.devices
        for node in drawn.nodes:
            self._nodes.store.put(_node(node.name))
        for name, of_node in groupby(drawn.devices, lambda device: device.node):
            devices = list(of_node)
            self._gpunodes.store.put(_gpunode(name, devices))
            for device in devices:
                self._vgpus.store.put(_vgpu(device))
                self._pods.store.put(_placeholder(device))

    def build_once(self) -> None:
        """The start of the program."""
        self.decide(next(self.demands))

    def round(self) -> None:
        """One round of the cached ledger, and one decision with a ledger that is built for it."""
        costs = []
        for demand in islice(self.demands, _DECISIONS):
            self.receive_event()
            costs.append(_timed_us(partial(self.decide, demand)))
        self._cached_us.append(median(costs))
        self._built_us.append(_timed_us(partial(self.decide_anew, next(self.demands))))

    def report(self) -> Met:
        """Print what was measured."""
        return report(
            f"decision of the cluster's scheduler after an event, {self._gpus} GPUs, µs",
            time_at_most(300),
            self._cached_us,
            built_each_time_us=round(median(self._built_us), 1),
        )

    def receive_event(self) -> None:
        """A watch delivers that a vGPU has lost its holders, or that it has them again."""
        number, self._events = self._events, self._events + 1
        device = self._devices[number // 2 * 7 % len(self._devices)]
        if number % 2 == 0:
            device = msgspec.structs.replace(device, holders=())
        changes = self._vgpus.store.put(_vgpu(device, version=number + 2))
        self._vgpus._notify(changes)  # noqa: SLF001 - there is no watch that would

    def decide(self, demand: Demand) -> None:
        """As the scheduler does it."""
        where = self._eligibility.of({})
        decide(policy("locality"), self._kept.now(), demand, where)

    def decide_anew(self, demand: Demand) -> None:
        """With a ledger that is made for this one."""
        nodes = self._nodes.store.snapshot().values()
        built = ledger_builder.build(
            self._pool.all(),
            self._gpunodes.store.snapshot().values(),
            nodes,
            self._pods.store.snapshot().values(),
        )
        decide(policy("locality"), built, demand, eligible(nodes, {}))


def _timed_us(call: Callable[[], None]) -> float:
    """Processor time of a call, in µs."""
    begun = time.thread_time_ns()
    call()
    return (time.thread_time_ns() - begun) / 1000


def _node(name: str) -> objects.Node:
    status = objects.NodeStatus(
        allocatable={WHOLE_GPU_RESOURCE: GPUS_ON_A_NODE},
        conditions=(Condition(type="Ready", status="True"),),
    )
    return objects.Node(metadata=_meta(name), status=status)


def _gpunode(name: str, devices: list[Device]) -> v1.GPUNode:
    found = tuple(
        v1.GPUDevice(
            uuid=f"GPU-{of.id}", index=number, model=of.model, memory_bytes=of.memory_bytes
        )
        for number, of in enumerate(devices)
    )
    return v1.GPUNode(metadata=_meta(name), spec=v1.GPUNodeSpec(devices=found))


def _vgpu(device: Device, version: int = 1) -> v1.VGPU:
    spec = v1.VGPUSpec(
        node_name=device.node,
        uuid=f"GPU-{device.id}",
        model=device.model,
        memory_bytes=device.memory_bytes,
    )
    holders = tuple(
        v1.Holder(
            demand=each.demand,
            name=each.name,
            request_micros=each.request_micros,
            limit_micros=each.limit_micros,
            memory_bytes=each.memory_bytes,
            affinity=each.affinity,
            anti_affinity=each.anti_affinity,
            exclusion=each.exclusion,
        )
        for each in device.holders
    )
    status = v1.VGPUStatus(phase="Active", holders=holders)
    return v1.VGPU(metadata=_meta(device.id, version=version), spec=spec, status=status)


def _placeholder(device: Device) -> objects.Pod:
    labels = {LABEL_ROLE: ROLE_PLACEHOLDER, LABEL_VGPU: device.id}
    needs = objects.ResourceNeeds(limits={WHOLE_GPU_RESOURCE: 1})
    return objects.Pod(
        metadata=_meta(device.id, namespace=NAMESPACE, labels=labels),
        spec=objects.PodSpec(
            node_name=device.node,
            containers=(objects.Container(name="placeholder", resources=needs),),
        ),
        status=objects.PodStatus(phase="Running"),
    )


def _meta(name: str, version: int = 1, **more: Any) -> ObjectMeta:
    return ObjectMeta(name=name, uid=name, resource_version=str(version), **more)
