"""Clusters for the page: a small one with something of everything, and a large one."""

from datetime import UTC, datetime, timedelta
from typing import Any

from fakes import manifests
from kubeshare.api.types.gpu_quota import GPUQUOTAS
from kubeshare.api.types.share_usage import SHARE_USAGES
from kubeshare.api.types.v1 import GPUNODES, SHAREPODS, VGPUS
from kubeshare.kube.conditions import timestamp
from kubeshare.kube.resources import EVENTS, NODES, PODS, RESOURCE_QUOTAS
from kubeshare.simulator.control import FakeApiServer

Raw = dict[str, Any]

GIB = 1 << 30
V100, A100 = ("Tesla V100-SXM2-16GB", 16), ("NVIDIA A100-SXM4-80GB", 80)
DGX = {frozenset(pair): "NV2" for pair in ((0, 1), (2, 3), (4, 5), (6, 7))}


def ago(**more: float) -> str:
    """RFC 3339, so long ago."""
    return timestamp(datetime.now(UTC) - timedelta(**more))


def add_node(
    server: FakeApiServer,
    name: str,
    gpus: int = 8,
    model: tuple[str, int] = V100,
    *,
    unhealthy: tuple[int, ...] = (),
    in_use: tuple[int, ...] = (),
    ready: str = "True",
    linked: bool = True,
) -> None:
    """A node with so many GPUs, linked as in a DGX."""
    devices = [
        {
            "uuid": f"GPU-{name}-{index}",
            "index": index,
            "minor": index,
            "model": model[0],
            "memoryBytes": model[1] * GIB,
            "healthy": index not in unhealthy,
            "message": "XID 79: GPU has fallen off the bus" if index in unhealthy else "",
            "inUse": index in in_use,
        }
        for index in range(gpus)
    ]
    links = [
        {"a": a, "b": b, "link": DGX.get(frozenset((a, b)), "PIX" if a // 4 == b // 4 else "SYS")}
        for b in range(gpus)
        for a in range(b if linked else 0)
    ]
    status = {
        "allocatable": {"nvidia.com/gpu": str(gpus), "cpu": "64", "memory": "256Gi", "pods": "110"},
        "conditions": [{"type": "Ready", "status": ready}],
    }
    server.seed(NODES, {"metadata": {"name": name}, "spec": {}, "status": status})
    spec = {"devices": devices, "links": links, "driverVersion": "580.95", "count": gpus}
    spec |= {"supportsOwned": True, "supportsShares": True}
    condition = {"type": "Owned", "status": "True", "reason": "Owned", "message": ""}
    mode = {"mode": "owned", "conditions": [condition]}
    server.seed(GPUNODES, {"metadata": {"name": name}, "spec": spec, "status": mode})


def add_vgpu(server: FakeApiServer, node: str, index: int, *held: Raw, **spec: Any) -> str:
    """The vGPU of a GPU of a node with these holders; returns its GPUID."""
    found = server.stored(GPUNODES, node)
    assert found is not None
    device = found["spec"]["devices"][index]
    gpuid = f"vgpu-{node[-1]}{index}"
    known = {key: device[key] for key in ("uuid", "model", "memoryBytes")}
    spec = {"gpuid": gpuid, "pool": "static"} | known | spec
    phase = "Active" if held else "Idle"
    server.seed(VGPUS, manifests.vgpu(f"{node}-{gpuid}", node, *held, phase=phase, **spec))
    return gpuid


def add_share(  # noqa: PLR0917 - one line for each share below
    server: FakeApiServer,
    namespace: str,
    name: str,
    request: str,
    memory: int,
    node: str = "",
    gpuid: str = "",
    **more: Any,
) -> Raw:
    """A SharePod that runs on a vGPU; returns its holder. Without a node it waits."""
    gpu = {"request": request, "memory": f"{memory}Gi"} | more.pop("gpu", {})
    metadata = {"namespace": namespace, "creationTimestamp": ago(minutes=more.pop("minutes", 95))}
    conditions = [{"type": "Scheduled", "status": "True", "reason": "Bound", "message": "bound"}]
    status: Raw = {"conditions": conditions}
    spec: Raw = {}
    if node:
        gpu |= {"attempt": 1, "id": gpuid}
        spec = {"nodeName": node}
        conditions.append({"type": "Ready", "status": "True", "reason": "Ready", "message": ""})
        allocated = {"id": gpuid, "uuid": f"GPU-{node}-{gpuid[-1]}", "model": V100[0]}
        status |= {"phase": "Running", "startTime": ago(minutes=90), "gpus": [allocated]}
        status["nodeName"] = node
    else:
        conditions[0] |= {"status": "False", **more.pop("condition")}
    made = server.seed(
        SHAREPODS, manifests.sharepod(name, gpu, metadata=metadata, **spec) | {"status": status}
    )
    uid = made["metadata"]["uid"]
    return manifests.holder(
        uid,
        name,
        namespace=namespace,
        requestMicros=round(float(request) * 1_000_000),
        limitMicros=1_000_000,
        memoryBytes=memory * GIB,
        podUid="pod-" + name,
        **more,
    )


def small_cluster() -> FakeApiServer:
    """Three nodes, eight SharePods of which two wait, quotas, events and accounts."""
    server = FakeApiServer()
    add_node(server, "gpu-a", unhealthy=(6,))
    add_node(server, "gpu-b", in_use=(0, 1))
    add_node(server, "gpu-c", 4, A100)
    running = [
        ("gpu-a", 0, [("research", "train-bert", "0.5", 8), ("serving", "ranker", "0.3", 4)]),
        ("gpu-a", 1, [("research", "sweep-1", "0.25", 4), ("research", "sweep-2", "0.25", 4)]),
        ("gpu-b", 2, [("serving", "embedder", "0.7", 12)]),
        ("gpu-c", 0, [("vision", "detector", "0.4", 30)]),
    ]
    for node, index, shares in running:
        gpuid = f"vgpu-{node[-1]}{index}"
        held = [
            add_share(server, space, name, request, memory, node, gpuid)
            for space, name, request, memory in shares
        ]
        add_vgpu(server, node, index, *held)
    for node, indices in (("gpu-a", (2, 3, 4, 5)), ("gpu-b", (3,)), ("gpu-c", (1, 2, 3))):
        for index in indices:
            add_vgpu(server, node, index)
    why = "no GPU has room: 5 of 20 GPUs have another model; memory 16Gi is the most, 96Gi asked"
    condition = {"reason": "Unschedulable", "message": why}
    add_share(server, "research", "huge", "0.9", 96, condition=condition, minutes=12)
    why = "vGPU gpu-a/vgpu-a0: compute 0.2 left, 0.6 asked; it fits when train-bert leaves it"
    condition = {"reason": "Unschedulable", "message": why}
    gpu = {"id": "vgpu-a0"}
    add_share(server, "serving", "reranker", "0.6", 8, condition=condition, minutes=3, gpu=gpu)
    _add_quotas(server)
    _add_events(server)
    return server


def _add_quotas(server: FakeApiServer) -> None:
    limits = [{"model": V100[0], "gpus": "2"}]
    metadata = {"name": "gpus", "namespace": "research"}
    status = {"summary": {"used": "1", "hard": "2"}}
    server.seed(GPUQUOTAS, {"metadata": metadata, "spec": {"limits": limits}, "status": status})
    hard = {"requests.kubeshare.nthu/gpu": "4"}
    metadata = {"name": "gpus", "namespace": "serving"}
    server.seed(RESOURCE_QUOTAS, {"metadata": metadata, "spec": {"hard": hard}})
    usage = {
        "nodeName": "gpu-a",
        "grant": "g",
        "pod": "train-bert",
        "startedAt": ago(minutes=90),
        "observedAt": ago(minutes=4),
        "durationNs": 86 * 60 * 10**9,
        "shares": [{"uuid": "GPU-gpu-a-0", "usedNs": 52 * 60 * 10**9}],
    }
    metadata = {"name": "g", "namespace": "research"}
    server.seed(SHARE_USAGES, {"metadata": metadata, "status": usage})


def _add_events(server: FakeApiServer) -> None:
    told = [
        ("serving", "reranker", "Warning", "Unschedulable", 3, "vGPU vgpu-a0: compute 0.2 left"),
        ("research", "huge", "Warning", "Unschedulable", 12, "memory 16Gi is the most, 96Gi asked"),
        ("research", "train-bert", "Normal", "Bound", 95, "vGPU vgpu-a0 on node gpu-a"),
    ]
    for number, (namespace, name, kind, reason, minutes, note) in enumerate(told):
        event = {
            "metadata": {"name": f"e{number}", "namespace": namespace},
            "eventTime": ago(minutes=minutes),
            "regarding": {"kind": "SharePod", "namespace": namespace, "name": name},
            "reportingController": "kubeshare-scheduler",
            "type": kind,
            "reason": reason,
            "note": note,
        }
        server.seed(EVENTS, event)


def large_cluster(nodes: int = 5000) -> FakeApiServer:
    """So many nodes of eight GPUs, a tenth of which have a vGPU."""
    server = FakeApiServer()
    for number in range(nodes):
        name = f"node-{number}"
        add_node(server, name, linked=False)
        if number % 10 == 0:
            held = manifests.holder(f"u{number}", "a", requestMicros=400_000, memoryBytes=GIB)
            add_vgpu(server, name, 0, held)
    return server


def add_plain_pod(
    server: FakeApiServer, namespace: str, name: str, node: str = "", gpuid: str = ""
) -> None:
    """A pod that asks for a share by its annotations; gated, or running on a node."""
    metadata: Raw = {
        "namespace": namespace,
        "labels": {"kubeshare.nthu/role": "pod"},
        "annotations": {"kubeshare.nthu/request": "0.5", "kubeshare.nthu/memory": "1Gi"},
        "creationTimestamp": ago(minutes=1),
    }
    limits = {"kubeshare.nthu/vgpu": "1"}
    spec: Raw = {"schedulingGates": [{"name": "kubeshare.nthu/gpu"}]}
    if node:
        metadata["annotations"] |= {"kubeshare.nthu/gpuids": gpuid, "kubeshare.nthu/node": node}
        spec = {"nodeName": node}
    made = manifests.pod(name, limits, metadata=metadata, **spec)
    server.seed(PODS, made | {"status": {"phase": "Running" if node else "Pending"}})
