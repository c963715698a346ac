"""How long a node takes to release all shares of a full vGPU, on a real API server.

The node agent's release runs with a token of its account that is bound to its node, so the
admission policies look at each write as they do in a cluster.
"""

import asyncio
import time
from pathlib import Path

import yaml

from bench.cluster.control_plane import Cluster, cluster
from bench.report import Met, at_most, report
from kubeshare.api.types.constants import NAMESPACE
from kubeshare.api.types.v1 import VGPUS
from kubeshare.core.ledger.holder import MAX_HOLDERS
from kubeshare.kube.client.client import Client
from kubeshare.kube.resources import NODES
from kubeshare.node.dra.holder_release import HolderReleases
from kubeshare.node.node_view import NODE_VGPUS

_NODE, _VGPU, _ACCOUNT = "node-1", "full", "kubeshare-node-agent"
_MOST_WRITES = 3
_ROUNDS = 5


def run() -> list[Met]:
    """The numbers, on a control plane of their own."""
    with cluster() as there:
        return asyncio.run(_measure(there))


async def _measure(there: Cluster) -> list[Met]:
    async with Client.connect(there.server.kubeconfig) as admin:
        await admin.create(NODES, {"metadata": {"name": _NODE}})
        spec = {"id": "full", "nodeName": _NODE, "memoryBytes": 1 << 34, "uuid": "GPU-1"}
        await admin.create(VGPUS, {"metadata": {"name": _VGPU}, "spec": spec})
        kubeconfig = _of_agent(there)
        rounds = [await _release_all(admin, kubeconfig) for _ in range(_ROUNDS)]
    seconds, writes = zip(*rounds, strict=True)
    size = f"a node releases the {MAX_HOLDERS} holders of a vGPU"
    return [
        report(f"{size}, s", at_most(5), seconds),
        report(f"{size}: writes", at_most(_MOST_WRITES), writes),
    ]


async def _release_all(admin: Client, kubeconfig: Path) -> tuple[float, int]:
    """Seconds and writes until no holder is left."""
    pods = [f"pod-{number}" for number in range(MAX_HOLDERS)]
    holders = [
        {
            "demand": f"demand-{number}",
            "name": f"name-{number}",
            "namespace": "default",
            "podUid": pod,
            "requestMicros": 1,
            "limitMicros": 1,
            "memoryBytes": 1 << 20,
        }
        for number, pod in enumerate(pods)
    ]
    full = {"status": {"holders": holders}}
    await admin.merge_patch(VGPUS, _VGPU, full, subresource="status")
    async with Client.connect(kubeconfig) as agent:
        seen = await agent.get(NODE_VGPUS, _VGPU)
        assert len(seen.status.holders) == MAX_HOLDERS
        releases, began = HolderReleases(agent), time.monotonic()
        await asyncio.gather(*(releases.release(seen, pod) for pod in pods))
        seconds = time.monotonic() - began
        assert not (await agent.get(NODE_VGPUS, _VGPU)).status.holders
        return seconds, agent.writes


def _of_agent(there: Cluster) -> Path:
    """A kubeconfig with the token that the kubelet gives the node's agent."""
    bound = ("--bound-object-kind=Node", f"--bound-object-name={_NODE}")
    token = there.server.kubectl("create", "token", _ACCOUNT, "-n", NAMESPACE, *bound)
    config = yaml.safe_load(there.server.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": token.strip()}
    path = there.server.settings.folder / "node-agent.kubeconfig"
    path.write_text(yaml.safe_dump(config))
    return path
