"""An API server that has our CRDs and policies, with its own namespace per test."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import yaml

from deploy.pod_namespace import DEVICES, SCHEDULER, Namespace
from kubeshare.install import manifests
from kubeshare.lab.control_plane.api_server import ApiServer, wait_until
from kubeshare.lab.control_plane.kubeconfig import write_kubeconfig
from kubeshare.lab.errors import LabError

CLUSTER_KINDS = {
    "CustomResourceDefinition",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
    "MutatingAdmissionPolicy",
    "MutatingAdmissionPolicyBinding",
    "DeviceClass",
}

_PROBE = "kubeshare-test-probe"
_REFUSED = "refused by a probe"


@pytest.fixture(scope="session")
def cluster(apiserver: ApiServer) -> ApiServer:
    """The API server once our kinds are served and the policies are in force."""
    _apply(apiserver)
    apiserver.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=180s")
    # The API server refuses requests for a kind with 429 while it fills its cache.
    wait_until(lambda: _are_listed(apiserver), "the kinds to be served")
    _wait_until_in_force(apiserver)
    return apiserver


def install_policies(apiserver: ApiServer) -> None:
    """Install what is missing of the policies, and wait until they are in force."""
    _apply(apiserver)
    _wait_until_in_force(apiserver)


def _apply(apiserver: ApiServer) -> None:
    ours = manifests.load(manifests.Options())
    cluster_wide = [manifest for manifest in ours if manifest["kind"] in CLUSTER_KINDS]
    apiserver.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(cluster_wide))


def _wait_until_in_force(apiserver: ApiServer) -> None:
    # The API server learns of policies in the order in which they came, a second later or two.
    probes = yaml.safe_dump_all(_probes())
    apiserver.kubectl("apply", "-f", "-", stdin=probes)
    wait_until(lambda: _are_in_force(apiserver), "the admission policies")
    apiserver.kubectl("delete", "-f", "-", stdin=probes)


def _are_listed(apiserver: ApiServer) -> bool:
    try:
        for kind in ("sharepods", "vgpus", "gpunodes", "gpuquotas", "shareusages"):
            apiserver.kubectl("get", kind, "-A")
    except LabError as error:
        if "(TooManyRequests)" in str(error):
            return False
        raise
    return True


def _probes() -> list[dict[str, Any]]:
    """A policy of each kind for ConfigMaps of one name: one refuses them, one gives a label."""
    api_version = "admissionregistration.k8s.io/v1"
    rule = {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "operations": ["CREATE"],
        "resources": ["configmaps"],
    }
    label = 'Object{metadata: Object.metadata{labels: {"probed": "yes"}}}'
    specs: dict[str, dict[str, Any]] = {
        "Validating": {"validations": [{"expression": "false", "message": _REFUSED}]},
        "Mutating": {
            "reinvocationPolicy": "Never",
            "mutations": [
                {
                    "patchType": "ApplyConfiguration",
                    "applyConfiguration": {"expression": label},
                }
            ],
        },
    }
    found: list[dict[str, Any]] = []
    for kind, spec in specs.items():
        name = f"{_PROBE}-{kind.lower()}"
        matched = {
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": [rule]},
            "matchConditions": [
                {"name": "named", "expression": f"object.metadata.name == '{name}'"}
            ],
        }
        binding: dict[str, Any] = {"policyName": name}
        if kind == "Validating":
            binding["validationActions"] = ["Deny"]
        for suffix, what in (("", spec | matched), ("Binding", binding)):
            found.append(
                {
                    "apiVersion": api_version,
                    "kind": f"{kind}AdmissionPolicy{suffix}",
                    "metadata": {"name": name},
                    "spec": what,
                }
            )
    return found


def _are_in_force(apiserver: ApiServer) -> bool:
    create = ("create", "configmap", "--dry-run=server", "-o", "yaml")
    changed = apiserver.kubectl(*create, f"{_PROBE}-mutating")
    try:
        apiserver.kubectl(*create, f"{_PROBE}-validating")
    except LabError as error:
        return _REFUSED in str(error) and "probed" in changed
    return False


@pytest.fixture
def namespace(cluster: ApiServer) -> Iterator[str]:
    """A namespace of the test's own; no SharePod of it is left to those who share the server."""
    name = f"test-{uuid4().hex[:8]}"
    cluster.kubectl("create", "namespace", name)
    yield name
    cluster.kubectl("delete", "shp", "--all", "-n", name)


@pytest.fixture
def system(cluster: ApiServer) -> ApiServer:
    """The API server with the namespace of the programs, which other tests may have made."""
    ours = [one for one in manifests.load(manifests.Options()) if one["kind"] == "Namespace"]
    cluster.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(ours))
    return cluster


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
    # Only one without holders can be deleted.
    free = '{"status": {"holders": null}}'
    cluster.kubectl("patch", "vgpu", name, "--subresource=status", "--type=merge", "-p", free)
    cluster.kubectl("delete", "vgpu", name)


@pytest.fixture
def space(cluster: ApiServer) -> Iterator[Namespace]:
    """A namespace in which our programs may do everything, so that policies alone refuse."""
    name = f"test-{uuid4().hex[:8]}"
    cluster.kubectl("create", "namespace", name)
    users = [f"--user={DEVICES}", f"--user={SCHEDULER}"]
    cluster.kubectl(
        "create", "rolebinding", "all", "--clusterrole=cluster-admin", *users, "-n", name
    )
    # The API server learns of a binding a moment after it has stored it.
    may = ("get", "pods", "-n", name)
    for user in (DEVICES, SCHEDULER):
        wait_until(partial(_is_allowed, cluster, *may, f"--as={user}"), "the rights")
    yield Namespace(cluster, name)
    cluster.kubectl("delete", "pods", "--all", "-n", name, "--grace-period=0", "--force")


@pytest.fixture
def editor(cluster: ApiServer, namespace: str, tmp_path: Path) -> Path:
    """The kubeconfig of a user who has the role edit in the namespace and no other."""
    name = f"editor-{namespace}"
    # No controller gives the role edit here what our role for it has.
    for role in ("edit", "kubeshare-view", "kubeshare-edit"):
        binding = ("create", "rolebinding", f"{role}-of-test", f"--clusterrole={role}")
        cluster.kubectl(*binding, f"--user={name}", "-n", namespace)
    ours = [one for one in manifests.load(manifests.Options()) if one["kind"] == "ClusterRole"]
    cluster.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(ours))
    may = ("auth", "can-i", "get", "shp", "-n", namespace, f"--as={name}")
    wait_until(lambda: _is_allowed(cluster, *may), "the rights")
    user = cluster.authority.identity(name, name)
    authority = cluster.authority.certificate
    return write_kubeconfig(tmp_path / "config", name, cluster.settings.url, authority, user)


def _is_allowed(cluster: ApiServer, *arguments: str) -> bool:
    try:
        cluster.kubectl(*arguments)
    except LabError:
        return False
    return True
