"""The extender binds pods and marks them, and writes nothing else into them."""

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
import yaml

from deploy.rights import every_right
from kubeshare.core.units import GI
from kubeshare.dialects.gpushare import GPU_MEMORY
from kubeshare.dialects.write_back import PlacedGpu, gpushare_placement
from kubeshare.install import manifests
from kubeshare.lab.control_plane.api_server import ApiServer, wait_until
from kubeshare.lab.errors import LabError

pytestmark = pytest.mark.apiserver

EXTENDER = "system:serviceaccount:kubeshare-system:kubeshare-extender"
STRANGER = "system:serviceaccount:elsewhere:kubeshare-extender"
NODE = "node-of-the-extender"
MARKS = {
    "labels": {"kubeshare.nthu/vgpu": "vgpu-1"},
    "annotations": {
        "kubeshare.nthu/gpuids": "vgpu-1",
        "kubeshare.nthu/node": NODE,
        "ALIYUN_COM_GPU_MEM_IDX": "0",
    },
}

Raw = dict[str, Any]
Bind = Callable[..., Raw]


@pytest.fixture(scope="module", autouse=True)
def _policy(cluster: ApiServer) -> Iterator[None]:
    """The policy of the extender, and all its rights: what refuses it is the policy alone."""
    name = "extender-may-everything"
    wanted = {"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}
    ours = [
        each
        for each in manifests.load(manifests.Options(extender=True))
        if each["kind"] in wanted and each["metadata"]["name"] == "kubeshare-extender"
    ]
    cluster.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(ours))
    with every_right(cluster, name, EXTENDER, STRANGER):
        yield


@pytest.fixture
def bind(cluster: ApiServer, namespace: str) -> Bind:
    """Create a pod, bind it as a user with this metadata of the Binding; returns the pod."""

    def _bind(user: str = EXTENDER, **metadata: Any) -> Raw:
        made = make_pod(cluster, namespace)["metadata"]
        named = {"name": made["name"], "namespace": namespace, "uid": made["uid"]}
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": named | metadata,
            "target": {"apiVersion": "v1", "kind": "Node", "name": NODE},
        }
        path = f"/api/v1/namespaces/{namespace}/pods/{made['name']}/binding"
        arguments = ("create", "--raw", path, f"--as={user}", "-f", "-")
        cluster.kubectl(*arguments, stdin=json.dumps(binding))
        found: Raw = json.loads(
            cluster.kubectl("get", "pod", made["name"], "-n", namespace, "-o", "json")
        )
        return found

    return _bind


def make_pod(cluster: ApiServer, namespace: str) -> Raw:
    """A pod that is not bound."""
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"generateName": "p-", "namespace": namespace, "labels": {"a": "b"}},
        "spec": {"containers": [{"name": "main", "image": "x"}]},
    }
    made: Raw = json.loads(
        cluster.kubectl("create", "-f", "-", "-o", "json", stdin=yaml.safe_dump(pod))
    )
    return made


def patch_status(cluster: ApiServer, pod: Raw, patch: Raw) -> Raw:
    """The pod after a merge patch of its status by the extender."""
    metadata = pod["metadata"]
    target = (metadata["name"], "-n", metadata["namespace"], "--subresource=status")
    options = (f"--as={EXTENDER}", "--type=merge", "-o", "json", "-p", json.dumps(patch))
    patched: Raw = json.loads(cluster.kubectl("patch", "pod", *target, *options))
    return patched


def is_refused(bind: Bind, metadata: Raw) -> bool:
    """Whether the policy refuses a Binding with this metadata; it is in force a little late."""
    try:
        bind(**metadata)
    except LabError as error:
        return "marks a pod with its GPU and writes nothing else" in str(error)
    return False


def test_a_binding_sets_the_node_and_the_marks_in_one_write(bind: Bind) -> None:
    pod = bind(**MARKS)
    assert pod["spec"]["nodeName"] == NODE
    assert pod["metadata"]["annotations"].items() >= MARKS["annotations"].items()
    assert pod["metadata"]["labels"].items() >= {"a": "b", **MARKS["labels"]}.items()


def test_a_binding_of_another_pod_of_the_name_is_refused(bind: Bind) -> None:
    with pytest.raises(LabError, match="Precondition failed: UID"):
        bind(uid="00000000-0000-0000-0000-000000000000", **MARKS)


def test_a_binding_for_an_earlier_version_of_the_pod_is_refused(bind: Bind) -> None:
    with pytest.raises(LabError, match="Precondition failed: ResourceVersion"):
        bind(resourceVersion="1", **MARKS)


def test_the_version_of_a_pod_changes_when_its_bindings_are_voided(
    cluster: ApiServer, namespace: str
) -> None:
    pod = make_pod(cluster, namespace)
    version = pod["metadata"]["resourceVersion"]
    voided = {"kubeshare.nthu/voided-binding": version}
    patch = {"metadata": {"resourceVersion": version, "annotations": voided}}
    patched = patch_status(cluster, pod, patch)
    assert patched["metadata"]["annotations"] == voided
    assert patched["metadata"]["resourceVersion"] != version
    assert patched["spec"] == pod["spec"]
    with pytest.raises(LabError, match="the object has been modified"):
        patch_status(cluster, pod, patch)


@pytest.mark.parametrize(
    "patch",
    [
        {"status": {"phase": "Failed"}},
        {"metadata": {"labels": {"team": "mine"}}},
        {"metadata": {"annotations": {"kubeshare.nthu/request": "1"}}},
    ],
)
def test_other_changes_of_a_status_are_refused(
    cluster: ApiServer, namespace: str, patch: Raw
) -> None:
    def refused() -> bool:
        try:
            patch_status(cluster, make_pod(cluster, namespace), patch)
        except LabError as error:
            return "changes nothing of a pod but the annotation" in str(error)
        return False

    wait_until(refused, "the policy of the extender")


@pytest.mark.parametrize(
    "metadata",
    [
        {"labels": {"kubeshare.nthu/role": "placeholder"}},
        {"labels": {"team": "mine"}},
        {"annotations": {"kubeshare.nthu/request": "1"}},
    ],
)
def test_other_marks_are_refused(bind: Bind, metadata: Raw) -> None:
    wait_until(lambda: is_refused(bind, metadata), "the policy of the extender")


@pytest.mark.parametrize("gpus", [1, 2])
def test_all_that_it_writes_of_a_pod_of_gpushare_is_accepted(bind: Bind, gpus: int) -> None:
    wait_until(lambda: is_refused(bind, {"labels": {"team": "mine"}}), "the policy of the extender")
    placed = [PlacedGpu("GPU-x", "V100", GI, index=index, total_bytes=GI) for index in range(gpus)]
    limits = {"limits": {GPU_MEMORY: str(gpus)}}
    spec = {"containers": [{"name": "main", "resources": limits}]}
    written = gpushare_placement(spec, placed, GI, datetime.now(UTC))
    pod = bind(labels=MARKS["labels"], annotations=MARKS["annotations"] | written)
    assert pod["metadata"]["annotations"].items() >= written.items()


def test_nobody_else_may_mark_a_pod(bind: Bind) -> None:
    with pytest.raises(LabError, match=r"kubeshare\.nthu/vgpu is written by KubeShare alone"):
        bind(STRANGER, **MARKS)
