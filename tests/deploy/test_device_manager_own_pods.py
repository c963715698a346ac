"""In its own namespace the device manager has pods that do nothing, and touches no other."""

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from deploy.pod_namespace import DEVICES, sharepod_owner
from deploy.rights import every_right
from kubeshare.api.types.constants import NAMESPACE
from kubeshare.api.types.core_v1 import PODS
from kubeshare.api.types.v1 import VGPU, VGPUSpec
from kubeshare.core.demand import Demand
from kubeshare.device_manager.autoscaling import placeholder_pods
from kubeshare.device_manager.autoscaling.unmet_demand import PendingRequester
from kubeshare.device_manager.placeholder import fillers, pods
from kubeshare.install import manifests
from kubeshare.kube.controller.events import ObjectReference
from kubeshare.kube.meta import ObjectMeta
from kubeshare.lab.control_plane.api_server import ApiServer
from kubeshare.lab.errors import LabError

pytestmark = pytest.mark.apiserver

Raw = dict[str, Any]

AS_IT = f"--as={DEVICES}"
RIGHTS = "device-manager-own-pods"


@pytest.fixture(autouse=True, scope="module")
def may_do_everything(cluster: ApiServer) -> Iterator[None]:
    """Give it every right, so that what refuses it is the policy alone."""
    ours = manifests.load(manifests.Options())
    needed = [one for one in ours if one["kind"] in ("PriorityClass", "Namespace")]
    account = {"apiVersion": "v1", "kind": "ServiceAccount"}
    needed.append(account | {"metadata": {"name": "default", "namespace": NAMESPACE}})
    cluster.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(needed))
    with every_right(cluster, RIGHTS, DEVICES):
        yield


def placeholder(*, by_claim: bool = False) -> Raw:
    vgpu = VGPU(metadata=ObjectMeta(name="own", uid="12345678"), spec=VGPUSpec(node_name="n1"))
    return pods.manifest(vgpu, "i:1", "ns-uid", by_claim=by_claim)


def for_autoscalers() -> Raw:
    requester = PendingRequester(
        demand=Demand(uid="u1", name="p"),
        spec={"nodeSelector": {"zone": "a"}, "tolerations": [{"operator": "Exists"}]},
        reference=ObjectReference(api_version="v1", kind="Pod", name="p"),
        created="2026-01-01T00:00:00Z",
    )
    return placeholder_pods.manifest("kubeshare-missing-u1-0", requester, "i:1", ["n1"])


def try_to_create(cluster: ApiServer, pod: Raw) -> str:
    made = {"apiVersion": PODS.api_version, "kind": PODS.kind} | pod
    words = ("create", "--dry-run=server", "-n", NAMESPACE, "-f", "-", AS_IT)
    return cluster.kubectl(*words, stdin=json.dumps(made))


@pytest.mark.parametrize(
    "pod",
    [placeholder(), placeholder(by_claim=True), fillers.manifest("n1", "i:1"), for_autoscalers()],
    ids=["placeholder", "placeholder by claim", "filler", "for autoscalers"],
)
def test_all_that_it_creates_there_is_accepted(cluster: ApiServer, pod: Raw) -> None:
    assert "created" in try_to_create(cluster, pod)


def changed(where: str, value: Any) -> Raw:
    """The placeholder with another value at a path; digits are indices of lists."""
    pod = copy.deepcopy(placeholder())
    *path, last = where.split("/")
    inner: Any = pod
    for key in path:
        inner = inner[int(key)] if key.isdecimal() else inner[key]
    inner[last] = value
    return pod


