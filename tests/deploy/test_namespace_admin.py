"""What a ServiceAccount with the role ``edit`` or ``admin`` in its namespace tries.

It wants more of a GPU than was given to it. Each attempt names what stops it: the cluster's
permissions, or a policy of ours. What neither has to stop, since the node believes nothing of it,
is in ``tests/node/dra/test_prepare.py`` and ``tests/e2e/test_attacks.py``.
"""

import json
from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import pytest
import yaml
from msgspec import Struct

from deploy.pod_namespace import SHARE, Namespace
from fakes import manifests
from kubeshare.api.types.constants import NAMESPACE, VGPU_RESOURCE
from kubeshare.install import manifests as installed
from kubeshare.lab.control_plane.api_server import ApiServer
from kubeshare.lab.errors import LabError

pytestmark = pytest.mark.apiserver

Raw = dict[str, Any]
Try = Callable[..., str]

RIGHTS = {"edit": ("view", "edit"), "admin": ("view", "edit", "admin")}
"""Role of the cluster -> whose parts it has."""
UUID = "GPU-2d7734a4-55a9-8c5a-b270-a9159d9d7b10"
HOLDER = manifests.holder("mine", requestMicros=1_000_000, limitMicros=1_000_000)
DEVICE_MANAGER = "system:serviceaccount:kubeshare-system:kubeshare-device-manager"
SCHEDULER = "system:kube-scheduler"
DEBUG: Raw = {"name": "debug", "image": "x"}
OURS_ALONE = "is written by KubeShare alone"


def pod(name: str, **metadata: Any) -> Raw:
    return manifests.pod(name, metadata=metadata)


def owned_by_a_sharepod(uid: str, name: str = "mine") -> Raw:
    owner = {"apiVersion": "kubeshare.nthu/v1", "kind": "SharePod", "name": name, "uid": uid}
    return {"ownerReferences": [owner | {"controller": True}]}


def claim(name: str, **exactly: Any) -> Raw:
    request = {"deviceClassName": "vgpu.kubeshare.nthu", **exactly}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name},
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": request}]}},
    }


class Home(Struct, frozen=True):
    """A namespace, and the ServiceAccount ``mallory`` in it that has a role there."""

    name: str

    @property
    def account(self) -> str:
        return f"system:serviceaccount:{self.name}:mallory"

    @property
    def flags(self) -> tuple[str, ...]:
        """What kubectl takes to be this account."""
        groups = ("serviceaccounts", f"serviceaccounts:{self.name}", "authenticated")
        return (f"--as={self.account}", *(f"--as-group=system:{group}" for group in groups))


@pytest.fixture(scope="module")
def parts(cluster: ApiServer) -> dict[str, set[str]]:
    """Role -> the roles of which a controller manager would put it together."""
    ours = [one for one in installed.load(installed.Options()) if one["kind"] == "ClusterRole"]
    system = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    cluster.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all([system, *ours]))
    found = {}
    for role in RIGHTS["admin"]:
        label = f"rbac.authorization.k8s.io/aggregate-to-{role}=true"
        listed = cluster.kubectl("get", "clusterroles", "-o", "name", "-l", label)
        found[role] = {line.partition("/")[2] for line in listed.splitlines()} - {*RIGHTS["admin"]}
    return found


def role_binding(role: str, namespace: str, user: str) -> Raw:
    group = "rbac.authorization.k8s.io"
    return {
        "apiVersion": f"{group}/v1",
        "kind": "RoleBinding",
        "metadata": {"name": f"{user}-{role}".replace(":", "-"), "namespace": namespace},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": group, "kind": "User", "name": user}],
    }


@pytest.fixture(scope="module", params=RIGHTS)
def home(
    request: pytest.FixtureRequest, cluster: ApiServer, parts: dict[str, set[str]]
) -> Iterator[Home]:
    """A namespace in which mallory has the role; with a pod, a SharePod and a claim of theirs."""
    home = Home(f"test-{uuid4().hex[:8]}")
    cluster.kubectl("create", "namespace", home.name)
    roles = sorted(set[str]().union(*(parts[part] for part in RIGHTS[request.param])))
    bindings = [role_binding(role, home.name, home.account) for role in roles]
    bindings.append(role_binding("cluster-admin", home.name, DEVICE_MANAGER))
    cluster.kubectl("create", "-f", "-", stdin=yaml.safe_dump_all(bindings))
    mine = yaml.safe_dump_all([pod("mine"), manifests.sharepod("mine")])
    cluster.kubectl("create", "-n", home.name, "-f", "-", *home.flags, stdin=mine)
    scheduled = json.dumps(claim("mine"))
    cluster.kubectl("create", "-n", home.name, "-f", "-", f"--as={SCHEDULER}", stdin=scheduled)
    yield home
    cluster.kubectl("delete", "shp,pods", "--all", "-n", home.name, "--force")


