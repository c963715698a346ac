"""Objects that break a rule of today's policies, and were there before it, can still end.

All of them are created while no policy is in force. Then the policies are installed, as an upgrade
does: what KubeShare, the kubelets and users do at the end of an object must pass.
"""

import json
from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import pytest
import yaml

from deploy.conftest import install_policies
from deploy.pod_namespace import DEVICES, SCHEDULER, limited, sharepod_owner
from fakes import manifests
from kubeshare.api.finalizer import FINALIZER
from kubeshare.api.types.constants import DRA_DRIVER, GATE, VGPU_RESOURCE
from kubeshare.install import manifests as installed
from kubeshare.lab.control_plane.api_server import ApiServer, wait_until
from kubeshare.lab.errors import LabError

pytestmark = pytest.mark.apiserver

Raw = dict[str, Any]

SPACE = "objects-of-before"
KEPT = "example.org/kept"
"""A finalizer of somebody else."""
RULES = "validatingadmissionpolicybinding,mutatingadmissionpolicybinding"


class OfBefore(NamedTuple):
    """An object, and the policy that refuses it today."""

    policy: str
    manifest: Raw


def sharepod(
    policy: str, gpu: Raw | None = None, metadata: Raw | None = None, **spec: Any
) -> OfBefore:
    """One that breaks a rule of ``kubeshare-sharepod-POLICY``."""
    known = {"finalizers": [FINALIZER]} | (metadata or {})
    made = manifests.sharepod("x", {"request": "0.1"} if gpu is None else gpu, metadata=known)
    made["spec"] |= {"containers": [{"name": "main", "image": "busybox"}]} | spec
    return OfBefore(f"kubeshare-sharepod-{policy}", made)


def with_annotation(policy: str, key: str, value: str) -> OfBefore:
    return sharepod(policy, metadata={"annotations": {key: value}})


def annotated(gpu: Raw | None = None, **annotations: str) -> OfBefore:
    """A SharePod with annotations of the published version."""
    named = {f"kubeshare/{key}": value for key, value in annotations.items()}
    return sharepod("annotations", gpu, {"annotations": named})


def published(request: str = "0.1", limit: str = "1", memory: str = "1Gi") -> dict[str, str]:
    return {"gpu_request": request, "gpu_limit": limit, "gpu_mem": memory}


def owners(count: int) -> list[Raw]:
    owner = {"apiVersion": "v1", "kind": "ConfigMap"}
    return [owner | {"name": f"n{number}", "uid": str(number)} for number in range(count)]


def asking(**resources: str) -> list[Raw]:
    return [{"name": "main", "image": "x", "resources": {"limits": resources}}]


SHAREPODS = {
    "large": sharepod("size", containers=[{"name": "main", "image": "x", "args": ["x" * 140_000]}]),
    "owners-and-finalizers": sharepod(
        "size",
        metadata={
            "finalizers": [FINALIZER, *(f"example.org/n{number}" for number in range(64))],
            "ownerReferences": owners(1000),
        },
    ),
    "labels": sharepod("size", metadata={"labels": {f"a{n}": "" for n in range(129)}}),
    "half-of-the-annotations": annotated({}, gpu_request="0.1"),
    "request-above-1": annotated({}, **published(request="1.5", limit="1.5")),
    "request-above-limit": annotated({}, **published(request="0.5", limit="0.2")),
    "memory-is-a-word": annotated({}, **published(memory="much")),
    "two-requests": annotated({"request": "0.2"}, **published()),
    "two-affinities": annotated({"request": "0.1", "affinity": "a"}, sched_affinity="b"),
    "cpu-cores": sharepod(
        "annotations", metadata={"annotations": {"kubeshare.nthu/cpuCores": "many"}}
    ),
    "gang-near": sharepod(
        "annotations", metadata={"annotations": {"kubeshare.nthu/gang-near": "rack"}}
    ),
    "attempt": sharepod("reserved", {"request": "0.1", "attempt": 3}),
    "id-given": sharepod("reserved", {"request": "0.1", "idGiven": True}),
    "gate": sharepod("reserved", schedulingGates=[{"name": GATE}]),
    "resource-without-a-share": sharepod("reserved", {}, containers=asking(**{VGPU_RESOURCE: "1"})),
    "static-pod": sharepod(
        "reserved", metadata={"annotations": {"kubernetes.io/config.mirror": "a"}}
    ),
}
"""By name."""

CHANGED = ("attempt", "id-given")
"""Those that may be changed: what the scheduler alone writes may stay as it is."""


def pod(policy: str, metadata: Raw | None = None, **spec: Any) -> OfBefore:
    known = {"finalizers": [KEPT]} | (metadata or {})
    body = {"containers": [{"name": "main", "image": "x"}], **spec}
    made = {"apiVersion": "v1", "kind": "Pod", "metadata": known, "spec": body}
    return OfBefore(f"kubeshare-{policy}", made)


