"""What a decision costs in the cluster's programs: a kept ledger beside one built each time.

Before each decision something has happened, as it has in a cluster: a watch has told of
a vGPU that got a holder or lost one. The slow side does what the fast one is proven
equal to: it builds the ledger, and the policy's index, from all objects.
"""

import asyncio
import gc
import time
from itertools import groupby, islice
from typing import Any

import msgspec
from bench.placement.clusters import GPUS_ON_A_NODE, Cluster
from bench.report import line, median

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

_DECISIONS = 300
_BUILT = 5


def run() -> list[bool]:
    """Both sides at two sizes of a cluster."""
    try:
        return [asyncio.run(_compare(gpus)) for gpus in SIZES]
    finally:
        gc.unfreeze()


async def _compare(gpus: int) -> bool:
    world = _World(gpus)
    world.build_once()
    kept, built = [], []
    for number, demand in enumerate(islice(world.demands, _DECISIONS)):
        world.something_happens(number)
        begun = time.thread_time_ns()
        world.decide(demand)
        kept.append((time.thread_time_ns() - begun) / 1000)
        if number < _BUILT:
            begun = time.thread_time_ns()
            world.decide_anew(demand)
            built.append((time.thread_time_ns() - begun) / 1000)
    what = f"decision of the cluster's scheduler after an event, {gpus} GPUs, µs"
    cost = median(kept)
    return line(what, "<= 300 median", cost, met=cost <= 300, built_each_time_us=median(built))


class _World:
    """The objects of a cluster, as watches have told of them."""

    def __init__(self, gpus: int) -> None:
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
        """The start of the program, which leaves what it has built out of garbage collection."""
        decide(policy("locality"), self._kept.now(), next(self.demands), self._eligibility.of({}))
        gc.collect()
        gc.freeze()

    def something_happens(self, number: int) -> None:
        """A watch tells that a vGPU has lost its holders, or that it has them again."""
        device = self._devices[number // 2 * 7 % len(self._devices)]
        if number % 2 == 0:
            device = msgspec.structs.replace(device, holders=())
        changes = self._vgpus.store.put(_vgpu(device, version=number + 2))
        self._vgpus._tell(changes)  # noqa: SLF001 - there is no watch that would

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
