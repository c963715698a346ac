"""Objects of a gpushare cluster: owned nodes, their vGPUs, annotated pods.

Both extenders can read the same cluster: ours counts the holders, Alibaba's the annotations.
"""

import random
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from kubeshare.api.owned_nodes import static_name
from kubeshare.api.types.v1 import GPUNODES, VGPUS
from kubeshare.core.units import GI, MICROS
from kubeshare.kube.resources import NODES, PODS
from kubeshare.simulator.control import FakeApiServer

Raw = dict[str, Any]


class Size(NamedTuple):
    """The GPUs of a node.

    Attributes:
        gpus: how many.
        units: of each.
        unit: in bytes.
    """

    gpus: int
    units: int
    unit: int


GPUS: Final = 8
"""GPUs of a node."""
UNITS: Final = 16
"""GiB of a GPU."""
SIZE: Final = Size(GPUS, UNITS, GI)
PADDING: Final = {f"annotation-{number}": "x" * 60 for number in range(16)}
"""Annotations that make a Node 1.4 KB long."""
POD_UNITS: Final = 3
"""GiB of each pod of a :class:`SharedCluster`."""
MOST_PODS: Final = UNITS // POD_UNITS
"""Pods that fit a GPU."""
SPACE: Final = "default"


def seed_owned_node(
    server: FakeApiServer,
    name: str,
    holders: Callable[[str], list[Raw]],
    annotations: Mapping[str, str] | None = None,
    size: Size = SIZE,
) -> list[str]:
    """Add a node of gpushare whose GPUs KubeShare owns.

    Args:
        server: gets the Node, its GPUNode and its vGPUs.
        name: of the node.
        holders: name of a vGPU → its holders.
        annotations: of the Node.
        size: its GPUs.

    Returns:
        the names of its vGPUs, by index.
    """
    labels = {"gpushare": "true"}
    metadata = {"name": name, "labels": labels, "annotations": dict(annotations or {})}
    units = str(size.gpus * size.units)
    offered = {"aliyun.com/gpu-mem": units, "aliyun.com/gpu-count": str(size.gpus)}
    both = {"capacity": offered, "allocatable": offered}
    server.seed(NODES, {"metadata": metadata, "status": both})
    uuids = [f"GPU-{name}-{number}" for number in range(size.gpus)]
    memory = {"memoryBytes": size.units * size.unit}
    devices = [
        {"uuid": uuid, "index": index, "model": "V100", **memory}
        for index, uuid in enumerate(uuids)
    ]
    owned = {"type": "Owned", "status": "True", "reason": "Owned"}
    server.seed(
        GPUNODES,
        {
            "metadata": {"name": name},
            "spec": {"devices": devices},
            "status": {"mode": "owned", "conditions": [owned]},
        },
    )
    names = [static_name(uuid) for uuid in uuids]
    for uuid, vgpu in zip(uuids, names, strict=True):
        spec = {"nodeName": name, "uuid": uuid, "model": "V100", "pool": "static"}
        status = {"phase": "Active", "holders": holders(vgpu)}
        server.seed(VGPUS, {"metadata": {"name": vgpu}, "spec": spec | memory, "status": status})
    return names


def holder(demand: str, units: int, size: Size = SIZE) -> Raw:
    """A holder of so many units, with the compute that follows the memory."""
    return {
        "demand": demand,
        "namespace": SPACE,
        "name": demand,
        "podUid": demand,
        "requestMicros": MICROS * units // size.units,
        "memoryBytes": units * size.unit,
    }


class SharedCluster:
    """Nodes on whose GPUs pods run, each with its holder and with Alibaba's annotations.

    Attributes:
        names: of the nodes.
        server: has the objects.
    """

    def __init__(self, nodes: int) -> None:
        self.server = FakeApiServer()
        self.names = [f"node-{number:04}" for number in range(nodes)]
        self._source = random.Random(5)
        self._places: list[tuple[str, int, str]] = []
        """Node, index and vGPU of each GPU."""
        self._pods: dict[str, list[str]] = {}
        """vGPU → its pods."""
        self._created = 0
        for node in self.names:
            vgpus = seed_owned_node(self.server, node, self._new_holders, PADDING)
            for index, vgpu in enumerate(vgpus):
                self._places.append((node, index, vgpu))
                for pod in self._pods[vgpu]:
                    seed_placed_pod(self.server, pod, (node, index), POD_UNITS)
        # The history of all that was seeded, which no watch replays.
        self.server.compact()

    @property
    def pods(self) -> int:
        """How many there are."""
        return sum(map(len, self._pods.values()))

    def change(self) -> None:
        """Bind one more pod to a GPU, or let one leave."""
        node, index, vgpu = self._source.choice(self._places)
        pods = self._pods[vgpu]
        if len(pods) < MOST_PODS:
            pods.append(self._new_name())
            seed_placed_pod(self.server, pods[-1], (node, index), POD_UNITS)
        else:
            self.server.remove(PODS, pods.pop(), SPACE)

        def hold(obj: Raw) -> None:
            obj["status"]["holders"] = [holder(pod, POD_UNITS) for pod in pods]

        self.server.change(VGPUS, vgpu, "", hold)

    def _new_holders(self, vgpu: str) -> list[Raw]:
        pods = [self._new_name() for _ in range(self._source.randint(0, MOST_PODS))]
        self._pods[vgpu] = pods
        return [holder(pod, POD_UNITS) for pod in pods]

    def _new_name(self) -> str:
        self._created += 1
        return f"pod-{self._created}"


def seed_placed_pod(
    server: FakeApiServer, name: str, gpu: tuple[str, int], units: int, size: Size = SIZE
) -> None:
    """Add a running pod with the annotations of Alibaba's extender.

    Args:
        server: gets the pod.
        name: of the pod.
        gpu: node and index.
        units: that the pod has.
        size: the GPUs of the node.
    """
    node, index = gpu
    annotations = {
        "ALIYUN_COM_GPU_MEM_IDX": str(index),
        "ALIYUN_COM_GPU_MEM_POD": str(units),
        "ALIYUN_COM_GPU_MEM_DEV": str(size.units),
        "ALIYUN_COM_GPU_MEM_ASSIGNED": "true",
        "ALIYUN_COM_GPU_MEM_ASSUME_TIME": "1700000000000000000",
    }
    metadata = {"name": name, "namespace": SPACE, "uid": name, "annotations": annotations}
    spec = {"nodeName": node, "containers": [container(units)]}
    server.seed(PODS, {"metadata": metadata, "spec": spec, "status": {"phase": "Running"}})


def container(units: int, name: str = "main") -> Raw:
    """A container that asks for so many units, after admission."""
    limits = {"aliyun.com/gpu-mem": str(units), "kubeshare.nthu/vgpu": "1"}
    return {"name": name, "image": "x", "resources": {"limits": limits}}


def filter_arguments(units: int) -> Raw:
    """What kube-scheduler sends about a pod that asks for so many units; without its nodes."""
    metadata = {"name": "p", "namespace": SPACE, "uid": "p"}
    return {"Pod": {"metadata": metadata, "spec": {"containers": [container(units)]}}}
