"""Acts as a kube-scheduler that is configured with the extender."""

import itertools
import json
from typing import Any

from expectations.vgpus import expect_owned
from fakes import manifests
from fakes.cluster.actors import BY_EXTENDER
from fakes.cluster.cluster import FakeCluster
from fakes.cluster.disruptions import label_node, own
from fakes.cluster.state import the_pod
from kubeshare.api.types.constants import GATE, LABEL_ROLE, ROLE_POD, VGPU_RESOURCE
from kubeshare.api.types.v1 import VGPUS
from kubeshare.device_manager.owned.controller import SETTLED_SECONDS
from kubeshare.dialects.gpushare import GPU_MEMORY
from kubeshare.extender.http.messages import Head
from kubeshare.extender.service import PREFIX
from kubeshare.kube.resources import NODES, PODS
from kubeshare.simulator.control_tier.stored import bound, holders

Raw = dict[str, Any]

RETRY_SECONDS = 1.0
"""The first back-off of kube-scheduler."""


async def start(cluster: FakeCluster, *replicas: str, family: str = "gpushare") -> None:
    """Starts the device manager and the extender, and dedicates all nodes to a family."""
    cluster.start("devices", *(replicas or ("extender",)))
    names = [node["metadata"]["name"] for node in cluster.server.all(NODES)]
    own(cluster, *names)
    for name in names:
        label_node(cluster, name, family=family)
    for name in names:
        await expect_owned(cluster, name, seconds=5 * SETTLED_SECONDS)
    await cluster.until(lambda: all(each["status"]["phase"] == "Idle" for each in vgpus(cluster)))
    await cluster.quiet(1.0)  # the extender's watches deliver it


def offer(cluster: FakeCluster, node: str, units: int) -> None:
    """Lets the device plugin of a node offer so much memory, and its kubelet CPUs."""
    offered = {GPU_MEMORY: str(units), "cpu": "64"}
    cluster.server.change(NODES, node, "", lambda obj: obj["status"]["allocatable"].update(offered))


def vgpus(cluster: FakeCluster) -> list[Raw]:
    return cluster.server.all(VGPUS)


def pod(cluster: FakeCluster, name: str, *units: object, gated: bool = False, **more: Any) -> Raw:
    """Creates a pod whose containers ask for so much memory.

    ``more`` is metadata. If it is gated it is as the admission policy leaves it, otherwise as
    the scheduler leaves it to the extender.
    """
    containers = [
        {
            "name": f"c{number}",
            "image": "train:1",
            "resources": {"limits": {GPU_MEMORY: str(each), VGPU_RESOURCE: "1"}},
        }
        for number, each in enumerate(units)
    ]
    return pod_of(cluster, name, containers, gated=gated, **more)


def pod_of(
    cluster: FakeCluster, name: str, containers: list[Raw], *, gated: bool, **more: Any
) -> Raw:
    """Creates a pod of these containers; see ``pod``."""
    labels = {LABEL_ROLE: ROLE_POD} | more.pop("labels", {})
    spec: Raw = {"containers": containers, "schedulerName": BY_EXTENDER}
    if gated:
        spec["schedulingGates"] = [{"name": GATE}]
    made = manifests.pod(name) | {"metadata": {"name": name, "namespace": "default"}}
    made["metadata"] |= {"labels": labels, **more}
    return cluster.server.seed(PODS, made | {"spec": spec, "status": {"phase": "Pending"}})


async def held_by_others(cluster: FakeCluster, name: str, **holds: Any) -> None:
    """The only vGPU has this GPUID and a holder of another namespace; no agent releases it."""
    cluster.actors.node_agents = False
    await cluster.kill("devices")
    [found] = vgpus(cluster)
    theirs = manifests.holder("v", "v", namespace="victim", podUid="v", **holds)

    def hold(obj: Raw) -> None:
        obj["spec"]["gpuid"] = name
        obj["status"] |= {"holders": [theirs], "phase": "Active"}

    cluster.server.change(VGPUS, found["metadata"]["name"], "", hold)
    await cluster.quiet(1)


async def call(
    cluster: FakeCluster, verb: str, body: object, replica: str = "extender"
) -> tuple[int, Any]:
    """The status and the JSON that a replica answers; ``body`` is JSON, or bytes as they are."""
    service = cluster.extenders[replica]
    head = Head("GET" if verb.startswith("inspect") else "POST", f"{PREFIX}/{verb}")
    refused = service.refuse(head)
    sent = body if isinstance(body, bytes) else json.dumps(body).encode()
    answer = refused or await service.answer(head, sent)
    service.observe(head, answer, 0.0)
    if answer.content_type.startswith("application/json"):
        return answer.status, json.loads(answer.body)
    return answer.status, answer.body.decode()


async def fit(cluster: FakeCluster, name: str, *nodes: str, replica: str = "extender") -> Raw:
    """The result of a filter for a pod, by default among all nodes."""
    names = nodes or tuple(node["metadata"]["name"] for node in cluster.server.all(NODES))
    body = {"Pod": the_pod(cluster, name), "NodeNames": names}
    status, answer = await call(cluster, "filter", body, replica)
    assert status == 200, answer
    assert isinstance(answer, dict)
    return answer


async def bind(
    cluster: FakeCluster, name: str, node: str = "n1", *, replica: str = "extender", **more: str
) -> tuple[int, str]:
    """The status and the error of a bind; ``more`` are other arguments."""
    found = cluster.pod(name)
    uid = found["metadata"]["uid"] if found else "unknown"
    body = {"PodName": name, "PodNamespace": "default", "PodUID": uid, "Node": node, **more}
    status, answer = await call(cluster, "bind", body, replica)
    return status, answer["Error"]


async def schedule(cluster: FakeCluster, name: str, *replicas: str, attempts: int = 30) -> str:
    """Filters and binds until a pod is bound; returns the last error, ``""`` for none.

    Each call goes to the next of the replicas that run.
    """
    error = ""
    turns = itertools.cycle(replicas or ("extender",))
    for _ in range(attempts):
        found = cluster.pod(name)
        if found is None or bound(found):
            return ""
        replica = next(turns)
        if replica not in cluster.programs:
            continue
        answer = await fit(cluster, name, replica=replica)
        error = answer["Error"] or "; ".join(answer["FailedNodes"].values())
        if answer["NodeNames"]:
            _, error = await bind(cluster, name, answer["NodeNames"][0], replica=replica)
        await cluster.quiet(RETRY_SECONDS if error else 0.1)
    return error


def placed(cluster: FakeCluster) -> dict[str, tuple[str, int]]:
    """Name of each holder's pod → node and index of its GPU; each is the pod's by its uid."""
    return {
        each["name"]: (vgpu["spec"]["nodeName"], _index(cluster, vgpu))
        for vgpu in vgpus(cluster)
        for each in holders(vgpu)
    }


def _index(cluster: FakeCluster, vgpu: Raw) -> int:
    gpus = cluster.actors.devices[vgpu["spec"]["nodeName"]]
    found: int = next(gpu["index"] for gpu in gpus if gpu["uuid"] == vgpu["spec"]["uuid"])
    return found


async def expect_placed(
    cluster: FakeCluster, expected: dict[str, tuple[str, int]], seconds: float | None = None
) -> None:
    """These pods, and no others, hold a share of these GPUs."""
    await cluster.until(lambda: placed(cluster) == expected, seconds)
