"""GPUQuotas of a fake cluster."""

import json
from collections.abc import Mapping
from typing import Any

from fakes.cluster.cluster import FakeCluster
from kubeshare.api.types.constants import LABEL_GPU_MODEL, LABEL_GPU_POOL
from kubeshare.api.types.gpu_quota import GPUQUOTAS
from kubeshare.api.types.v1 import VGPUS
from kubeshare.kube.resources import CONFIG_MAPS, NODES
from kubeshare.simulator.control_tier.stored import holders

Raw = dict[str, Any]


def limit(cluster: FakeCluster, *limits: Raw, namespace: str = "default") -> None:
    """Sets the limits of the GPUQuota ``gpus`` of a namespace."""
    if cluster.server.stored(GPUQUOTAS, "gpus", namespace) is None:
        metadata = {"name": "gpus", "namespace": namespace}
        made = {"metadata": metadata, "spec": {"limits": list(limits)}}
        cluster.server.seed(GPUQUOTAS, made)
    else:
        spec = {"limits": list(limits)}
        cluster.server.change(GPUQUOTAS, "gpus", namespace, lambda obj: obj["spec"].update(spec))


def quota(cluster: FakeCluster, namespace: str = "default") -> Raw:
    """The GPUQuota of a namespace."""
    found: Raw | None = cluster.server.stored(GPUQUOTAS, "gpus", namespace)
    assert found is not None
    return found


def used(cluster: FakeCluster) -> tuple[str, str]:
    """The columns of ``kubectl get gpuquota``."""
    summary = quota(cluster).get("status", {}).get("summary", {})
    return summary.get("used", ""), summary.get("hard", "")


def label_gpus(cluster: FakeCluster, node: str, *, pool: str = "", model: str = "") -> None:
    """Labels a node with the pool and the model of its GPUs."""
    found = {LABEL_GPU_POOL: pool, LABEL_GPU_MODEL: model}
    labels = {key: value for key, value in found.items() if value}
    cluster.server.change(NODES, node, "", lambda obj: obj["metadata"]["labels"].update(labels))


def running_micros(cluster: FakeCluster, namespace: str = "default") -> int:
    """The micros that the bound pods of a namespace hold."""
    return sum(
        holder["requestMicros"]
        for vgpu in cluster.server.all(VGPUS)
        for holder in holders(vgpu)
        if holder["namespace"] == namespace and holder.get("podUid")
    )


def watch_overshoot(cluster: FakeCluster, micros: int) -> list[int]:
    """Returns a list to which each state adds what bound pods hold, if that is more."""
    found: list[int] = []

    def check(*_: object) -> None:
        if (held := running_micros(cluster)) > micros:
            found.append(held)

    cluster.server.storage.after_change.append(check)
    return found


def write_gaia_quotas(cluster: FakeCluster, **namespaces: Mapping[str, object]) -> None:
    """Writes the ConfigMap of gpu-admission."""
    metadata = {"name": "gpuquota", "namespace": "kube-system"}
    data = {"gpu_quota": json.dumps(namespaces)}
    cluster.server.seed(CONFIG_MAPS, {"metadata": metadata, "data": data})


def gaia_limits(cluster: FakeCluster, namespace: str = "default") -> list[Raw] | None:
    """The limits that came of that ConfigMap; None for none."""
    found = cluster.server.stored(GPUQUOTAS, "gaia", namespace)
    return found["spec"]["limits"] if found else None


async def expect_used(
    cluster: FakeCluster, expected: tuple[str, str], seconds: float | None = None
) -> None:
    """The columns of ``kubectl get gpuquota``: what is used, and the limit."""
    await cluster.until(lambda: used(cluster) == expected, seconds)


async def expect_gaia_limits(
    cluster: FakeCluster, expected: object = True, seconds: float | None = None
) -> None:
    """The limits that Gaia's ConfigMap sets; True: there are any; None: there are none."""

    def found() -> bool:
        limits = gaia_limits(cluster)
        return bool(limits) if expected is True else limits == expected

    await cluster.until(found, seconds)
