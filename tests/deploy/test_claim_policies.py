"""ResourceClaims of shares: schedulers create them, and each is one pod's."""

import json
from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import pytest

from deploy.rights import every_right
from fakes import manifests
from kubeshare.api.types.constants import ANNOTATION_SCHEDULER_USERS, DRA_DRIVER
from kubeshare.lab.control_plane.api_server import ApiServer, wait_until
from kubeshare.lab.errors import LabError

pytestmark = pytest.mark.apiserver

Raw = dict[str, Any]

SCHEDULER = "system:kube-scheduler"
OTHER_SCHEDULER = "system:serviceaccount:volcano-system:volcano-scheduler"
CONTROLLERS = "system:serviceaccount:kube-system:"
CLAIM_CONTROLLER = CONTROLLERS + "resource-claim-controller"
GARBAGE_COLLECTOR = CONTROLLERS + "generic-garbage-collector"
MALLORY = "mallory"
USERS = (SCHEDULER, OTHER_SCHEDULER, CLAIM_CONTROLLER, GARBAGE_COLLECTOR, MALLORY)
TIE = "resource.kubernetes.io/extended-resource-claim"
ONLY_SCHEDULERS = "only a scheduler creates claims of .* ask for a share of a GPU with"
OWNER = {"apiVersion": "v1", "kind": "Pod", "name": "mine", "uid": "1", "controller": True}
OTHER = {"apiVersion": "v1", "kind": "Pod", "name": "other", "uid": "2"}


class Namespace:
    """A namespace in which all users may do everything, so that policies alone refuse."""

    def __init__(self, cluster: ApiServer, name: str) -> None:
        self._cluster = cluster
        self.name = name

    def kubectl(self, *arguments: str, by: str, stdin: Raw | None = None) -> str:
        """Run kubectl as a user."""
        text = None if stdin is None else json.dumps(stdin)
        return self._cluster.kubectl(*arguments, "-n", self.name, f"--as={by}", stdin=text)

    def create(self, manifest: Raw, *, by: str) -> str:
        """Create an object, and return its name."""
        return self.kubectl(
            *("create", "-f", "-", "-o", "jsonpath={.metadata.name}"), by=by, stdin=manifest
        )

    def patch(self, claim: str, patch: Raw, *, by: str, subresource: str = "") -> None:
        """Patch a claim by a JSON merge patch."""
        what = ("patch", "resourceclaim", claim, "--type=merge", "-p", json.dumps(patch))
        self.kubectl(*what, *([f"--subresource={subresource}"] if subresource else []), by=by)

    def read(self, claim: str) -> Raw:
        """Read a claim."""
        found: Raw = json.loads(
            self.kubectl("get", "resourceclaim", claim, "-o", "json", by=SCHEDULER)
        )
        return found

    def metadata(self, claim: str, *, by: str, **metadata: Any) -> None:
        """Change a claim's metadata."""
        self.patch(claim, {"metadata": metadata}, by=by)

    def reserve(self, claim: str, *pods: str, by: str, driver: str = DRA_DRIVER) -> None:
        """Allocate a claim, and reserve it for pods, which have uids of the same name."""
        result = {"request": "gpu", "driver": driver, "pool": "n1", "device": "slots"}
        users = [{"resource": "pods", "name": f"pod-{uid}", "uid": uid} for uid in pods]
        status = {"allocation": {"devices": {"results": [result]}}, "reservedFor": users}
        self.patch(claim, {"status": status}, by=by, subresource="status")


@pytest.fixture(scope="module")
def space(cluster: ApiServer) -> Iterator[Namespace]:
    name = f"test-{uuid4().hex[:8]}"
    cluster.kubectl("create", "namespace", name)
    users = [f"--user={user}" for user in USERS]
    cluster.kubectl(
        "create", "rolebinding", "all", "--clusterrole=cluster-admin", *users, "-n", name
    )
    # The user's right to write allocations is not bound to a namespace.
    with every_right(cluster, name, *USERS):
        yield Namespace(cluster, name)


def devices(device_class: str = "", *, one_of: str = "") -> Raw:
    exactly = {"deviceClassName": device_class or "gpu.nvidia.com"}
    choices = [
        {"name": "first", "deviceClassName": "gpu.nvidia.com"},
        {"name": "second", "deviceClassName": one_of},
    ]
    asked = {"firstAvailable": choices} if one_of else {"exactly": exactly}
    other = {"name": "nic", "exactly": {"deviceClassName": "nic.example.com"}}
    return {"devices": {"requests": [other, {"name": "gpu", **asked}]}}