@pytest.fixture
def try_(cluster: ApiServer, home: Home) -> Try:
    """Run kubectl as mallory."""

    def run(*arguments: str, stdin: Raw | None = None) -> str:
        where = () if "-n" in arguments else ("-n", home.name)
        text = None if stdin is None else json.dumps(stdin)
        return cluster.kubectl(*arguments, *where, *home.flags, stdin=text)

    return run


def patch(operation: str, path: str, value: Any = None) -> tuple[str, ...]:
    return ("--type=json", "-p", json.dumps([{"op": operation, "path": path, "value": value}]))


def test_they_have_the_rights_of_their_role_over_sharepods_too(try_: Try) -> None:
    try_("create", "-f", "-", stdin=manifests.sharepod("another"))
    try_("annotate", "shp/another", "note=changed")
    assert "sharepod.kubeshare.nthu/another" in try_("get", "shp,pods", "-o", "name")
    assert try_("get", "shareusages", "-o", "name") == ""
    try_("delete", "shp/another")


FORBIDDEN = {
    "to see whose vGPUs there are": ("get", "vgpus"),
    "to make a vGPU": ("create", "-f", "VGPU"),
    "to hold a part of a vGPU": (
        *("patch", "vgpu", "theirs", "--subresource=status"),
        *patch("add", "/status/holders/-", HOLDER),
    ),
    "to say which GPU a vGPU is": ("patch", "vgpu", "theirs", *patch("add", "/spec/uuid", UUID)),
    "to delete somebody's vGPU": ("delete", "vgpu", "theirs"),
    "to say what GPUs a node has": ("create", "-f", "GPUNode"),
    "to raise a limit of their GPUQuota": (
        *("patch", "gpuquota", "gpus"),
        *patch("add", "/spec/limits/0/gpus", 99),
    ),
    "to be free of their GPUQuota": ("delete", "gpuquota", "gpus"),
    "to have used less": (
        *("patch", "shareusage", "mine"),
        *patch("add", "/status/shares/0/usedNs", 0),
    ),
    "to be free of what they used": ("delete", "shareusage", "mine"),
    "to be free of the number of SharePods": ("delete", "resourcequota", "kubeshare"),
    "to allow shares in their namespace": (
        *("patch", "namespace", "HOME"),
        *patch("add", "/metadata/labels/kubeshare.nthu~1shares", "allowed"),
    ),
    "to say that their SharePod has a GPU": (
        *("patch", "shp", "mine", "--subresource=status"),
        *patch("add", "/status", {"gpus": [{"id": "theirs", "uuid": UUID}]}),
    ),
    "to say that their pod was given a claim": (
        *("patch", "pod", "mine", "--subresource=status"),
        *patch("add", "/status/extendedResourceClaimStatus", {"resourceClaimName": "forged"}),
    ),
    "to say that their pod has failed": (
        *("patch", "pod", "mine", "--subresource=status"),
        *patch("add", "/status", {"phase": "Failed"}),
    ),
    "to add a container to their pod": (
        *("patch", "pod", "mine", "--subresource=ephemeralcontainers"),
        *patch("add", "/spec/ephemeralContainers", [DEBUG]),
    ),
    "to enlarge their pod": (
        *("patch", "pod", "mine", "--subresource=resize"),
        *patch("add", "/spec/containers/0/resources", {"limits": {VGPU_RESOURCE: "2"}}),
    ),
    "to bind their pod, and to label it so": ("create", "--raw", "BINDING", "-f", "Binding"),
    "to say that their claim is allocated": (
        *("patch", "resourceclaim", "mine", "--subresource=status"),
        *patch("add", "/status/reservedFor", []),
    ),
    "to publish devices of our driver": ("create", "-f", "ResourceSlice"),
    "to define a class of our devices": ("create", "-f", "DeviceClass"),
    "to take a placeholder's name before it": ("create", "-f", "Pod", "-n", NAMESPACE),
    "to delete a placeholder": ("delete", "pod", "kubeshare-vgpu-theirs", "-n", NAMESPACE),
    "to evict a placeholder": ("create", "--raw", "EVICTION", "-f", "Eviction"),
    "to annotate a placeholder": (
        *("patch", "pod", "kubeshare-vgpu-theirs", "-n", NAMESPACE),
        *patch("add", "/metadata/annotations", {"note": "mine"}),
    ),
    "to say that a placeholder has failed": (
        *("patch", "pod", "kubeshare-vgpu-theirs", "-n", NAMESPACE, "--subresource=status"),
        *patch("add", "/status", {"phase": "Failed"}),
    ),
    "to lead instead of the scheduler": (
        *("patch", "lease", "kubeshare-scheduler", "-n", NAMESPACE),
        *patch("add", "/spec/holderIdentity", "mallory"),
    ),
    "to say what a node has": (
        *("patch", "node", "node-1", "--subresource=status"),
        *patch("add", "/status/capacity", {VGPU_RESOURCE: "1000"}),
    ),
    "to change how KubeShare is configured": (
        *("create", "configmap", "kubeshare", "-n", NAMESPACE, "--from-literal=config.yaml="),
    ),
    "to speak as the device manager": (
        *("create", "token", "kubeshare-device-manager", "-n", NAMESPACE),
    ),
    "to take the device manager's rights in their namespace": (
        *("create", "rolebinding", "more", "--clusterrole=kubeshare-device-manager"),
        "--user=mallory",
    ),
    "to switch a policy off": ("delete", "validatingadmissionpolicy", "kubeshare-guard-pods"),
}

