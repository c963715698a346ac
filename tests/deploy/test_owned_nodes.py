"""Static vGPUs, and the recorded mode of a node: what the API server itself refuses."""

import json
from collections.abc import Iterator
from uuid import uuid4

import pytest
import yaml

from deploy.rights import every_right
from kubeshare.api.owned_nodes import static_name
from kubeshare.lab.control_plane.api_server import ApiServer
from kubeshare.lab.errors import LabError

pytestmark = pytest.mark.apiserver

DEVICES = "system:serviceaccount:kubeshare-system:kubeshare-device-manager"


@pytest.fixture
def may_do_everything(cluster: ApiServer) -> Iterator[None]:
    """Give the device manager every right, so that the policy alone refuses it."""
    name = "owned-may-everything"
    with every_right(cluster, name, DEVICES):
        yield


@pytest.fixture
def uuid(cluster: ApiServer) -> Iterator[str]:
    """The UUID of a GPU; its static vGPU is deleted afterwards."""
    uuid = f"GPU-{uuid4()}"
    yield uuid
    cluster.kubectl("delete", "vgpu", static_name(uuid), "--ignore-not-found")


def create_static(cluster: ApiServer, uuid: str, name: str = "") -> str:
    spec = {"nodeName": "node-1", "pool": "static", "memoryBytes": 16 << 30}
    spec |= {"uuid": uuid} if uuid else {}
    manifest = {
        "apiVersion": "kubeshare.nthu/v1",
        "kind": "VGPU",
        "metadata": {"name": name or static_name(uuid)},
        "spec": spec,
    }
    return cluster.kubectl("create", "-f", "-", stdin=yaml.safe_dump(manifest))


def patch_spec(cluster: ApiServer, name: str, *more: str, **fields: object) -> None:
    operations = [
        {"op": "add", "path": f"/spec/{key}", "value": value} for key, value in fields.items()
    ]
    cluster.kubectl("patch", "vgpu", name, "--type=json", "-p", json.dumps(operations), *more)


def test_a_gpu_has_at_most_one_static_vgpu(cluster: ApiServer, uuid: str) -> None:
    assert "created" in create_static(cluster, uuid)
    with pytest.raises(LabError, match="already exists"):
        create_static(cluster, uuid)
    with pytest.raises(LabError, match="the UUID of its GPU without GPU-"):
        create_static(cluster, uuid, "another")


def test_a_static_vgpu_has_a_uuid(cluster: ApiServer) -> None:
    with pytest.raises(LabError, match="has the UUID of its GPU"):
        create_static(cluster, "", "vgpu-")


def test_a_vgpu_becomes_static_and_nothing_else(cluster: ApiServer, vgpu: str) -> None:
    with pytest.raises(LabError, match="has the UUID of its GPU"):
        patch_spec(cluster, vgpu, pool="static")
    with pytest.raises(LabError, match="changes only to static"):
        patch_spec(cluster, vgpu, pool="reserved")
    patch_spec(cluster, vgpu, uuid="GPU-1", pool="static")
    with pytest.raises(LabError, match="changes only to static"):
        patch_spec(cluster, vgpu, pool="onDemand")


def test_a_static_vgpu_is_shared_again_once_it_has_a_placeholder(
    cluster: ApiServer, vgpu: str
) -> None:
    patch_spec(cluster, vgpu, uuid="GPU-1", pool="static")
    with pytest.raises(LabError, match="that was selected for a vGPU does not change"):
        patch_spec(cluster, vgpu, selectedUuid="GPU-1")
    patch_spec(cluster, vgpu, placeholderUid="x")
    with pytest.raises(LabError, match="changes only to static"):
        patch_spec(cluster, vgpu, pool="reserved")
    with pytest.raises(LabError, match="gets the GPU that was selected"):
        patch_spec(cluster, vgpu, pool="onDemand", selectedUuid="GPU-2")
    patch_spec(cluster, vgpu, pool="onDemand", selectedUuid="GPU-1")
    with pytest.raises(LabError, match="that was selected for a vGPU does not change"):
        patch_spec(cluster, vgpu, selectedUuid="")
    patch_spec(cluster, vgpu, pool="static")
    patch_spec(cluster, vgpu, pool="onDemand", selectedUuid="")


def test_the_memory_with_which_a_vgpu_was_created_stays(cluster: ApiServer, vgpu: str) -> None:
    with pytest.raises(LabError, match="with which a vGPU was created does not change"):
        patch_spec(cluster, vgpu, expectedMemoryBytes=32 << 30)


@pytest.mark.usefixtures("may_do_everything")
def test_the_device_manager_changes_only_the_pool(cluster: ApiServer, vgpu: str) -> None:
    as_it = f"--as={DEVICES}"
    others = {"uuid": "GPU-1", "memoryBytes": 1, "physicalMemoryBytes": 1, "model": "x"}
    for field, value in others.items():
        with pytest.raises(LabError, match="nothing else of their spec"):
            patch_spec(cluster, vgpu, as_it, **{field: value})
    patch_spec(cluster, vgpu, uuid="GPU-1")
    patch_spec(cluster, vgpu, as_it, pool="static")
    assert cluster.kubectl("get", "vgpu", vgpu, "-o", "jsonpath={.spec.pool}") == "static"


def test_a_gpunode_shows_the_mode_and_its_agent_does_not_write_it(cluster: ApiServer) -> None:
    name = f"node-{uuid4().hex[:8]}"
    found = {
        "apiVersion": "kubeshare.nthu/v1",
        "kind": "GPUNode",
        "metadata": {"name": name},
        "spec": {"count": 0},
    }
    apply = ("apply", "--server-side", "--force-conflicts", "-f", "-")
    cluster.kubectl(*apply, stdin=yaml.safe_dump(found))
    try:
        assert "shared" in cluster.kubectl("get", "gpunode", name)
        mode = json.dumps([{"op": "add", "path": "/status", "value": {"mode": "owned"}}])
        cluster.kubectl("patch", "gpunode", name, "--subresource=status", "--type=json", "-p", mode)
        cluster.kubectl(*apply, stdin=yaml.safe_dump(found | {"status": {"mode": "shared"}}))
        assert "owned" in cluster.kubectl("get", "gpunode", name)
    finally:
        cluster.kubectl("delete", "gpunode", name)
