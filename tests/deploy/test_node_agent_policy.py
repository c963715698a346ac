"""A node agent speaks for its own node only, and only ever gives holders back."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.rights import every_right
from fakes import manifests
from kubeshare.api.types.constants import NAMESPACE
from kubeshare.kube.client.client import Client
from kubeshare.lab.control_plane.api_server import ApiServer
from kubeshare.lab.errors import LabError
from kubeshare.node.dra.holder_release import HolderReleases
from kubeshare.node.node_view import NODE_VGPUS

pytestmark = pytest.mark.apiserver

AGENT = "system:serviceaccount:kubeshare-system:kubeshare-node-agent"
HOLDER = manifests.holder("a")


@pytest.fixture(autouse=True)
def may_write_everything(cluster: ApiServer) -> Iterator[None]:
    """Give the agent every right, so that what refuses it is the policy alone."""
    name = "node-agent-may-everything"
    with every_right(cluster, name, AGENT):
        yield


def patch_as_agent_of(
    cluster: ApiServer, node: str, vgpu: str, operations: list[dict[str, Any]], *more: str
) -> None:
    cluster.kubectl(
        *("patch", "vgpu", vgpu, "--type=json", "-p", json.dumps(operations), *more),
        f"--as={AGENT}",
        f"--as-user-extra=authentication.kubernetes.io/node-name={node}",
    )


def set_uuid(uuid: str) -> list[dict[str, Any]]:
    return [{"op": "add", "path": "/spec/uuid", "value": uuid}]


def test_writes_a_vgpu_of_its_own_node(cluster: ApiServer, vgpu: str) -> None:
    patch_as_agent_of(cluster, "node-1", vgpu, set_uuid("GPU-1"))

    assert cluster.kubectl("get", "vgpu", vgpu, "-o", "jsonpath={.spec.uuid}") == "GPU-1"


def test_cannot_write_a_vgpu_of_another_node(cluster: ApiServer, vgpu: str) -> None:
    with pytest.raises(LabError, match="this is node-1, its token is of node-2"):
        patch_as_agent_of(cluster, "node-2", vgpu, set_uuid("GPU-1"))


def test_removes_a_holder_of_its_own_node_only(cluster: ApiServer, vgpu: str) -> None:
    add = json.dumps([{"op": "add", "path": "/status/holders/-", "value": HOLDER}])
    remove = [{"op": "remove", "path": "/status/holders/0"}]
    cluster.kubectl("patch", "vgpu", vgpu, "--subresource=status", "--type=json", "-p", add)

    with pytest.raises(LabError, match="its own node only"):
        patch_as_agent_of(cluster, "node-2", vgpu, remove, "--subresource=status")
    patch_as_agent_of(cluster, "node-1", vgpu, remove, "--subresource=status")

    assert cluster.kubectl("get", "vgpu", vgpu, "-o", "jsonpath={.status.holders}") == "[]"


def test_cannot_give_a_share_to_anybody(cluster: ApiServer, vgpu: str) -> None:
    add = [{"op": "add", "path": "/status/holders/-", "value": HOLDER}]

    with pytest.raises(LabError, match="releases holders, it adds and changes none"):
        patch_as_agent_of(cluster, "node-1", vgpu, add, "--subresource=status")


def test_says_of_a_vgpu_of_its_own_node_that_it_gets_no_gpu(cluster: ApiServer, vgpu: str) -> None:
    condition = {
        "type": "Shareable",
        "status": "False",
        "reason": "NotShareable",
        "message": "a MIG instance",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    say = [{"op": "add", "path": "/status", "value": {"conditions": [condition]}}]

    with pytest.raises(LabError, match="its own node only"):
        patch_as_agent_of(cluster, "node-2", vgpu, say, "--subresource=status")
    patch_as_agent_of(cluster, "node-1", vgpu, say, "--subresource=status")

    wanted = "jsonpath={.status.conditions[0].reason}"
    assert cluster.kubectl("get", "vgpu", vgpu, "-o", wanted) == "NotShareable"


def test_releases_all_holders_that_a_vgpu_can_have(cluster: ApiServer, vgpu: str) -> None:
    holders = [manifests.holder(f"demand-{number}") for number in range(128)]
    status = json.dumps({"status": {"holders": holders}})
    cluster.kubectl("patch", "vgpu", vgpu, "--subresource=status", "--type=merge", "-p", status)
    others = [{"op": "remove", "path": f"/status/holders/{at}"} for at in range(126, -1, -1)]

    changed = [{"op": "replace", "path": "/status/holders/64/requestMicros", "value": 0}]
    with pytest.raises(LabError, match="it adds and changes none"):
        patch_as_agent_of(cluster, "node-1", vgpu, changed, "--subresource=status")
    one = [{"op": "remove", "path": "/status/holders/0"}]
    patch_as_agent_of(cluster, "node-1", vgpu, one, "--subresource=status")
    patch_as_agent_of(cluster, "node-1", vgpu, others[1:], "--subresource=status")

    wanted = "jsonpath={.status.holders[*].demand}"
    assert cluster.kubectl("get", "vgpu", vgpu, "-o", wanted) == "demand-127"


def test_drains_a_full_vgpu_in_a_few_requests(
    cluster: ApiServer, vgpu: str, node: str, tmp_path: Path
) -> None:
    """With a token of the agent's account that is bound to its node, as the kubelet gets it."""
    config = yaml.safe_load(cluster.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": agent_token(cluster, node)}
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(config))
    holders = [
        manifests.holder(f"demand-{number}", podUid=f"pod-{number}") for number in range(128)
    ]
    status = json.dumps({"status": {"holders": holders}})
    cluster.kubectl("patch", "vgpu", vgpu, "--subresource=status", "--type=merge", "-p", status)

    async def drain() -> int:
        async with Client.connect(tmp_path / "kubeconfig") as client, asyncio.timeout(60):
            seen = await client.get(NODE_VGPUS, vgpu)
            releases = HolderReleases(client)
            await asyncio.gather(*(releases.release(seen, f"pod-{n}") for n in range(128)))
            left = await client.get(NODE_VGPUS, vgpu)
            assert left.status.holders == ()
            return client.writes

    assert asyncio.run(drain()) <= 3


