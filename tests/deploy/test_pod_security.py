"""Pod security: all of KubeShare's pods but those of the node programs run under ``restricted``."""

from typing import Any

import pytest
import yaml

from kubeshare.api.types.v1 import VGPU, VGPUSpec
from kubeshare.device_manager.placeholder import pods
from kubeshare.install import manifests
from kubeshare.kube.meta import ObjectMeta
from kubeshare.lab.control_plane.api_server import ApiServer
from kubeshare.lab.errors import LabError

pytestmark = pytest.mark.apiserver

Raw = dict[str, Any]

NODE_PROGRAMS = {
    "kubeshare-node-agent": {
        "privileged",
        "host namespaces",
        "hostPath",
        "runAsUser=0",
        "runAsNonRoot",
        "unrestricted capabilities",
        "allowPrivilegeEscalation",
        "seccompProfile",
    },
    "kubeshare-token-daemon": {"hostPath", "runAsUser=0", "runAsNonRoot"},
}
"""Program -> what of ``restricted`` it breaks, which is all that it may."""

EVERYTHING = set[str]().union(*NODE_PROGRAMS.values())


def _pods() -> dict[str, Raw]:
    """Name -> the spec of each pod that KubeShare runs."""
    found = {
        each["metadata"]["name"]: each["spec"]["template"]["spec"]
        for each in manifests.load(manifests.Options(extender=True))
        if each["kind"] in ("Deployment", "DaemonSet")
    }
    vgpu = VGPU(metadata=ObjectMeta(name="vgpu-1"), spec=VGPUSpec(node_name="node-1"))
    return found | {"placeholder": pods.manifest(vgpu, "kubeshare:dev", "uid")["spec"]}


@pytest.fixture(scope="module")
def restricted(apiserver: ApiServer) -> str:
    """A namespace that takes only pods of the level ``restricted``."""
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    namespace = {"metadata": {"name": "test-restricted", "labels": labels}}
    manifest = {"apiVersion": "v1", "kind": "Namespace", **namespace}
    apiserver.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(manifest))
    return "test-restricted"


def _refusal(apiserver: ApiServer, namespace: str, spec: Raw) -> str:
    """What the API server has against a pod; ``""`` for nothing."""
    # A class that is not installed here says nothing of security.
    spec = {name: value for name, value in spec.items() if name != "priorityClassName"}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec}
    words = ("create", "--dry-run=server", "-n", namespace, "-f", "-")
    try:
        apiserver.kubectl(*words, stdin=yaml.safe_dump(pod))
    except LabError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("name", sorted(set(_pods()) - set(NODE_PROGRAMS)))
def test_a_pod_that_is_no_node_program_runs_under_restricted(
    apiserver: ApiServer, restricted: str, name: str
) -> None:
    assert _refusal(apiserver, restricted, _pods()[name]) == ""


@pytest.mark.parametrize("name", NODE_PROGRAMS)
def test_a_node_program_breaks_no_more_of_it_than_it_must(
    apiserver: ApiServer, restricted: str, name: str
) -> None:
    refusal = _refusal(apiserver, restricted, _pods()[name])
    assert "violates PodSecurity" in refusal
    assert {word for word in EVERYTHING if word in refusal} == NODE_PROGRAMS[name], refusal
