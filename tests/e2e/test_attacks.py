"""Attacks by the users of a namespace, and what stops them in a cluster.

ServiceAccounts with the roles ``edit`` and ``admin`` try each side by side, in one namespace.
``tests/deploy`` has what the API server refuses the administrator of a namespace;
``tests/node/dra/test_prepare.py``, that a second claim of a pod is no second share.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from e2e.space import BURN, REST, Space, claim_manifest, container
from e2e.stage import Place, Stage, eventually
from e2e.tenants import ROLES, Role, refusal, tenant_of, without_policy
from kubeshare.lab.errors import LabError

pytestmark = pytest.mark.lab

Raw = dict[str, Any]
Tenants = dict[Role, Space]

CLAIMS = "/apis/resource.k8s.io/v1/namespaces/{}/resourceclaims"
EXTENDED_RESOURCE_CLAIM = "resource.kubernetes.io/extended-resource-claim"
HOLD = "example.org/hold"
LIST_DEVICES = ("sh", "-c", "ls /dev /run /opt; env; cat /etc/ld.so.preload; true")


@pytest.fixture(scope="module", autouse=True)
def forgers(shared_space: Space) -> list[str]:
    """Pods with a claim and without a holder; their nodes wait for one during other tests."""
    asks = container(REST, resources={"claims": [{"name": "gpu"}]})
    where = ("-n", shared_space.name, "--as=system:kube-scheduler")
    for role in ROLES:
        claims = [{"name": "gpu", "resourceClaimName": f"forged-{role}"}]
        tenant_of(shared_space, role).create(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": f"forger-{role}"},
                "spec": {"resourceClaims": claims, "containers": [asks]},
            }
        )
        pod = shared_space.find_pod(f"forger-{role}")
        assert pod is not None
        made = json.dumps(claim_manifest(f"forged-{role}", pod))
        shared_space.stage.kubectl("create", "-f", "-", *where, stdin=made)
    return [f"forger-{role}" for role in ROLES]


@pytest.fixture(scope="module")
def victim(shared_space: Space) -> Place:
    """Where a SharePod runs of which others want a part, or the whole GPU."""
    shared_space.share("victim", {"request": "0.3"}, REST)
    return shared_space.ready("victim")


@pytest.fixture(scope="module")
def claim(shared_space: Space, victim: Place) -> Raw:
    """The claim by which the victim's containers have their part."""
    return claim_of(shared_space, "victim")


def claim_of(space: Space, pod: str) -> Raw:
    """The claim by which the containers of a pod have their part; its name begins as the pod's."""
    claims = space.stage.items(CLAIMS.format(space.name))
    return next(one for one in claims if one["metadata"]["name"].startswith(f"{pod}-"))


def test_devices_named_in_annotations_are_not_given(
    space: Space, tenants: Tenants, victim: Place, claim: Raw
) -> None:
    uid = claim["metadata"]["uid"]
    annotations = {
        "cdi.k8s.io/gpu": f"nvidia.com/gpu={victim.uuid}",
        "cdi.k8s.io/claim": f"kubeshare.nthu/claim={uid}",
    }
    visible = {"name": "NVIDIA_VISIBLE_DEVICES", "value": victim.uuid}
    for role, tenant in tenants.items():
        tenant.create(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": f"annotated-{role}", "annotations": annotations},
                "spec": {
                    "restartPolicy": "Never",
                    "nodeSelector": {"kubernetes.io/hostname": victim.node},
                    "containers": [container(LIST_DEVICES, env=[visible])],
                },
            }
        )

    for role in tenants:
        space.until_phase(f"annotated-{role}", "Succeeded", "Failed")
        seen = space.log(f"annotated-{role}").splitlines()
        assert "null" in seen
        assert not [line for line in seen if line.startswith("nvidia")]
        assert not [line for line in seen if "kubeshare" in line and "=" not in line]


def test_a_part_stays_held_though_its_claim_is_torn_away(
    stage: Stage, space: Space, tenants: Tenants
) -> None:
    pods = {f"runs-{role}": tenant for role, tenant in tenants.items()}
    for name, tenant in pods.items():
        tenant.share(name, {"request": "0.5"}, BURN)
    places = {name: space.ready(name) for name in pods}
    no_finalizers = json.dumps({"metadata": {"finalizers": None}})

    for name, tenant in pods.items():
        claim = claim_of(space, name)["metadata"]["name"]
        tenant.kubectl("delete", "resourceclaim", claim, "--wait=false")
        tenant.kubectl("patch", "resourceclaim", claim, "--type=merge", "-p", no_finalizers)
    eventually(lambda: not stage.items(CLAIMS.format(space.name)), "the claims to be gone")

    for name, place in places.items():
        stage.works_for(place, name)
        assert name in stage.holders(place.gpuid)
        space.delete("sharepod", name)
    for name, place in places.items():
        until_given_back(stage, name, place)
        assert stage.processes(name) == []


def until_given_back(stage: Stage, name: str, place: Place) -> None:
    """Wait until a pod holds no part of a GPU any more."""
    eventually(
        lambda: name not in stage.holders(place.gpuid),
        f"the part of {name} to be given back",
        explain=lambda: str(stage.holders(place.gpuid)),
    )


def forged_claim(pod: Raw) -> Raw:
    """A claim that says that kube-scheduler made it for a pod."""
    # Without `controller`: kube-scheduler 1.36 reads the field where there is none.
    owner = {"apiVersion": "v1", "kind": "Pod"} | {
        key: pod["metadata"][key] for key in ("name", "uid")
    }
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {
            "name": f"forged-{owner['name']}",
            "annotations": {EXTENDED_RESOURCE_CLAIM: "true"},
            "ownerReferences": [owner],
        },
        "spec": {},
    }


