"""Where only some namespaces may use shares, the others get none, whichever way they ask."""

import json
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
import yaml

from deploy.pod_namespace import DEVICES, PUBLISHED, SHARE, Namespace, cores, gates, limited
from fakes import manifests
from kubeshare.install import manifests as installed
from kubeshare.lab.control_plane.api_server import ApiServer, wait_until
from kubeshare.lab.errors import LabError

pytestmark = pytest.mark.apiserver

Raw = dict[str, Any]

ALLOWED = "kubeshare.nthu/shares=allowed"
POLICY = "kubeshare-only-namespaces"
RESOURCE: Raw = {"limits": {"kubeshare.nthu/vgpu": 1}}
ASKING: dict[str, Raw] = {
    "annotations": {"annotations": SHARE},
    "published annotations": {"annotations": PUBLISHED},
    "labels of the second version": {
        "labels": {"sharedgpu/gpu_limit": "1", "sharedgpu/gpu_request": "0.5"}
    },
    "gpushare": {"containers": [limited("main", mem="2")]},
    "vcuda": {"containers": [cores("main", "20", "8")]},
    # The other policies have nothing to do with such a pod.
    "the resource, and the mark of a static pod": {
        "annotations": SHARE | {"kubernetes.io/config.mirror": "1"},
        "containers": [{"name": "main", "image": "x", "resources": RESOURCE}],
        "nodeName": "node-1",
    },
}
OF_OTHERS: dict[str, Raw] = {
    "nothing": {},
    "a whole GPU": {
        "containers": [
            {"name": "main", "image": "x", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
        ]
    },
}


@pytest.fixture(scope="module")
def barred(cluster: ApiServer) -> Iterator[Namespace]:
    """A namespace that may use no shares; those of other tests are left alone."""
    name = f"test-{uuid4().hex[:8]}"
    cluster.kubectl("create", "namespace", name)
    cluster.kubectl(
        *("create", "rolebinding", "all", "--clusterrole=cluster-admin", f"--user={DEVICES}"),
        *("-n", name),
    )
    policy = [
        one
        for one in installed.load(installed.Options(only_namespaces=()))
        if one["metadata"]["name"] == POLICY
    ]
    here = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": [name]}
    selector = policy[1]["spec"]["matchResources"]["namespaceSelector"]
    selector["matchExpressions"].append(here)
    text = yaml.safe_dump_all(policy)
    cluster.kubectl("apply", "-f", "-", stdin=text)
    wait_until(lambda: bool(refusal(cluster, name)), "the policy")
    yield Namespace(cluster, name)
    cluster.kubectl("delete", "-f", "-", stdin=text)
    cluster.kubectl("delete", "shp,pods", "--all", "-n", name, "--force", "--grace-period=0")


def refusal(cluster: ApiServer, namespace: str) -> str:
    """Why a SharePod would be refused; ``""`` if it would not."""
    probe = json.dumps(manifests.sharepod("probe", {"request": "0.1"}))
    try:
        cluster.kubectl("create", "-n", namespace, "--dry-run=server", "-f", "-", stdin=probe)
    except LabError as error:
        return str(error)
    return ""


def test_a_sharepod_is_refused_with_what_would_allow_it(
    cluster: ApiServer, barred: Namespace
) -> None:
    said = refusal(cluster, barred.name)
    assert f"namespace {barred.name} may not use shares of GPUs" in said
    assert f"kubectl label namespace {barred.name} {ALLOWED}" in said


@pytest.mark.parametrize("asking", ASKING.values(), ids=ASKING.keys())
def test_a_pod_that_asks_for_a_share_is_refused(asking: Raw, barred: Namespace) -> None:
    with pytest.raises(LabError, match=f"Policy '{POLICY}' with .* may not use shares"):
        barred.create(**asking)


@pytest.mark.parametrize("spec", OF_OTHERS.values(), ids=OF_OTHERS.keys())
def test_other_pods_are_created(spec: Raw, barred: Namespace) -> None:
    assert gates(barred.create(**spec)) == []


def test_a_sharepod_that_was_there_gets_its_pod(barred: Namespace) -> None:
    main = {"name": "main", "image": "x", "resources": RESOURCE}
    assert barred.create(by=DEVICES, containers=[main])["metadata"]["name"]


def test_a_label_allows_it(cluster: ApiServer, barred: Namespace) -> None:
    cluster.kubectl("label", "namespace", barred.name, ALLOWED)
    wait_until(lambda: not refusal(cluster, barred.name), "the label")
    assert gates(barred.create(SHARE)) == ["kubeshare.nthu/gpu"]
    cluster.kubectl("label", "namespace", barred.name, "kubeshare.nthu/shares-")
    wait_until(lambda: bool(refusal(cluster, barred.name)), "the label to be gone")
