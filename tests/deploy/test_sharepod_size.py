"""The size of a SharePod is bounded, and one of before a rule can still be deleted."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from fakes import manifests
from kubeshare.api.finalizer import FINALIZER
from kubeshare.lab.control_plane.api_server import ApiServer, wait_until
from kubeshare.lab.errors import LabError

pytestmark = pytest.mark.apiserver

Raw = dict[str, Any]
Create = Callable[[Raw], str]

COPY = "kubectl.kubernetes.io/last-applied-configuration"
POLICIES = ("kubeshare-sharepod-size", "kubeshare-sharepod-annotations")


def container(name: str = "main", **fields: Any) -> Raw:
    return {"name": name, "image": "busybox", **fields}


def numbered(count: int, **fields: Any) -> list[Raw]:
    return [{"name": f"n{number}", **fields} for number in range(count)]


def sharepod(*containers: Raw, metadata: Raw | None = None, **spec: Any) -> Raw:
    made = manifests.sharepod("probe", {"request": "0.1"}, metadata=metadata or {})
    made["spec"] |= {"containers": list(containers) or [container()]} | spec
    return made


# name -> (object, what the message says)
REFUSED = {
    "too many containers": (
        sharepod(initContainers=numbered(64, image="busybox")),
        "spec.containers and spec.initContainers: 65 are more than the 64",
    ),
    "too many variables": (
        sharepod(container(env=numbered(300)), container("b", env=numbered(300))),
        "env of the containers: 600 are more than the 512",
    ),
    "too many arguments": (
        sharepod(container(args=["a"] * 512, command=["b"])),
        "command and args of the containers: 513 are more than the 512",
    ),
    "too many volumes": (
        sharepod(volumes=numbered(257, emptyDir={})),
        "spec.volumes: 257 are more than the 256",
    ),
    "too many annotations": (
        sharepod(metadata={"annotations": {f"a{number}": "" for number in range(129)}}),
        "metadata.annotations: 129 are more than the 128",
    ),
    "too many labels": (
        sharepod(metadata={"labels": {f"a{number}": "" for number in range(129)}}),
        "metadata.labels: 129 are more than the 128",
    ),
    "large annotations": (
        sharepod(metadata={"annotations": {"a": "x" * 70_000}}),
        "metadata.labels and metadata.annotations: 70001 characters are more than the 32768",
    ),
    "a large affinity": (
        sharepod(affinity={"nodeAffinity": {"a": ["x" * 40_000]}}),
        "and the resources of the containers: 400",
    ),
    "large resources": (
        sharepod(container(resources={"limits": {f"{n}.example.org/a": "1" for n in range(2000)}})),
        "and the resources of the containers: ",
    ),
    "a large argument": (sharepod(container(args=["x" * 140_000])), "spec: 140"),
    "much in an unknown field": (sharepod(unknown={"a": [["x" * 1_000_000]]}), "spec: 1000"),
}

ACCEPTED = {
    "what a large program takes": sharepod(
        container(env=numbered(512, value="x" * 64), args=["x" * 60_000])
    ),
    "kubectl's copy of it": sharepod(metadata={"annotations": {COPY: "x" * 130_000}}),
    "lists that are no lists": sharepod(
        container(env=None, args=None), volumes=None, initContainers=None
    ),
}


@pytest.mark.parametrize(("manifest", "said"), REFUSED.values(), ids=REFUSED.keys())
def test_refuses_what_is_too_large(manifest: Raw, said: str, create: Create) -> None:
    with pytest.raises(LabError) as refused:
        create(manifest)

    assert said in str(refused.value)
    assert "that a SharePod may have" in str(refused.value)


@pytest.mark.parametrize("manifest", ACCEPTED.values(), ids=ACCEPTED.keys())
def test_accepts(manifest: Raw, create: Create) -> None:
    assert "created" in create(manifest)


@pytest.mark.parametrize("program", ["scheduler", "device-manager"])
def test_a_decision_about_one_at_the_limit_can_be_written(
    program: str, create: Create, cluster: ApiServer, namespace: str
) -> None:
    def annotate(name: str, *options: str) -> str:
        return cluster.kubectl("annotate", "shp/probe", "-n", namespace, f"{name}=x", *options)

    create(sharepod(metadata={"annotations": {f"a{number}": "" for number in range(128)}}))
    with pytest.raises(LabError, match="129 are more than the 128"):
        annotate("more")
    account = f"system:serviceaccount:kubeshare-system:kubeshare-{program}"
    annotate("kubeshare/GPUID", f"--as={account}", "--as-group=system:masters")


@pytest.fixture
def older(cluster: ApiServer, namespace: str) -> Iterator[Callable[[Raw], None]]:
    """Create objects in the test's namespace before its rules are in force."""

    def exempt(names: list[str]) -> None:
        outside = [{"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": names}]
        selector = {
            "spec": {"matchResources": {"namespaceSelector": {"matchExpressions": outside}}}
        }
        for policy in POLICIES:
            what = ("validatingadmissionpolicybinding", policy, "--type=merge")
            cluster.kubectl("patch", *what, "-p", json.dumps(selector))

    def passes(manifest: Raw, *options: str) -> bool:
        try:
            cluster.kubectl(
                *("create", "-n", namespace, "-f", "-", *options), stdin=json.dumps(manifest)
            )
        except LabError:
            return False
        return True

    def create(manifest: Raw) -> None:
        exempt([namespace])
        wait_until(lambda: passes(manifest), "the older rules")
        exempt(["none"])
        again = {**manifest, "metadata": {**manifest["metadata"], "name": "again"}}
        wait_until(lambda: not passes(again, "--dry-run=server"), "the newer rules")

    yield create
    exempt(["none"])


OF_BEFORE = {
    "too large": sharepod(container(args=["x" * 140_000]), metadata={"finalizers": [FINALIZER]}),
    "half of the annotations": sharepod(
        metadata={"finalizers": [FINALIZER], "annotations": {"kubeshare/gpu_request": "0.1"}}
    ),
}


@pytest.mark.parametrize("manifest", OF_BEFORE.values(), ids=OF_BEFORE.keys())
def test_one_of_before_a_rule_is_deleted_and_not_changed(
    manifest: Raw, older: Callable[[Raw], None], cluster: ApiServer, namespace: str
) -> None:
    older(manifest)
    which = ("shp/probe", "-n", namespace)
    change = {"spec": {"terminationGracePeriodSeconds": 1}}

    with pytest.raises(LabError, match="denied"):
        cluster.kubectl("patch", *which, "--type=merge", "-p", json.dumps(change))
    cluster.kubectl("delete", *which, "--wait=false")
    remove = [
        {"op": "test", "path": "/metadata/finalizers/0", "value": FINALIZER},
        {"op": "remove", "path": "/metadata/finalizers/0"},
    ]
    cluster.kubectl("patch", *which, "--type=json", "-p", json.dumps(remove))

    assert cluster.kubectl("get", "shp", "-n", namespace, "-o", "name") == ""