FILES: dict[str, Raw] = {
    "VGPU": {
        "apiVersion": "kubeshare.nthu/v1",
        "kind": "VGPU",
        "metadata": {"name": "forged"},
        "spec": {"nodeName": "node-1", "uuid": UUID, "memoryBytes": 1},
    },
    "GPUNode": {
        "apiVersion": "kubeshare.nthu/v1",
        "kind": "GPUNode",
        "metadata": {"name": "node-1"},
        "spec": {"devices": []},
    },
    "Binding": {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "mine", "labels": {"kubeshare.nthu/vgpu": "theirs"}},
        "target": {"kind": "Node", "name": "node-1"},
    },
    "Eviction": {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": "kubeshare-vgpu-theirs"},
    },
    "ResourceSlice": {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": "forged"},
        "spec": {
            "driver": "vgpu.kubeshare.nthu",
            "nodeName": "node-1",
            "pool": {"name": "node-1", "generation": 9, "resourceSliceCount": 1},
            "devices": [{"name": "slots"}],
        },
    },
    "DeviceClass": {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": "forged"},
        "spec": {},
    },
    "Pod": pod("kubeshare-vgpu-theirs"),
}


@pytest.mark.parametrize("attempt", FORBIDDEN.values(), ids=FORBIDDEN.keys())
def test_the_clusters_permissions_do_not_let_them(
    attempt: tuple[str, ...], try_: Try, home: Home
) -> None:
    pods = "/api/v1/namespaces"
    raw = {
        "HOME": home.name,
        "BINDING": f"{pods}/{home.name}/pods/mine/binding",
        "EVICTION": f"{pods}/{NAMESPACE}/pods/kubeshare-vgpu-theirs/eviction",
    }
    file = next((FILES[word] for word in attempt if word in FILES), None)
    words = [raw.get(word, "-" if word in FILES else word) for word in attempt]

    with pytest.raises(LabError, match=r"[Ff]orbidden"):
        try_(*words, stdin=file)


REFUSED_PODS = {
    "a pod that says it shares a vGPU": pod("p", labels={"kubeshare.nthu/vgpu": "theirs"}),
    "a pod that says it is a placeholder": pod(
        "kubeshare-vgpu-theirs", labels={"kubeshare.nthu/role": "placeholder"}
    ),
    "a pod that names a SharePod's uid": pod("p", labels={"kubeshare.nthu/sharepod-uid": "1"}),
    "a pod with a SharePod as its owner": pod("p", **owned_by_a_sharepod("1")),
}


@pytest.mark.parametrize("forged", REFUSED_PODS.values(), ids=REFUSED_PODS.keys())
def test_a_policy_refuses_what_only_kubeshare_says_of_a_pod(forged: Raw, try_: Try) -> None:
    with pytest.raises(LabError, match=r"by KubeShare alone"):
        try_("create", "-f", "-", stdin=forged)