def claim(spec: Raw, **metadata: Any) -> Raw:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"generateName": "claim-", **metadata},
        "spec": spec,
    }


def template(spec: Raw, **metadata: Any) -> Raw:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"generateName": "template-"},
        "spec": {"metadata": metadata, "spec": spec},
    }


FORGED = {
    "a claim with the annotation": claim(devices(), annotations={TIE: "true"}),
    "one with the annotation and no value": claim(devices(), annotations={TIE: ""}),
    "one for a gated pod": claim(
        {}, annotations={TIE: "true"}, ownerReferences=[OTHER | {"name": "gated"}]
    ),
    "a claim of the class": claim(devices(DRA_DRIVER)),
    "a claim of the class among others": claim(devices(one_of=DRA_DRIVER)),
    "a template with the annotation": template(devices(), annotations={TIE: "true"}),
    "a template of the class": template(devices(DRA_DRIVER)),
    "a template of the class among others": template(devices(one_of=DRA_DRIVER)),
}


@pytest.mark.parametrize("manifest", FORGED.values(), ids=FORGED.keys())
@pytest.mark.parametrize("user", [MALLORY, CLAIM_CONTROLLER])
def test_only_schedulers_create_claims_of_shares_and_of_extended_resources(
    space: Namespace, manifest: Raw, user: str
) -> None:
    with pytest.raises(LabError, match=ONLY_SCHEDULERS):
        space.create(manifest, by=user)


@pytest.mark.parametrize("make", [claim, template])
def test_every_user_creates_claims_of_other_drivers(
    space: Namespace, make: Callable[..., Raw]
) -> None:
    space.create(make(devices(), annotations={"note": "mine"}), by=MALLORY)


def test_the_users_of_schedulers_are_a_parameter(cluster: ApiServer, space: Namespace) -> None:
    own = claim(devices(DRA_DRIVER), annotations={TIE: "true"}, ownerReferences=[OWNER])
    space.create(own, by=SCHEDULER)
    with pytest.raises(LabError, match=ONLY_SCHEDULERS):
        space.create(own, by=OTHER_SCHEDULER)
    which = ("annotate", "deviceclass", DRA_DRIVER)

    def refused() -> bool:
        try:
            space.create(own, by=OTHER_SCHEDULER)
        except LabError:
            return True
        return False

    try:
        users = f"{ANNOTATION_SCHEDULER_USERS}={SCHEDULER}, {OTHER_SCHEDULER}"
        cluster.kubectl(*which, users)
        wait_until(lambda: not refused(), "the parameter to be in force")
        space.create(own, by=SCHEDULER)
    finally:
        cluster.kubectl(*which, f"{ANNOTATION_SCHEDULER_USERS}-")
    wait_until(refused, "the default to be in force")


@pytest.fixture
def made(space: Namespace) -> str:
    """The claim that kube-scheduler made for a pod."""
    return space.create(
        claim(
            devices(DRA_DRIVER),
            annotations={TIE: "true"},
            ownerReferences=[OWNER],
            finalizers=["resource.kubernetes.io/delete-protection"],
        ),
        by=SCHEDULER,
    )


@pytest.mark.parametrize("value", [None, "false"])
def test_the_annotation_of_a_claim_stays(space: Namespace, made: str, value: str | None) -> None:
    with pytest.raises(LabError, match="is written by schedulers alone"):
        space.metadata(made, by=MALLORY, annotations={TIE: value})


@pytest.mark.parametrize(
    "owners",
    [[], [OTHER, OWNER], [OTHER], [OWNER | {"controller": False}]],
    ids=["none", "another before it", "another", "no controller"],
)
def test_the_owner_of_a_claim_stays(space: Namespace, made: str, owners: list[Raw]) -> None:
    with pytest.raises(LabError, match=r"metadata\.ownerReferences: .*or delete the claim"):
        space.metadata(made, by=MALLORY, ownerReferences=owners)


def test_a_claim_of_another_driver_gets_owners_but_not_the_annotation(space: Namespace) -> None:
    theirs = space.create(claim(devices()), by=MALLORY)
    space.metadata(theirs, by=MALLORY, ownerReferences=[OTHER])
    with pytest.raises(LabError, match="is written by schedulers alone"):
        space.metadata(theirs, by=MALLORY, annotations={TIE: "true"})


