"""The size of a SharePod is bounded; ``test_objects_of_before.py`` has those of before a rule."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from fakes import manifests
from kubeshare.lab.control_plane.api_server import ApiServer, wait_until
from kubeshare.lab.errors import LabError

pytestmark = pytest.mark.apiserver

Raw = dict[str, Any]
Create = Callable[[Raw], str]

COPY = "kubectl.kubernetes.io/last-applied-configuration"
POLICIES = tuple(f"kubeshare-sharepod-{which}" for which in ("size", "annotations", "reserved"))
PROGRAMS = ("scheduler", "device-manager")


def container(name: str = "main", **fields: Any) -> Raw:
    return {"name": name, "image": "busybox", **fields}


def numbered(count: int, **fields: Any) -> list[Raw]:
    return [{"name": f"n{number}", **fields} for number in range(count)]


def owners(count: int, **fields: Any) -> list[Raw]:
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "uid": "0"} | fields
    return [{"name": f"n{number}"} | owner for number in range(count)]


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
    "too many finalizers": (
        sharepod(metadata={"finalizers": [f"example.org/n{number}" for number in range(33)]}),
        "metadata.finalizers: 33 are more than the 32",
    ),
    "many owners": (
        sharepod(metadata={"ownerReferences": owners(400)}),
        "metadata.ownerReferences: ",
    ),
    "an owner with a long name": (
        sharepod(metadata={"ownerReferences": owners(1, name="n" * 20_000)}),
        "metadata.ownerReferences: 200",
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
    "owners as controllers give them": sharepod(
        metadata={"ownerReferences": owners(16, controller=False, blockOwnerDeletion=True)}
    ),
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


@pytest.mark.parametrize(
    ("field", "value"),
    [("finalizers", [f"example.org/n{n}" for n in range(33)]), ("ownerReferences", owners(400))],
)
def test_refuses_them_in_an_update_too(
    field: str, value: object, create: Create, cluster: ApiServer, namespace: str
) -> None:
    create(sharepod())
    which = ("shp/probe", "-n", namespace, "--type=json", "--patch-file=/dev/stdin")
    patch = json.dumps([{"op": "add", "path": f"/metadata/{field}", "value": value}])

    with pytest.raises(LabError, match=rf"metadata\.{field}: .* that a SharePod may have"):
        cluster.kubectl("patch", *which, stdin=patch)


def as_program(name: str) -> tuple[str, str]:
    account = f"system:serviceaccount:kubeshare-system:kubeshare-{name}"
    return f"--as={account}", "--as-group=system:masters"


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_decision_about_one_at_the_limit_can_be_written(
    program: str, create: Create, cluster: ApiServer, namespace: str
) -> None:
    def annotate(name: str, *options: str) -> str:
        return cluster.kubectl("annotate", "shp/probe", "-n", namespace, f"{name}=x", *options)

    create(sharepod(metadata={"annotations": {f"a{number}": "" for number in range(128)}}))
    with pytest.raises(LabError, match="129 are more than the 128"):
        annotate("more")
    annotate("kubeshare/GPUID", *as_program(program))


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


@pytest.mark.parametrize("count", [2, 1000], ids=["large for its spec", "large for its owners"])
def test_the_garbage_collector_unblocks_the_owners_of_one_of_before(
    count: int, older: Callable[[Raw], None], cluster: ApiServer, namespace: str
) -> None:
    blocking = owners(count, blockOwnerDeletion=True)
    args = ["x" * (140_000 if count == 2 else 1)]
    older(sharepod(container(args=args), metadata={"ownerReferences": blocking}))
    collector = "system:serviceaccount:kube-system:generic-garbage-collector"
    by = (f"--as={collector}", "--as-group=system:masters")
    unblocked = [owner | {"blockOwnerDeletion": False} for owner in blocking]
    which = ("patch", "shp/probe", "-n", namespace, *by, "--type=merge", "--patch-file=/dev/stdin")

    for owned in (unblocked, unblocked[1:]):
        patch = json.dumps({"metadata": {"ownerReferences": owned}})
        cluster.kubectl(*which, stdin=patch)

    stored = json.loads(cluster.kubectl("get", "shp/probe", "-n", namespace, "-o", "json"))
    assert stored["metadata"]["ownerReferences"] == unblocked[1:]