def agent_token(cluster: ApiServer, node: str) -> str:
    system = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    account = {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": "kubeshare-node-agent", "namespace": NAMESPACE},
    }
    cluster.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all([system, account]))
    bound = ("--bound-object-kind=Node", f"--bound-object-name={node}")
    return cluster.kubectl(
        "create", "token", "kubeshare-node-agent", "-n", NAMESPACE, *bound
    ).strip()


def patch_node_as_agent_of(
    cluster: ApiServer, node: str, name: str, status: dict[str, Any]
) -> None:
    cluster.kubectl(
        *("patch", "node", name, "--type=merge", "-p", json.dumps({"status": status})),
        *("--subresource=status", f"--as={AGENT}"),
        f"--as-user-extra=authentication.kubernetes.io/node-name={node}",
    )


@pytest.fixture
def node(cluster: ApiServer) -> Iterator[str]:
    """The Node of node-1, which offers two CPUs and some memory of GPUs."""
    offered = {"cpu": "2", "aliyun.com/gpu-mem": "30"}
    cluster.kubectl(
        "create", "-f", "-", stdin='{"apiVersion":"v1","kind":"Node","metadata":{"name":"node-1"}}'
    )
    whole = json.dumps({"status": {"capacity": offered, "allocatable": offered}})
    cluster.kubectl("patch", "node", "node-1", "--subresource=status", "--type=merge", "-p", whole)
    yield "node-1"
    cluster.kubectl("delete", "node", "node-1")


def test_counts_the_gpus_in_its_own_node(cluster: ApiServer, node: str) -> None:
    count: dict[str, str | None] = {"aliyun.com/gpu-count": "2"}
    with pytest.raises(LabError, match="this is node-1, its token is of node-2"):
        patch_node_as_agent_of(cluster, "node-2", node, {"capacity": count})
    patch_node_as_agent_of(cluster, node, node, {"capacity": count, "allocatable": count})

    wanted = "jsonpath={.status.capacity.aliyun\\.com/gpu-count}"
    assert cluster.kubectl("get", "node", node, "-o", wanted) == "2"
    count["aliyun.com/gpu-count"] = None
    patch_node_as_agent_of(cluster, node, node, {"capacity": count, "allocatable": count})
    assert cluster.kubectl("get", "node", node, "-o", wanted) == ""


@pytest.mark.parametrize(
    ("status", "what"),
    [
        ({"capacity": {"aliyun.com/gpu-mem": "60"}}, "capacity"),
        ({"allocatable": {"cpu": None}}, "allocatable"),
        ({"allocatable": {"nvidia.com/gpu": "8"}}, "allocatable"),
        ({"conditions": [{"type": "Ready", "status": "True"}]}, "conditions"),
        ({"addresses": [{"type": "InternalIP", "address": "10.0.0.1"}]}, "addresses"),
        ({"daemonEndpoints": {"kubeletEndpoint": {"Port": 1}}}, "daemonEndpoints"),
        ({"volumesAttached": [{"name": "v", "devicePath": "/dev/x"}]}, "volumes"),
        ({"images": [{"names": ["x"], "sizeBytes": 1}]}, "images"),
        ({"features": {"supplementalGroupsPolicy": True}}, "features"),
    ],
)
def test_writes_nothing_else_into_its_node(
    cluster: ApiServer, node: str, status: dict[str, Any], what: str
) -> None:
    with pytest.raises(LabError, match=f"writes aliyun.com/gpu-count only, not {what}"):
        patch_node_as_agent_of(cluster, node, node, status)


@pytest.mark.parametrize("field", ["labels", "annotations"])
def test_writes_nothing_but_the_status_of_its_node(
    cluster: ApiServer, node: str, field: str
) -> None:
    """The subresource accepts labels too, and they choose which pods a node gets."""
    patch = json.dumps({"metadata": {field: {"node-restriction.kubernetes.io/zone": "a"}}})
    with pytest.raises(LabError, match=f"its agent writes aliyun.com/gpu-count only, not {field}"):
        cluster.kubectl(
            *("patch", "node", node, "--type=merge", "-p", patch),
            *("--subresource=status", f"--as={AGENT}"),
            f"--as-user-extra=authentication.kubernetes.io/node-name={node}",
        )