def plain(**annotations: str) -> OfBefore:
    named = {f"kubeshare.nthu/{key}": value for key, value in annotations.items()}
    return pod("plain-pods", {"annotations": named})


PODS = {
    "request": plain(request="much"),
    "count": plain(request="0.5", count="few"),
    "memory": plain(request="0.5", memory="-1"),
    "several-shares": plain(**{"share.a": "request"}),
    "container": plain(request="0.5", containers="nobody"),
    "cores": plain(request="0.5", cpuCores="many"),
    "near": plain(request="0.5", **{"gang-near": "rack"}),
    "of-kubeshare-2": pod("plain-pods", {"labels": {"sharedgpu/gpu_request": "much"}}),
    "on-a-node": pod(
        "plain-pods", {"annotations": {"kubeshare.nthu/request": "0.5"}}, nodeName="nowhere"
    ),
    "gpushare": pod(
        "plain-pods",
        {"labels": {"aliyun.com/gpu-count": "many"}},
        containers=[limited("main", mem="2")],
    ),
    "vcuda": pod(
        "plain-pods",
        {"annotations": {"tencent.com/vcuda-core-limit": "many"}},
        containers=asking(**{"tencent.com/vcuda-core": "10", "tencent.com/vcuda-memory": "4"}),
    ),
    "gate": pod("pods-without-a-share", schedulingGates=[{"name": GATE}]),
    "resource": pod("pods-without-a-share", containers=asking(**{VGPU_RESOURCE: "1"})),
    "role": pod("guard-pods", {"labels": {"kubeshare.nthu/role": "placeholder"}}),
    "owner": pod("guard-pods", {"ownerReferences": [sharepod_owner("somebody")]}),
    "claim": pod(
        "guard-claim-names",
        resourceClaims=[{"name": "a", "resourceClaimName": "a-extended-resources-abcde"}],
    ),
}
"""By name."""

_DEVICES = {"requests": [{"name": "gpu", "exactly": {"deviceClassName": DRA_DRIVER}}]}
CLAIM = OfBefore(
    "kubeshare-guard-claims",
    {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"finalizers": [KEPT]},
        "spec": {"devices": _DEVICES},
    },
)
STATIC = OfBefore(
    "kubeshare-guard-vgpus",
    manifests.vgpu("x", "nowhere", pool="static", uuid="GPU-00000000-0000-0000-0000-000000000001"),
)
STATIC.manifest["metadata"]["finalizers"] = [KEPT]

POOLS = (SHAREPODS, PODS, {"claim": CLAIM}, {"vgpu-of-before": STATIC})
ABOUT_PROGRAMS = {"kubeshare-device-manager", "kubeshare-node-agent"}
"""Policies for what KubeShare's own programs write, whoever has made the object."""


def named(of_before: OfBefore, name: str) -> Raw:
    """The object of a pool under a name, in the namespace if its kind has one."""
    manifest = of_before.manifest
    inside = {} if manifest["kind"] == "VGPU" else {"namespace": SPACE}
    found: Raw = manifest | {"metadata": manifest["metadata"] | {"name": name, **inside}}
    found.pop("status", None)
    return found


@pytest.fixture(scope="module", autouse=True)
def _upgraded(cluster: ApiServer) -> Iterator[None]:
    """All objects are there, then the policies of today."""
    objects = [named(each, name) for pool in POOLS for name, each in pool.items()]
    cluster.kubectl("create", "namespace", SPACE)
    cluster.kubectl("create", "serviceaccount", "default", "-n", SPACE)
    try:
        cluster.kubectl("delete", RULES, "-l", "app.kubernetes.io/part-of=kubeshare")
        wait_until(partial(_are_created, cluster, objects), "the policies to be gone")
    finally:
        install_policies(cluster)
    yield
    # Another worker may have some of these tests, so not all objects have ended by now.
    try:
        cluster.kubectl("delete", RULES, "-l", "app.kubernetes.io/part-of=kubeshare")
        wait_until(partial(_are_removed, cluster), "the objects to be gone")
    finally:
        install_policies(cluster)
    cluster.kubectl("delete", "namespace", SPACE, "--wait=false")


def _are_created(cluster: ApiServer, objects: list[Raw]) -> bool:
    """Create those that are missing; whether there are all now."""
    try:
        cluster.kubectl("apply", "--server-side", "-f", "-", stdin=yaml.safe_dump_all(objects))
    except LabError:
        return False
    return True


