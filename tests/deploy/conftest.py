"""An API server that has our CRDs and policies, with its own namespace per test."""

from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import pytest
import yaml

from kubeshare.install import manifests
from kubeshare.lab.control_plane import ApiServer, wait_until
from kubeshare.lab.errors import LabError

CLUSTER_KINDS = {
    "CustomResourceDefinition",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
    "MutatingAdmissionPolicy",
    "MutatingAdmissionPolicyBinding",
}


@pytest.fixture(scope="session")
def cluster(apiserver: ApiServer) -> ApiServer:
    """The API server once our kinds are served and the policies are in force."""
    ours = manifests.load(manifests.Options())
    cluster_wide = [manifest for manifest in ours if manifest["kind"] in CLUSTER_KINDS]
    apiserver.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(cluster_wide))
    apiserver.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
    refused = yaml.safe_dump(
        {
            "apiVersion": "kubeshare.nthu/v1",
            "kind": "SharePod",
            "metadata": {"name": "probe", "annotations": {"kubeshare/gpu_request": "0.1"}},
            "spec": {"containers": [{"name": "main"}]},
        }
    )

    def policies_are_in_force() -> bool:
        try:
            apiserver.kubectl("create", "--dry-run=server", "-f", "-", stdin=refused)
        except LabError as error:
            return "gpu_limit" in str(error)
        return False

    wait_until(policies_are_in_force, "the admission policies")
    return apiserver


@pytest.fixture
def namespace(cluster: ApiServer) -> Iterator[str]:
    """A namespace of the test's own; no SharePod of it is left to those who share the server."""
    name = f"test-{uuid4().hex[:8]}"
    cluster.kubectl("create", "namespace", name)
    yield name
    cluster.kubectl("delete", "shp", "--all", "-n", name)


@pytest.fixture
def create(cluster: ApiServer, namespace: str) -> Callable[[dict[str, Any]], str]:
    """Create an object in the test's namespace; what is refused raises LabError."""

    def _create(manifest: dict[str, Any]) -> str:
        return cluster.kubectl("create", "-n", namespace, "-f", "-", stdin=yaml.safe_dump(manifest))

    return _create


@pytest.fixture
def vgpu(cluster: ApiServer) -> Iterator[str]:
    """The name of a fresh vGPU of 16 GiB without holders."""
    name = f"test-{uuid4().hex[:8]}"
    manifest = {
        "apiVersion": "kubeshare.nthu/v1",
        "kind": "VGPU",
        "metadata": {"name": name},
        "spec": {"nodeName": "node-1", "memoryBytes": 16 << 30},
    }
    cluster.kubectl("create", "-f", "-", stdin=yaml.safe_dump(manifest))
    yield name
    cluster.kubectl("delete", "vgpu", name)