SECURITY = "spec/containers/0/securityContext"
ESCALATION = {"allowPrivilegeEscalation": True}
SECRET = {"secretKeyRef": {"name": "token", "key": "token"}}
NOT_ITS_OWN: dict[str, Raw] = {
    "no role": changed("metadata/labels", {}),
    "a role of others": changed("metadata/labels", {"kubeshare.nthu/role": "node-agent"}),
    "a pod of a SharePod": changed(
        "metadata",
        {
            "name": "own",
            "labels": {"kubeshare.nthu/role": "sharepod"},
            "ownerReferences": [sharepod_owner("own")],
        },
    ),
    "files of the node": changed("spec/volumes", [{"name": "v", "hostPath": {"path": "/"}}]),
    "a secret as a volume": changed("spec/volumes", [{"name": "v", "secret": {"secretName": "x"}}]),
    "a secret as a variable": changed(
        "spec/containers/0/env", [{"name": "TOKEN", "valueFrom": SECRET}]
    ),
    "secrets as variables": changed("spec/containers/0/envFrom", [{"secretRef": {"name": "x"}}]),
    "a token": changed("spec/automountServiceAccountToken", True),
    "the network of the node": changed("spec/hostNetwork", True),
    "the processes of the node": changed("spec/hostPID", True),
    "the IPC of the node": changed("spec/hostIPC", True),
    "root": changed("spec/securityContext", {}),
    "a container of root": changed(f"{SECURITY}/runAsNonRoot", False),
    "an init container": changed("spec/initContainers", [{"name": "first", "image": "i"}]),
    "a port of the node": changed(
        "spec/containers/0/ports", [{"containerPort": 80, "hostPort": 80}]
    ),
    "privileged": changed(SECURITY, ESCALATION | {"privileged": True}),
    "escalation": changed(SECURITY, ESCALATION),
    "a capability": changed(
        f"{SECURITY}/capabilities", {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]}
    ),
}


@pytest.mark.parametrize("pod", NOT_ITS_OWN.values(), ids=NOT_ITS_OWN.keys())
def test_no_other_pod_is_created_there(cluster: ApiServer, pod: Raw) -> None:
    with pytest.raises(LabError, match="creates placeholders, fillers and pods for cluster autos"):
        try_to_create(cluster, pod)


@pytest.fixture
def pod_of_a_program(cluster: ApiServer) -> Iterator[str]:
    """A pod as a DaemonSet has it there."""
    pod = changed("metadata/labels", {"app.kubernetes.io/name": "kubeshare-node-agent"})
    pod["metadata"] |= {"name": "agent", "ownerReferences": []}
    pod["spec"]["nodeName"] = "n1"
    made = {"apiVersion": PODS.api_version, "kind": PODS.kind} | pod
    cluster.kubectl("create", "-f", "-", stdin=json.dumps(made))
    yield "agent"
    cluster.kubectl("delete", "pod", "agent", "-n", NAMESPACE, "--force", "--grace-period=0")


@pytest.mark.parametrize(
    "change",
    [
        {"spec": {"containers": [{"name": "placeholder", "image": "its-own"}]}},
        {"metadata": {"labels": {"kubeshare.nthu/role": "placeholder"}}},
    ],
    ids=["image", "role"],
)
def test_pods_of_programs_are_not_changed(
    cluster: ApiServer, pod_of_a_program: str, change: Raw
) -> None:
    with pytest.raises(LabError, match="changes nothing of a pod but"):
        cluster.kubectl(
            "patch", "pod", pod_of_a_program, "-n", NAMESPACE, "-p", json.dumps(change), AS_IT
        )


def test_pods_of_programs_are_not_deleted(cluster: ApiServer, pod_of_a_program: str) -> None:
    with pytest.raises(LabError, match="and no other but its own in kubeshare-system"):
        cluster.kubectl("delete", "pod", pod_of_a_program, "-n", NAMESPACE, AS_IT)


def test_a_placeholder_is_labelled_by_whether_its_vgpu_is_in_use(cluster: ApiServer) -> None:
    made: Raw = {"apiVersion": PODS.api_version, "kind": PODS.kind} | placeholder()
    name, where = made["metadata"]["name"], ("-n", NAMESPACE, AS_IT)
    cluster.kubectl("create", "-f", "-", AS_IT, stdin=json.dumps(made))
    cluster.kubectl("label", "pod", name, "kubeshare.nthu/in-use=false", "--overwrite", *where)
    image = {"spec": {"containers": [{"name": "placeholder", "image": "its-own"}]}}
    with pytest.raises(LabError, match="changes nothing of a pod but"):
        cluster.kubectl("patch", "pod", name, "-p", json.dumps(image), *where)
    cluster.kubectl("delete", "pod", name, "--force", "--grace-period=0", *where)
