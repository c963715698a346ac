"""The device manager deletes pods of SharePods, and unbound ones that share; it touches others."""

import json
from collections.abc import Iterator

import pytest

from deploy.pod_namespace import sharepod_owner
from deploy.rights import every_right
from fakes import manifests
from kubeshare.lab.control_plane.api_server import ApiServer
from kubeshare.lab.errors import LabError

pytestmark = pytest.mark.apiserver

DEVICES = "system:serviceaccount:kubeshare-system:kubeshare-device-manager"


@pytest.fixture(autouse=True)
def may_do_everything(cluster: ApiServer) -> Iterator[None]:
    """Give it every right, so that what refuses it is the policy alone."""
    name = "device-manager-may-everything"
    with every_right(cluster, name, DEVICES):
        yield


def create_pod(
    cluster: ApiServer,
    name: str,
    node: str = "",
    *,
    shares: bool = True,
    owner: dict[str, object] | None = None,
) -> None:
    limits = {"kubeshare.nthu/vgpu": "1"} if shares else {}
    container = {"name": "main", "image": "train:1", "resources": {"limits": limits}}
    spec = {"containers": [container]} | ({"nodeName": node} if node else {})
    metadata = {"name": name, "ownerReferences": [sharepod_owner(name)]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    # Of others' pods, only those that say how much they need may ask for the resource.
    cluster.kubectl("create", "-f", "-", f"--as={DEVICES}", stdin=json.dumps(pod))
    owners = json.dumps({"metadata": {"ownerReferences": [owner] if owner else None}})
    if owner != sharepod_owner(name):
        cluster.kubectl("patch", "pod", name, "--type=merge", "-p", owners)


def delete_as_device_manager(cluster: ApiServer, name: str) -> None:
    cluster.kubectl("delete", "pod", name, "--wait=false", f"--as={DEVICES}")


def test_a_pod_that_shares_and_is_not_bound_may_be_deleted(cluster: ApiServer) -> None:
    create_pod(cluster, "unbound")
    delete_as_device_manager(cluster, "unbound")


@pytest.mark.parametrize("shares", [True, False])
def test_a_pod_of_a_sharepod_may_be_deleted_when_it_is_bound(
    cluster: ApiServer, shares: bool
) -> None:
    name = f"of-a-sharepod-{shares}".lower()
    create_pod(cluster, name, "node-1", shares=shares, owner=sharepod_owner(name))
    delete_as_device_manager(cluster, name)
    cluster.kubectl("delete", "pod", name, "--force", "--grace-period=0")


def test_a_pod_of_another_owner_may_not(cluster: ApiServer) -> None:
    owner = {"apiVersion": "example.com/v1", "kind": "SharePod", "name": "a", "uid": "1"}
    create_pod(cluster, "of-another", "node-1", owner=owner | {"controller": True})
    with pytest.raises(LabError, match="of SharePods, those that share"):
        delete_as_device_manager(cluster, "of-another")
    cluster.kubectl("delete", "pod", "of-another", "--force", "--grace-period=0")


@pytest.mark.parametrize(
    ("name", "node", "shares"),
    [("bound", "node-1", True), ("native", "", False), ("bound-native", "node-1", False)],
)
def test_no_other_pod_may_be_deleted(
    cluster: ApiServer, name: str, node: str, shares: bool
) -> None:
    create_pod(cluster, name, node, shares=shares)
    with pytest.raises(LabError, match="as long as they are not bound, and no other"):
        delete_as_device_manager(cluster, name)
    cluster.kubectl("delete", "pod", name, "--force", "--grace-period=0")


def change_as_device_manager(cluster: ApiServer, name: str, **metadata: object) -> None:
    patch = json.dumps({"metadata": metadata})
    cluster.kubectl("patch", "pod", name, "--type=merge", "-p", patch, f"--as={DEVICES}")


def test_a_pod_that_shares_may_be_touched_and_changed_in_nothing_else(cluster: ApiServer) -> None:
    create_pod(cluster, "slow", "node-1")
    touched = {"kubeshare.nthu/nudged": "2026-01-01T00:00:00Z"}
    change_as_device_manager(cluster, "slow", annotations=touched)
    change_as_device_manager(
        cluster, "slow", annotations={"kubeshare.nthu/voided-binding": "12345"}
    )
    wrong: list[dict[str, object]] = [
        {"annotations": {"other": "x"}},
        {"labels": {"other": "x"}},
        {"annotations": touched | {"other": "x"}},
    ]
    for change in wrong:
        with pytest.raises(LabError, match="changes nothing of a pod but the annotation"):
            change_as_device_manager(cluster, "slow", **change)
    cluster.kubectl("delete", "pod", "slow", "--force", "--grace-period=0")


@pytest.mark.parametrize(
    ("assigned", "index"),
    [
        ("ALIYUN_COM_GPU_MEM_ASSIGNED", "ALIYUN_COM_GPU_MEM_IDX"),
        ("tencent.com/gpu-assigned", "tencent.com/predicate-gpu-idx-0"),
    ],
)
def test_the_annotations_of_a_family_may_be_kept_true(
    cluster: ApiServer, assigned: str, index: str
) -> None:
    create_pod(cluster, "packed", "node-1")
    written = {index: "0", assigned: "false"}
    cluster.kubectl(
        "annotate", "pod", "packed", *(f"{key}={value}" for key, value in written.items())
    )
    change_as_device_manager(cluster, "packed", annotations={assigned: "true"})
    change_as_device_manager(cluster, "packed", annotations=dict.fromkeys(written))
    annotations = cluster.kubectl("get", "pod", "packed", "-o", "jsonpath={.metadata.annotations}")
    assert index not in annotations
    cluster.kubectl("delete", "pod", "packed", "--force", "--grace-period=0")


NAMES: dict[str, object] = {
    "annotations": {
        "kubeshare.nthu/gpuids": "vgpu-1",
        "kubeshare.nthu/node": "node-1",
        "tencent.com/predicate-gpu-idx-0": "2",
        "tencent.com/predicate-node": "node-1",
        "tencent.com/predicate-time": "1",
        "tencent.com/gpu-assigned": "false",
    },
    "labels": {"kubeshare.nthu/vgpu": "vgpu-1"},
}


def test_the_gpus_of_a_bound_pod_may_be_named(cluster: ApiServer) -> None:
    create_pod(cluster, "placed", "node-1")
    change_as_device_manager(cluster, "placed", **NAMES)
    wrong: list[dict[str, object]] = [
        {"annotations": {"ALIYUN_COM_GPU_MEM_IDX": "1"}},
        {"annotations": {"kubeshare.nthu/request": "1"}},
        {"annotations": {"kubeshare.nthu/gpuids": None}},
        {"labels": {"kubeshare.nthu/vgpu": None}},
    ]
    for change in wrong:
        with pytest.raises(LabError, match="changes nothing of a pod but the annotation"):
            change_as_device_manager(cluster, "placed", **change)
    cluster.kubectl("delete", "pod", "placed", "--force", "--grace-period=0")


@pytest.mark.parametrize("field", NAMES)
def test_the_gpus_of_a_pod_that_is_not_bound_are_named_by_the_scheduler(
    cluster: ApiServer, field: str
) -> None:
    create_pod(cluster, "waiting")
    with pytest.raises(LabError, match="changes nothing of a pod but the annotation"):
        change_as_device_manager(cluster, "waiting", **{field: NAMES[field]})
    cluster.kubectl("delete", "pod", "waiting", "--force", "--grace-period=0")


def test_a_pod_that_does_not_share_is_not_touched(cluster: ApiServer) -> None:
    create_pod(cluster, "stranger", "node-1", shares=False)
    with pytest.raises(LabError, match="one that shares a GPU"):
        change_as_device_manager(
            cluster, "stranger", annotations={"kubeshare.nthu/nudged": "2026-01-01T00:00:00Z"}
        )
    cluster.kubectl("delete", "pod", "stranger", "--force", "--grace-period=0")


NOT_OF_A_SHAREPOD: dict[str, dict[str, object]] = {
    "no owner": {},
    "the SharePod of another name": {"ownerReferences": [sharepod_owner("other")]},
    "an owner that is no controller": {
        "ownerReferences": [sharepod_owner("made") | {"controller": False}]
    },
    "another kind": {"ownerReferences": [sharepod_owner("made") | {"kind": "ReplicaSet"}]},
    "a namespace of Kubernetes": {
        "namespace": "kube-system",
        "ownerReferences": [sharepod_owner("made")],
    },
}


@pytest.mark.parametrize("metadata", NOT_OF_A_SHAREPOD.values(), ids=NOT_OF_A_SHAREPOD.keys())
def test_it_creates_pods_of_sharepods_only(cluster: ApiServer, metadata: dict[str, object]) -> None:
    pod = manifests.pod("made", metadata=metadata)
    where = ("-n", str(metadata.get("namespace", "default")))

    with pytest.raises(LabError, match="each with the name of its SharePod"):
        cluster.kubectl("create", *where, "-f", "-", f"--as={DEVICES}", stdin=json.dumps(pod))
