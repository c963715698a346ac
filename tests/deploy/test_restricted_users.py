"""Pods with shares run in namespaces of users that have the Pod Security level ``restricted``."""

import json
from typing import Any, Final

import pytest
import yaml

from deploy.pod_namespace import DEVICES, SHARE, Namespace, gates, sharing
from kubeshare.api.types.constants import GATE
from kubeshare.api.types.v1 import VGPU, VGPUSpec
from kubeshare.device_manager.sharepod.pods import manifest
from kubeshare.kube.meta import ObjectMeta
from kubeshare.lab.control_plane.api_server import ApiServer
from kubeshare.lab.errors import LabError

pytestmark = pytest.mark.apiserver

Raw = dict[str, Any]

RESTRICTED: Final[Raw] = {
    "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
    "containers": [
        {
            "name": "main",
            "image": "train:1",
            "securityContext": {
                "allowPrivilegeEscalation": False,
                "capabilities": {"drop": ["ALL"]},
            },
        }
    ],
}
"""A user's pod that keeps the level: what KubeShare adds must keep it too."""


@pytest.fixture
def restricted(space: Namespace, cluster: ApiServer) -> Namespace:
    """A namespace that takes only pods of the level ``restricted``."""
    level = "pod-security.kubernetes.io/enforce=restricted"
    cluster.kubectl("label", "namespace", space.name, level)
    with pytest.raises(LabError, match="violates PodSecurity"):
        space.create()
    return space


def test_a_plain_pod_with_a_share_is_created(restricted: Namespace) -> None:
    pod = restricted.create(SHARE, **RESTRICTED)
    assert gates(pod) == [GATE]
    assert sharing(pod) == ["main"]
    assert no_access_to_the_node(pod)


def test_the_pod_of_a_sharepod_is_created(restricted: Namespace, cluster: ApiServer) -> None:
    where = ("-n", restricted.name)
    sharepod = {
        "apiVersion": "kubeshare.nthu/v1",
        "kind": "SharePod",
        "metadata": {"name": "a"},
        "spec": {"gpu": {"request": "0.3", "memory": "1Gi"}, **RESTRICTED},
    }
    cluster.kubectl("create", *where, "-f", "-", stdin=yaml.safe_dump(sharepod))
    made = json.loads(cluster.kubectl("get", "shp", "a", *where, "-o", "json"))
    vgpu = VGPU(metadata=ObjectMeta(name="vgpu-1"), spec=VGPUSpec(node_name="node-1"))
    ours = yaml.safe_dump({"apiVersion": "v1", "kind": "Pod", **manifest(made, [vgpu])})
    create = ("create", *where, f"--as={DEVICES}", "-f", "-", "-o", "json")
    pod = json.loads(cluster.kubectl(*create, stdin=ours))
    assert sharing(pod) == ["main"]
    assert no_access_to_the_node(pod)
    cluster.kubectl("delete", "shp", "a", *where)


def no_access_to_the_node(pod: Raw) -> bool:
    """Whether a pod has no folder, no device and no namespace of its node."""
    spec = pod["spec"]
    assert not [volume for volume in spec.get("volumes", []) if "hostPath" in volume]
    assert not {"hostPID", "hostIPC", "hostNetwork"} & {key for key, value in spec.items() if value}
    return not any(each.get("securityContext", {}).get("privileged") for each in spec["containers"])
