"""Acts as a kube-scheduler that is configured with gpu-admission's filter."""

import itertools
import json
from typing import Any

from fakes.cluster import extender
from fakes.cluster.cluster import FakeCluster
from fakes.cluster.state import the_pod
from fakes.cluster.vcuda import asking
from kubeshare.api.types.v1 import VGPUS
from kubeshare.extender.http.messages import Head
from kubeshare.extender.service import PREDICATES
from kubeshare.kube.resources import NODES, PODS, Raw
from kubeshare.simulator.control_tier.stored import bound, holders


async def start(cluster: FakeCluster, *replicas: str, family: str = "vcuda") -> None:
    """Starts the device manager and the extender, and lets all nodes be Gaia's."""
    await extender.start(cluster, *replicas, family=family)


def pod(
    cluster: FakeCluster,
    name: str,
    *cores: object,
    blocks: object = 4,
    gated: bool = False,
    **more: Any,
) -> Raw:
    """Creates a pod whose containers ask for so many cores, or ``CORES/BLOCKS``.

    ``more`` is metadata.
    If it is gated it is as the admission policy leaves it, otherwise as the scheduler leaves it to
    the extender.
    """
    containers = [
        container(f"c{number}", str(each), str(blocks)) for number, each in enumerate(cores)
    ]
    return extender.pod_of(cluster, name, containers, gated=gated, **more)


def container(name: str, asked: str, blocks: str = "4") -> Raw:
    """A container that asks for so many cores, or ``CORES/BLOCKS``."""
    cores, _, own = asked.partition("/")
    return asking(name, cores, own or ("" if int(cores) >= 100 else blocks))


async def filter_with(cluster: FakeCluster, body: object, replica: str = "extender") -> Raw:
    """The result of a call; ``body`` is JSON, or bytes as they are."""
    service = cluster.extenders[replica]
    head = Head("POST", PREDICATES)
    sent = body if isinstance(body, bytes) else json.dumps(body).encode()
    answer = service.refuse(head) or await service.answer(head, sent)
    service.observe(head, answer, 0.0)
    assert answer.status == 200, answer.body
    result: Raw = json.loads(answer.body)
    return result


async def fit(cluster: FakeCluster, name: str, *nodes: str, replica: str = "extender") -> Raw:
    """The result of a filter for a pod, by default among all nodes."""
    names = nodes or tuple(node["metadata"]["name"] for node in cluster.server.all(NODES))
    body = {"Pod": the_pod(cluster, name), "NodeNames": names}
    return await filter_with(cluster, body, replica)


def bind(cluster: FakeCluster, name: str, node: str) -> None:
    """Binds a pod as kube-scheduler does, which writes nothing else into it."""
    cluster.server.change(PODS, name, "default", lambda obj: obj["spec"].update(nodeName=node))


async def schedule(cluster: FakeCluster, name: str, *replicas: str, attempts: int = 30) -> str:
    """Filters until a node fits, and binds the pod to it; returns the last error or ``""``.

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
            [node] = answer["NodeNames"]
            bind(cluster, name, node)
            return ""
        await cluster.quiet(extender.RETRY_SECONDS)
    return error


def placed(cluster: FakeCluster) -> dict[str, list[tuple[str, int]]]:
    """Name of each holder's pod → node and index of its GPUs, sorted."""
    found: dict[str, list[tuple[str, int]]] = {}
    for vgpu in cluster.server.all(VGPUS):
        node = vgpu["spec"]["nodeName"]
        gpus = cluster.actors.devices[node]
        index = next(gpu["index"] for gpu in gpus if gpu["uuid"] == vgpu["spec"]["uuid"])
        for each in holders(vgpu):
            found.setdefault(each["name"], []).append((node, index))
    return {name: sorted(each) for name, each in found.items()}


async def expect_placed(
    cluster: FakeCluster, expected: dict[str, list[tuple[str, int]]], seconds: float | None = None
) -> None:
    """These pods, and no others, hold a share of these GPUs."""
    await cluster.until(lambda: placed(cluster) == expected, seconds)