def _are_removed(cluster: ApiServer) -> bool:
    """Remove what is left; whether nothing is."""
    free = '{"metadata": {"finalizers": null}}'
    inside = ("-n", SPACE)
    try:
        for kind in ("sharepods", "pods", "resourceclaims"):
            for name in cluster.kubectl("get", kind, *inside, "-o", "name").split():
                cluster.kubectl("patch", name, *inside, "--type=merge", "-p", free)
                now = ("--wait=false", "--grace-period=0", "--force")
                cluster.kubectl("delete", name, *inside, *now)
        if "vgpu-of-before" in cluster.kubectl("get", "vgpus", "-o", "name"):
            cluster.kubectl("patch", "vgpu/vgpu-of-before", "--type=merge", "-p", free)
            cluster.kubectl("delete", "vgpu/vgpu-of-before", "--wait=false")
    except LabError:
        return False
    return True


def expect_refused_now(cluster: ApiServer, of_before: OfBefore) -> None:
    """Another such object is refused by the policy."""
    another = json.dumps(named(of_before, "another"))
    with pytest.raises(LabError) as refused:
        cluster.kubectl("create", "--dry-run=server", "-f", "-", stdin=another)
    assert f"'{of_before.policy}'" in str(refused.value)


def remove_finalizer(cluster: ApiServer, which: tuple[str, ...], first: str, *options: str) -> None:
    removal = [
        {"op": "test", "path": "/metadata/finalizers/0", "value": first},
        {"op": "remove", "path": "/metadata/finalizers/0"},
    ]
    cluster.kubectl("patch", *which, "--type=json", "-p", json.dumps(removal), *options)


def expect_gone(cluster: ApiServer, which: tuple[str, ...]) -> None:
    with pytest.raises(LabError, match="not found"):
        cluster.kubectl("get", *which)


def by(account: str) -> tuple[str, str]:
    return f"--as={account}", "--as-group=system:masters"


def test_every_policy_that_an_object_of_before_may_break_has_one_here() -> None:
    kinds = {"sharepods", "pods", "resourceclaims", "vgpus"}
    policies = {
        policy["metadata"]["name"]
        for policy in installed.load(installed.Options())
        if policy["kind"] == "ValidatingAdmissionPolicy"
        for rule in policy["spec"]["matchConstraints"]["resourceRules"]
        if kinds & {*rule["resources"]} and {"CREATE", "UPDATE"} <= {*rule["operations"]}
    }

    assert policies > ABOUT_PROGRAMS
    assert policies - ABOUT_PROGRAMS <= {each.policy for pool in POOLS for each in pool.values()}


@pytest.mark.parametrize("name", SHAREPODS)
def test_a_sharepod_is_reported_about_and_deleted_and_not_changed(
    name: str, cluster: ApiServer
) -> None:
    expect_refused_now(cluster, SHAREPODS[name])
    which = (f"shp/{name}", "-n", SPACE)
    change = {"spec": {"terminationGracePeriodSeconds": 1}}

    if name not in CHANGED:
        with pytest.raises(LabError, match="denied"):
            cluster.kubectl("patch", *which, "--type=merge", "-p", json.dumps(change))
    for program in (SCHEDULER, DEVICES):
        status = ("--subresource=status", "--type=merge", "-p", '{"status": {"message": "a"}}')
        cluster.kubectl("patch", *which, *status, *by(program))
    cluster.kubectl("delete", *which, "--wait=false")
    remove_finalizer(cluster, which, FINALIZER, *by(DEVICES))
    if len(SHAREPODS[name].manifest["metadata"]["finalizers"]) > 1:
        others = [{"op": "remove", "path": "/metadata/finalizers"}]
        cluster.kubectl("patch", *which, "--type=json", "-p", json.dumps(others))

    expect_gone(cluster, which)


@pytest.mark.parametrize("name", PODS)
def test_a_pod_is_reported_about_and_deleted(name: str, cluster: ApiServer) -> None:
    expect_refused_now(cluster, PODS[name])
    which = (f"pod/{name}", "-n", SPACE)

    status = ("--subresource=status", "--type=merge", "-p", '{"status": {"message": "a"}}')
    cluster.kubectl("patch", *which, *status)
    cluster.kubectl("delete", *which, "--wait=false", "--grace-period=0", "--force")
    remove_finalizer(cluster, which, KEPT)

    expect_gone(cluster, which)


def test_a_claim_is_deleted(cluster: ApiServer) -> None:
    expect_refused_now(cluster, CLAIM)
    which = ("resourceclaim/claim", "-n", SPACE)

    cluster.kubectl("delete", *which, "--wait=false")
    remove_finalizer(cluster, which, KEPT)

    expect_gone(cluster, which)


def test_a_static_vgpu_is_reported_about_and_deleted(cluster: ApiServer) -> None:
    expect_refused_now(cluster, STATIC)
    which = ("vgpu/vgpu-of-before",)

    status = ("--subresource=status", "--type=merge", "-p", '{"status": {"phase": "Idle"}}')
    cluster.kubectl("patch", *which, *status, *by(DEVICES))
    cluster.kubectl("delete", *which, "--wait=false", *by(DEVICES))
    remove_finalizer(cluster, which, KEPT, *by(DEVICES))

    expect_gone(cluster, which)
