"""Attacks by the users of a namespace, and what stops them in a cluster.

``tests/deploy`` has what the API server refuses the administrator of a namespace;
``tests/node/dra/test_prepare.py``, that a second claim of a pod is no second share.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from e2e.space import BURN, REST, Space, claim_manifest, container
from e2e.stage import Place, Stage, eventually
from kubeshare.lab.errors import LabError

pytestmark = pytest.mark.lab

Raw = dict[str, Any]

CLAIMS = "/apis/resource.k8s.io/v1/namespaces/{}/resourceclaims"
EXTENDED_RESOURCE_CLAIM = "resource.kubernetes.io/extended-resource-claim"
MALLORY = ("--as=mallory", "--as-group=system:authenticated")
HOLD = "example.org/hold"
LIST_DEVICES = ("sh", "-c", "ls /dev /run /opt; env; cat /etc/ld.so.preload; true")


@pytest.fixture(scope="module", autouse=True)
def forger(shared_space: Space) -> str:
    """A pod with a claim and without a holder; its node waits for one during other tests."""
    claims = [{"name": "gpu", "resourceClaimName": "forged"}]
    asks = container(REST, resources={"claims": [{"name": "gpu"}]})
    shared_space.create(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "forger"},
            "spec": {"resourceClaims": claims, "containers": [asks]},
        }
    )
    pod = shared_space.find_pod("forger")
    assert pod is not None
    made = json.dumps(claim_manifest("forged", pod))
    where = ("-n", shared_space.name, "--as=system:kube-scheduler")
    shared_space.stage.kubectl("create", "-f", "-", *where, stdin=made)
    return "forger"


@pytest.fixture(scope="module")
def victim(shared_space: Space) -> Place:
    """Where a SharePod runs of which others want a part, or the whole GPU."""
    shared_space.share("victim", {"request": "0.3"}, REST)
    return shared_space.ready("victim")


@pytest.fixture(scope="module")
def claim(shared_space: Space, victim: Place) -> Raw:
    """The claim by which the victim's containers have their part."""
    claims = shared_space.stage.items(CLAIMS.format(shared_space.name))
    return next(one for one in claims if one["metadata"]["name"].startswith("victim-"))


def test_devices_named_in_annotations_are_not_given(
    shared_space: Space, victim: Place, claim: Raw
) -> None:
    space, uid = shared_space, claim["metadata"]["uid"]
    annotations = {
        "cdi.k8s.io/gpu": f"nvidia.com/gpu={victim.uuid}",
        "cdi.k8s.io/claim": f"kubeshare.nthu/claim={uid}",
    }
    visible = {"name": "NVIDIA_VISIBLE_DEVICES", "value": victim.uuid}
    space.create(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "annotated", "annotations": annotations},
            "spec": {
                "restartPolicy": "Never",
                "nodeSelector": {"kubernetes.io/hostname": victim.node},
                "containers": [container(LIST_DEVICES, env=[visible])],
            },
        }
    )

    space.until_phase("annotated", "Succeeded", "Failed")

    seen = space.log("annotated").splitlines()
    assert "null" in seen
    assert not [line for line in seen if line.startswith("nvidia")]
    assert not [line for line in seen if "kubeshare" in line and "=" not in line]


def test_a_part_stays_held_though_its_claim_is_torn_away(stage: Stage, space: Space) -> None:
    space.share("runs", {"request": "0.5"}, BURN)
    place = space.ready("runs")
    (claim,) = stage.items(CLAIMS.format(space.name))
    name = claim["metadata"]["name"]
    no_finalizers = json.dumps({"metadata": {"finalizers": None}})

    stage.kubectl("delete", "resourceclaim", "-n", space.name, name, "--wait=false")
    stage.kubectl(
        *("patch", "resourceclaim", "-n", space.name, name),
        *("--type=merge", "-p", no_finalizers),
    )
    eventually(lambda: not stage.items(CLAIMS.format(space.name)), "the claim to be gone")

    stage.works_for(place, "runs")
    assert "runs" in stage.holders(place.gpuid)
    space.delete("sharepod", "runs")
    eventually(
        lambda: "runs" not in stage.holders(place.gpuid),
        "its part to be given back",
        explain=lambda: str(stage.holders(place.gpuid)),
    )
    assert stage.processes("runs") == []


class Editor:
    """A user with the cluster's role ``edit`` in one namespace."""

    def __init__(self, space: Space) -> None:
        self._space = space

    def create(self, manifest: Raw) -> str:
        """Create an object; returns why it is refused, or nothing."""
        where = ("-n", self._space.name, *MALLORY)
        try:
            self._space.stage.kubectl("create", "-f", "-", *where, stdin=json.dumps(manifest))
        except LabError as error:
            return str(error)
        return ""