def test_a_forged_claim_does_not_stop_the_scheduler_of_the_cluster(
    space: Space, tenants: Tenants
) -> None:
    refused = []
    for role, tenant in tenants.items():
        name = f"prey-{role}"
        tenant.plain(name, "0.3", schedulingGates=[{"name": HOLD}])
        pod = space.find_pod(name)
        assert pod is not None
        refused.append(refusal(tenant, forged_claim(pod)))
        gates = [one["name"] for one in pod["spec"]["schedulingGates"]]
        remove = [{"op": "remove", "path": f"/spec/schedulingGates/{gates.index(HOLD)}"}]
        tenant.kubectl("patch", "pod", name, "--type=json", "-p", json.dumps(remove))

    for role in tenants:
        space.until_phase(f"prey-{role}", "Running")
    space.pod("next", {"cpu": "1m"}, REST)
    space.until_phase("next", "Running")
    for said in refused:
        assert "only a scheduler creates claims of extended resources" in said


def test_a_pod_with_a_claim_and_without_a_holder_never_starts(
    shared_space: Space, forgers: list[str]
) -> None:
    for forger in forgers:
        said = shared_space.event(forger, "FailedPrepareDynamicResources")

        assert "only KubeShare makes one" in said
        pod = shared_space.find_pod(forger)
        assert pod is not None
        assert pod["status"]["phase"] == "Pending"
        (only,) = pod["status"]["containerStatuses"]
        assert "waiting" in only["state"]
        assert only["started"] is False
    # Their kubelets wait for the end of the call, which is half a minute from its begin.
    for forger in forgers:
        shared_space.delete("pod", forger)


def thief(name: str, claim: str, **spec: Any) -> Raw:
    """A pod that names another pod's claim."""
    main = container(BURN, resources={"claims": [{"name": "gpu"}]})
    claims = [{"name": "gpu", "resourceClaimName": claim}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "terminationGracePeriodSeconds": 1,
            "resourceClaims": claims,
            "containers": [main],
            **spec,
        },
    }


def until_refused(space: Space, pod: str, why: str) -> None:
    """Wait for an event that says why a pod does not start."""
    eventually(
        lambda: any(why in event["message"] for event in space.events(pod)),
        f"pod {pod} to be refused",
        explain=lambda: space.describe(pod),
    )


def test_a_second_pod_does_not_use_the_claim_of_another(
    stage: Stage, space: Space, tenants: Tenants
) -> None:
    # The name of its claim is truncated, so only the reservation shows whose it is.
    victim = "victim-whose-name-has-more-than-thirty-eight-characters"
    space.share(victim, {"request": "0.3"}, REST)
    place = space.ready(victim)
    (claim,) = stage.items(CLAIMS.format(space.name))
    name = claim["metadata"]["name"]

    for role, tenant in tenants.items():
        tenant.create(thief(f"scheduled-{role}", name))
        tenant.create(thief(f"bound-{role}", name, nodeName=place.node))

    for role in tenants:
        scheduled, bound = f"scheduled-{role}", f"bound-{role}"
        until_refused(space, scheduled, f"is the share of one pod, and {scheduled} is another")
        until_refused(space, bound, "is not allowed to use ResourceClaim")
        assert [space.phase(one) for one in (scheduled, bound)] == ["Pending", "Pending"]
        assert stage.processes(scheduled) + stage.processes(bound) == []
    (claim,) = stage.items(CLAIMS.format(space.name))
    assert [user["name"] for user in claim["status"]["reservedFor"]] == [victim]
    for role in tenants:
        space.delete("pod", f"bound-{role}")
        space.delete("pod", f"scheduled-{role}")


@pytest.fixture
def unguarded(stage: Stage) -> Iterator[None]:
    """Claims may be reserved for any pod, as if an administrator had deleted the policy."""
    with without_policy(stage, "kubeshare-guard-claim-users"):
        yield


@pytest.mark.usefixtures("unguarded")
def test_the_node_reports_a_second_user_of_a_claim_and_keeps_the_share_for_it(
    stage: Stage, space: Space, tenants: Tenants
) -> None:
    victim = "victim-whose-name-has-more-than-thirty-eight-characters"
    space.share(victim, {"request": "0.3"}, REST)
    place = space.ready(victim)
    (claim,) = stage.items(CLAIMS.format(space.name))
    name = claim["metadata"]["name"]

    user = {"resource": "pods", "name": "thief", "uid": "1"}
    reserve = [{"op": "add", "path": "/status/reservedFor/-", "value": user}]
    dry = ("--subresource=status", "--dry-run=server", "--type=json", "-p", json.dumps(reserve))

    def may_be_reserved() -> bool:
        try:
            stage.kubectl("patch", "resourceclaim", name, "-n", space.name, *dry)
        except LabError:
            return False
        return True

    eventually(may_be_reserved, "the policy to be gone")
    for role, tenant in tenants.items():
        tenant.create(thief(f"thief-{role}", name))
    for role in tenants:
        space.until_phase(f"thief-{role}", "Running")

    said = space.event(victim, "ForeignProcess")
    space.delete("sharepod", victim)
    eventually(lambda: space.find_pod(victim) is None, "the victim to be gone")
    assert "is of another pod and uses" in said
    assert victim in stage.holders(place.gpuid)
    for role in tenants:
        space.delete("pod", f"thief-{role}")
    until_given_back(stage, victim, place)


def test_a_claim_whose_name_shows_its_pod_cannot_be_named(space: Space, tenants: Tenants) -> None:
    space.share("victim", {"request": "0.3"}, REST)
    space.ready("victim")
    name = claim_of(space, "victim")["metadata"]["name"]

    for tenant in tenants.values():
        assert "is the claim of another pod" in refusal(tenant, thief("thief", name))
        assert space.find_pod("thief") is None