def test_the_role_that_the_api_server_gives_plain_pods_is_none_of_these(try_: Try) -> None:
    try_("create", "-f", "-", stdin=pod("plain", labels={"kubeshare.nthu/role": "pod"}))

    with pytest.raises(LabError, match=OURS_ALONE):
        try_("label", "pod", "mine", "kubeshare.nthu/role=pod")


def test_a_pod_that_there_is_gets_no_label_and_no_owner_of_ours_either(try_: Try) -> None:
    with pytest.raises(LabError, match=OURS_ALONE):
        try_("label", "pod", "mine", "kubeshare.nthu/vgpu=theirs")
    owner = owned_by_a_sharepod("1")["ownerReferences"]
    with pytest.raises(LabError, match="are made by KubeShare alone"):
        try_("patch", "pod", "mine", *patch("add", "/metadata/ownerReferences", owner))


def test_labels_cannot_come_by_status_or_binding_whoever_writes_these(
    cluster: ApiServer, home: Home
) -> None:
    """As one who may do everything, so that what refuses is the policy alone."""
    label = {"metadata": {"labels": {"kubeshare.nthu/vgpu": "theirs"}}}
    here = ("-n", home.name)

    with pytest.raises(LabError, match=OURS_ALONE):
        cluster.kubectl(
            *("patch", "pod", "mine", *here, "--subresource=status"),
            *("--type=merge", "-p", json.dumps(label)),
        )
    with pytest.raises(LabError, match=OURS_ALONE):
        cluster.kubectl(
            *("create", "--raw", f"/api/v1/namespaces/{home.name}/pods/mine/binding"),
            *("-f", "-"),
            stdin=json.dumps(FILES["Binding"]),
        )


def test_the_pod_of_a_sharepod_keeps_what_kubeshare_says_of_it_and_takes_all_else(
    try_: Try, cluster: ApiServer, home: Home
) -> None:
    uid = "0f1e2d3c-0000-4000-8000-000000000000"
    made = pod("made", labels={"kubeshare.nthu/vgpu": "ours"}, **owned_by_a_sharepod(uid, "made"))
    manager = f"--as={DEVICE_MANAGER}"
    cluster.kubectl("create", "-n", home.name, "-f", "-", manager, stdin=json.dumps(made))

    for change in ("kubeshare.nthu/vgpu=theirs", "kubeshare.nthu/vgpu-"):
        with pytest.raises(LabError, match=OURS_ALONE):
            try_("label", "pod", "made", "--overwrite", change)
    try_("label", "pod", "made", "team=a")
    # As an uninstallation and the garbage collector do.
    try_("patch", "pod", "made", *patch("remove", "/metadata/ownerReferences"))

    shown = json.loads(try_("get", "pod", "made", "-o", "json"))["metadata"]
    assert shown["labels"] == {"kubeshare.nthu/vgpu": "ours", "team": "a"}
    assert "ownerReferences" not in shown


NO_RESOURCES = r"ephemeralContainers\[0\]\.resources: Forbidden"
ADDED: dict[str, tuple[str, Raw, str]] = {
    "an ephemeral container that asks": (
        "ephemeralcontainers",
        {"ephemeralContainers": [DEBUG | {"resources": {"limits": {VGPU_RESOURCE: "1"}}}]},
        NO_RESOURCES,
    ),
    "an ephemeral container with the claim": (
        "ephemeralcontainers",
        {"ephemeralContainers": [DEBUG | {"resources": {"claims": [{"name": "gpu"}]}}]},
        NO_RESOURCES,
    ),
    "more of the resource": (
        "resize",
        {"containers": [{"name": "main", "resources": {"limits": {VGPU_RESOURCE: "2"}}}]},
        "only cpu and memory resources are mutable",
    ),
}


@pytest.mark.parametrize(("subresource", "spec", "said"), ADDED.values(), ids=ADDED.keys())
def test_a_pod_that_shares_gets_no_more_by_a_subresource_whoever_writes_it(
    subresource: str, spec: Raw, said: str, cluster: ApiServer, space: Namespace
) -> None:
    """Many clusters let users add ephemeral containers, which the roles here do not."""
    name = space.create(SHARE)["metadata"]["name"]
    which = ("pod", name, "-n", space.name, f"--subresource={subresource}", "--type=strategic")

    with pytest.raises(LabError, match=said):
        cluster.kubectl("patch", *which, "-p", json.dumps({"spec": spec}))


def test_a_claim_gets_no_access_past_the_counting(try_: Try) -> None:
    with pytest.raises(LabError, match="adminAccess"):
        try_("create", "-f", "-", stdin=claim("all", adminAccess=True))