def test_everything_else_of_a_claim_may_change_and_it_can_be_deleted(
    space: Namespace, made: str
) -> None:
    space.metadata(made, by=MALLORY, labels={"team": "a"}, annotations={"note": "mine"})
    space.reserve(made, "1", by=SCHEDULER)
    space.patch(made, {"status": {"reservedFor": None}}, by=CLAIM_CONTROLLER, subresource="status")
    space.patch(made, {"status": {"allocation": None}}, by=CLAIM_CONTROLLER, subresource="status")
    space.kubectl("delete", "resourceclaim", made, "--wait=false", by=MALLORY)
    space.metadata(made, by=CLAIM_CONTROLLER, finalizers=None)
    with pytest.raises(LabError, match="not found"):
        space.read(made)


def test_the_garbage_collector_removes_owners_and_adds_none(space: Namespace, made: str) -> None:
    unblocked = [OWNER | {"blockOwnerDeletion": False}]
    with pytest.raises(LabError, match=r"metadata\.ownerReferences"):
        space.metadata(made, by=GARBAGE_COLLECTOR, ownerReferences=[OWNER, OTHER])
    space.metadata(made, by=GARBAGE_COLLECTOR, ownerReferences=unblocked)
    space.metadata(made, by=GARBAGE_COLLECTOR, ownerReferences=None)
    assert "ownerReferences" not in space.read(made)["metadata"]


@pytest.mark.parametrize("user", [SCHEDULER, CLAIM_CONTROLLER])
def test_a_claim_is_reserved_for_its_own_pod_alone(space: Namespace, made: str, user: str) -> None:
    refused = r"status\.reservedFor: claim .* and pod-2 is another: .*spec\.resourceClaims"
    with pytest.raises(LabError, match=refused):
        space.reserve(made, "2", by=user)
    space.reserve(made, "1", by=user)
    with pytest.raises(LabError, match=refused):
        space.reserve(made, "1", "2", by=user)


def test_a_claim_is_reserved_for_no_group_of_pods(space: Namespace, made: str) -> None:
    space.reserve(made, "1", by=SCHEDULER)
    group = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "g", "uid": "1"}
    with pytest.raises(LabError, match="is the share of one pod, and g is another"):
        space.patch(made, {"status": {"reservedFor": [group]}}, by=SCHEDULER, subresource="status")


def test_a_claim_without_an_owner_is_reserved_for_no_pod(space: Namespace) -> None:
    free = space.create(claim(devices(DRA_DRIVER)), by=SCHEDULER)
    with pytest.raises(LabError, match="is the share of one pod"):
        space.reserve(free, "1", by=SCHEDULER)


def test_claims_of_other_drivers_have_several_users(space: Namespace) -> None:
    theirs = space.create(claim(devices()), by=MALLORY)
    space.reserve(theirs, "1", "2", by=SCHEDULER, driver="gpu.nvidia.com")


def test_a_reservation_of_before_the_policy_goes_with_its_pod(space: Namespace, made: str) -> None:
    space.reserve(made, "1", by=SCHEDULER)
    # As if the claim had been another pod's.
    space.metadata(made, by=SCHEDULER, ownerReferences=[OWNER | {"uid": "3"}])

    space.reserve(made, "1", "3", by=SCHEDULER)
    with pytest.raises(LabError, match="and pod-2 is another"):
        space.reserve(made, "1", "2", "3", by=SCHEDULER)
    space.reserve(made, "1", by=CLAIM_CONTROLLER)


def naming(**named: str) -> Raw:
    claims = [{"name": "nic", "resourceClaimName": "nic"}, {"name": "gpu", **named}]
    return manifests.pod(f"pod-{uuid4().hex[:8]}", resourceClaims=claims)


def test_a_pod_does_not_name_another_pods_claim(space: Namespace) -> None:
    name = "victim-extended-resources-x7k2p"
    refused = f"spec.resourceClaims: {name} is the claim of another pod: "
    with pytest.raises(LabError, match=refused):
        space.create(naming(resourceClaimName=name), by=MALLORY)


@pytest.mark.parametrize(
    "named",
    [
        {"resourceClaimName": "extended-resources"},
        {"resourceClaimTemplateName": "my-extended-resources-x7k2p"},
    ],
)
def test_a_pod_names_other_claims_as_it_likes(space: Namespace, named: dict[str, str]) -> None:
    made = space.create(naming(**named), by=MALLORY)
    space.kubectl("delete", "pod", made, "--grace-period=0", "--force", by=MALLORY)
