"""Nodes and pods as gpushare and gpu-manager left them, before KubeShare."""

from typing import Any

from fakes import manifests
from fakes.cluster.cluster import FakeCluster
from fakes.cluster.disruptions import cordon, label_node, stop_plugin
from kubeshare.api.types.v1 import VGPUS
from kubeshare.dialects.gpushare import GPU_MEMORY
from kubeshare.dialects.vcuda import CORE, MEMORY
from kubeshare.dialects.write_back import GPUSHARE, VCUDA_ASSIGNED, VCUDA_INDEX
from kubeshare.kube.resources import NODES, PODS, Raw


def serve(cluster: FakeCluster, node: str, **resources: str) -> None:
    """The kubelet offers ``gpu_mem``, ``gpu_count``, ``vcuda_core`` or ``vcuda_memory``."""
    names = {"gpu": "aliyun.com", "vcuda": "tencent.com"}
    offered = {
        f"{names[key.partition('_')[0]]}/{key.replace('_', '-')}": amount
        for key, amount in resources.items()
    }
    stop_plugin(cluster, node)
    cluster.server.change(NODES, node, "", lambda obj: obj["status"]["allocatable"].update(offered))


def stop(cluster: FakeCluster, node: str) -> None:
    """Stops the device plugin of gpushare or gpu-manager on a node."""
    gone = dict.fromkeys((GPU_MEMORY, CORE, MEMORY), "0")
    cluster.server.change(NODES, node, "", lambda obj: obj["status"]["allocatable"].update(gone))


def ask_for(cluster: FakeCluster, node: str, family: str = "gpushare") -> None:
    """Cordons a node and asks KubeShare to own its GPUs for the pods of a family."""
    cordon(cluster, node)
    label_node(cluster, node, gpus="owned", family=family)


def gpushare_pod(
    cluster: FakeCluster,
    name: str,
    units: int,
    gpu: int | None,
    *,
    node: str = "n1",
    phase: str = "Running",
    **annotations: str,
) -> Raw:
    """A pod that Alibaba's extender and device plugin placed; annotations without prefix."""
    written = {"POD": str(units), "ASSIGNED": "true", "ASSUME_TIME": "1"}
    written |= {} if gpu is None else {"IDX": str(gpu)}
    prefixed = {
        key if "." in key else GPUSHARE + key: value
        for key, value in (written | annotations).items()
    }
    made = manifests.pod(
        name,
        {GPU_MEMORY: str(units)},
        metadata={"namespace": "default", "annotations": prefixed},
        nodeName=node,
    )
    return cluster.server.seed(PODS, made | {"status": {"phase": phase}})


def vcuda_pod(
    cluster: FakeCluster,
    name: str,
    *containers: tuple[int, int, str],
    node: str = "n1",
    **annotations: str,
) -> Raw:
    """A pod that gpu-manager placed: cores, blocks and GPUs of each container."""
    written = {VCUDA_ASSIGNED: "true", "tencent.com/predicate-node": node}
    written |= {f"{VCUDA_INDEX}{at}": gpus for at, (_, _, gpus) in enumerate(containers) if gpus}
    made = manifests.pod(
        name,
        metadata={
            "namespace": "default",
            "annotations": written
            | {f"tencent.com/{key.replace('_', '-')}": value for key, value in annotations.items()},
        },
        nodeName=node,
    )
    made["spec"]["containers"] = [
        {"name": f"c{at}", "image": "i:1", "resources": {"limits": _limits(cores, blocks)}}
        for at, (cores, blocks, _) in enumerate(containers)
    ]
    return cluster.server.seed(PODS, made | {"status": {"phase": "Running"}})


def record(cluster: FakeCluster, pod: Raw, gpu: str, **fields: Any) -> None:
    """Adds a holder for a pod to a vGPU, as ``kubeshare migrate`` does."""
    uid, name = pod["metadata"]["uid"], pod["metadata"]["name"]
    entry = manifests.holder(uid, name, podUid=uid, share="", parts=1) | fields

    def add(vgpu: Raw) -> None:
        status = vgpu.setdefault("status", {})
        status["holders"] = [*status.get("holders", ()), entry]
        status["phase"] = "Active"

    cluster.server.change(VGPUS, gpu, "", add)


def _limits(cores: int, blocks: int) -> dict[str, str]:
    found = {CORE: str(cores)} if cores else {}
    return found | ({MEMORY: str(blocks)} if blocks else {})