@pytest.fixture
def editor(space: Space) -> Iterator[Editor]:
    """The user mallory, who may edit the namespace."""
    binding = ("rolebinding", "mallory", "-n", space.name)
    space.stage.kubectl("create", *binding, "--clusterrole=edit", "--user=mallory")
    yield Editor(space)
    space.stage.kubectl("delete", *binding)


def test_a_forged_claim_does_not_stop_the_scheduler_of_the_cluster(
    stage: Stage, space: Space, editor: Editor
) -> None:
    space.plain("prey", "0.3", schedulingGates=[{"name": HOLD}])
    pod = space.find_pod("prey")
    assert pod is not None
    # Without `controller`: kube-scheduler 1.36 reads the field where there is none.
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "prey", "uid": pod["metadata"]["uid"]}
    metadata = {"name": "forged", "annotations": {EXTENDED_RESOURCE_CLAIM: "true"}}
    refused = editor.create(
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": metadata | {"ownerReferences": [owner]},
            "spec": {},
        }
    )
    gates = [one["name"] for one in pod["spec"]["schedulingGates"]]
    remove = [{"op": "remove", "path": f"/spec/schedulingGates/{gates.index(HOLD)}"}]
    which = ("pod", "prey", "-n", space.name, *MALLORY)
    stage.kubectl("patch", *which, "--type=json", "-p", json.dumps(remove))

    space.until_phase("prey", "Running")
    space.pod("next", {"cpu": "1m"}, REST)
    space.until_phase("next", "Running")
    assert "only a scheduler creates claims of extended resources" in refused


def test_a_pod_with_a_claim_and_without_a_holder_never_starts(
    shared_space: Space, forger: str
) -> None:
    said = shared_space.event(forger, "FailedPrepareDynamicResources")

    assert "only KubeShare makes one" in said
    pod = shared_space.find_pod(forger)
    assert pod is not None
    assert pod["status"]["phase"] == "Pending"
    (only,) = pod["status"]["containerStatuses"]
    assert "waiting" in only["state"]
    assert only["started"] is False
    # Its kubelet waits for the end of the call, which is half a minute from its begin.
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
    stage: Stage, space: Space, editor: Editor
) -> None:
    # The name of its claim is truncated, so only the reservation shows whose it is.
    victim = "victim-whose-name-has-more-than-thirty-eight-characters"
    space.share(victim, {"request": "0.3"}, REST)
    place = space.ready(victim)
    (claim,) = stage.items(CLAIMS.format(space.name))
    name = claim["metadata"]["name"]

    created = [
        editor.create(thief("scheduled", name)),
        editor.create(thief("bound", name, nodeName=place.node)),
    ]

    assert created == ["", ""]
    until_refused(space, "scheduled", "is the share of one pod, and scheduled is another")
    until_refused(space, "bound", "is not allowed to use ResourceClaim")
    assert [space.phase(one) for one in ("scheduled", "bound")] == ["Pending", "Pending"]
    assert stage.processes("scheduled") + stage.processes("bound") == []
    (claim,) = stage.items(CLAIMS.format(space.name))
    assert [user["name"] for user in claim["status"]["reservedFor"]] == [victim]
    space.delete("pod", "bound")
    space.delete("pod", "scheduled")


@pytest.fixture
def unguarded(stage: Stage) -> Iterator[None]:
    """Claims may be reserved for any pod, as if an administrator had deleted the policy."""
    which = ("validatingadmissionpolicybinding", "kubeshare-guard-claim-users")
    binding = json.loads(stage.kubectl("get", *which, "-o", "json"))
    for field in ("uid", "resourceVersion", "creationTimestamp", "generation", "managedFields"):
        binding["metadata"].pop(field, None)
    stage.kubectl("delete", *which)
    try:
        yield
    finally:
        stage.kubectl("create", "-f", "-", stdin=json.dumps(binding))


@pytest.mark.usefixtures("unguarded")
def test_the_node_reports_a_second_user_of_a_claim_and_keeps_the_share_for_it(
    stage: Stage, space: Space, editor: Editor
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
    assert editor.create(thief("thief", name)) == ""
    space.until_phase("thief", "Running")

    said = space.event(victim, "ForeignProcess")
    space.delete("sharepod", victim)
    eventually(lambda: space.find_pod(victim) is None, "the victim to be gone")
    assert "is of another pod and uses" in said
    assert victim in stage.holders(place.gpuid)
    space.delete("pod", "thief")
    eventually(lambda: victim not in stage.holders(place.gpuid), "the share to be released")


def test_a_claim_whose_name_shows_its_pod_cannot_be_named(
    stage: Stage, space: Space, editor: Editor
) -> None:
    space.share("victim", {"request": "0.3"}, REST)
    space.ready("victim")
    (claim,) = stage.items(CLAIMS.format(space.name))

    refused = editor.create(thief("thief", claim["metadata"]["name"]))

    assert "is the claim of another pod" in refused
    assert space.find_pod("thief") is None
