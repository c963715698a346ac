"""A node agent speaks for its own node only, and only ever gives holders back."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from fakes import manifests
from kubeshare.lab.control_plane.api_server import ApiServer
from kubeshare.lab.errors import LabError

pytestmark = pytest.mark.apiserver

AGENT = "system:serviceaccount:kubeshare-system:kubeshare-node-agent"
HOLDER = manifests.holder("a")


@pytest.fixture(autouse=True)
def may_write_everything(cluster: ApiServer) -> Iterator[None]:
    """Give the agent every right, so that what refuses it is the policy alone."""
    name = "node-agent-may-everything"
    cluster.kubectl(
        "create", "clusterrolebinding", name, "--clusterrole=cluster-admin", f"--user={AGENT}"
    )
    yield
    cluster.kubectl("delete", "clusterrolebinding", name)


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
