"""The cluster of a race: nodes and programs on a real API server."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import yaml

from kubeshare.api.types.constants import NAMESPACE
from kubeshare.api.types.v1 import GPUNODES, SHAREPODS, VGPUS
from kubeshare.core.policies import policy
from kubeshare.core.units import GI
from kubeshare.device_manager.program import device_manager_program
from kubeshare.extender.program import extender_program
from kubeshare.extender.service import ExtenderService
from kubeshare.install import manifests
from kubeshare.kube.client.client import Client
from kubeshare.kube.controller.runtime import Program
from kubeshare.kube.resources import NODES, PODS, Raw
from kubeshare.lab.control_plane.api_server import ApiServer
from kubeshare.scheduler.program import scheduler_program
from kubeshare.simulator.control import until

SPACE = "race"
"""The namespace of the pods."""
NODE = "racing-"
"""What the names of the nodes begin with."""
GPUS = 2
"""GPUs of each node."""
SECONDS = 120.0
"""The most that any step waits."""
PAUSE = 0.2
"""Seconds between two looks."""


def install(server: ApiServer) -> None:
    """Applies everything of KubeShare but its programs, and the namespace of the race."""
    kinds = {"Deployment", "DaemonSet"}
    ours = manifests.load(manifests.Options(extender=True))
    wanted = [each for each in ours if each["kind"] not in kinds]
    wanted.append({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SPACE}})
    server.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(wanted))
    server.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")


def configure(server: ApiServer, text: str) -> str:
    """Replaces the configuration; returns the former one."""
    target = ("configmap", "kubeshare", "-n", NAMESPACE)
    before: Raw = json.loads(server.kubectl("get", *target, "-o", "json"))["data"]
    patch = json.dumps({"data": {"config.yaml": text}})
    server.kubectl("patch", *target, "--type=merge", "-p", patch)
    return str(before["config.yaml"])


async def remove(server: ApiServer) -> None:
    """Removes the objects of the race."""
    async with Client.connect(server.kubeconfig) as client:
        for sharepod in (await client.list(SHAREPODS, SPACE)).items:
            name, free = sharepod["metadata"]["name"], {"metadata": {"finalizers": None}}
            await client.merge_patch(SHAREPODS, name, free, SPACE)
            await client.delete(SHAREPODS, name, SPACE)
        for pod in (await client.list(PODS, SPACE)).items:
            await client.delete(PODS, pod["metadata"]["name"], SPACE, grace=0)
        for vgpu in await vgpus(client):
            name, left = vgpu["metadata"]["name"], {"status": {"holders": None}}
            await client.merge_patch(VGPUS, name, left, subresource="status")
            await client.delete(VGPUS, name)
        nodes = (await client.list(NODES)).items
        for name in (each["metadata"]["name"] for each in nodes):
            if name.startswith(NODE):
                await client.delete(GPUNODES, name)
                await client.delete(NODES, name)


async def vgpus(client: Client) -> list[Raw]:
    """The vGPUs of the nodes of the race."""
    found = (await client.list(VGPUS)).items
    return [each for each in found if each["spec"]["nodeName"].startswith(NODE)]


async def add_node(client: Client, number: int) -> None:
    """Adds an owned node of gpushare with free GPUs."""
    name = f"{NODE}{number}"
    labels = {"kubeshare.nthu/gpus": "owned", "gpushare": "true"}
    await client.create(NODES, {"metadata": {"name": name, "labels": labels}})
    offered = {"aliyun.com/gpu-mem": str(GPUS * 16), "cpu": "500", "memory": "1Ti"}
    ready = [{"type": "Ready", "status": "True"}]
    status = {"allocatable": {**offered, "pods": "500"}, "conditions": ready}
    await client.merge_patch(NODES, name, {"status": status}, subresource="status")
    await client.merge_patch(NODES, name, {"spec": {"taints": None}})
    devices = [
        {
            "uuid": f"GPU-{number:08x}-{at:04x}",
            "index": at,
            "model": "V100",
            "memoryBytes": 16 * GI,
        }
        for at in range(GPUS)
    ]
    spec = {"devices": devices, "supportsOwned": True, "supportsShares": True}
    await client.create(GPUNODES, {"metadata": {"name": name}, "spec": spec})
    owned = {"type": "Owned", "status": "True", "reason": "Owned", "message": ""}
    owned["lastTransitionTime"] = "2026-01-01T00:00:00Z"
    status = {"mode": "owned", "conditions": [owned]}
    await client.merge_patch(GPUNODES, name, {"status": status}, subresource="status")


@asynccontextmanager
async def programs(server: ApiServer) -> AsyncIterator[list[ExtenderService]]:
    """The device manager, the scheduler and two replicas of the extender."""
    clients = {
        account: _connect(server, f"kubeshare-{account}")
        for account in ("extender", "scheduler", "device-manager")
    }
    second = _connect(server, "kubeshare-extender")
    extenders = [
        extender_program(client, instance=name)
        for name, client in (("first", clients["extender"]), ("second", second))
    ]
    started: list[Program] = [
        *(each.program for each in extenders),
        scheduler_program(clients["scheduler"], policy("locality"), instance="race"),
        device_manager_program(
            clients["device-manager"],
            policy("locality"),
            placeholder_image="none",
            instance="race",
        ),
    ]
    tasks = [asyncio.create_task(program.run()) for program in started]
    try:
        await until(
            lambda: not any(problem for program in started for problem in program.not_ready()),
            seconds=SECONDS,
        )
        yield [each.service for each in extenders]
    finally:
        for program in started:
            program.stop()
        await asyncio.gather(*tasks)
        for client in (*clients.values(), second):
            await client.close()


def _connect(server: ApiServer, account: str) -> Client:
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{NAMESPACE}")
    user = f"system:serviceaccount:{NAMESPACE}:{account}"
    return Client.connect(server.kubeconfig_for(user, groups))
