"""Pods of gpushare and Gaia by a real kube-scheduler that is configured with the extender."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from e2e.manifests import deployment
from e2e.owned.gpushare_pods import published, template
from e2e.owned.kube_scheduler import (
    calling_the_extender,
    inspected,
    kubeconfig_of,
    restart_scheduler,
    with_the_extender,
)
from e2e.owned.node import OwnedNode
from e2e.owned.test_vcuda import asking, create
from e2e.owned.test_vcuda import published as of_gaia
from e2e.space import Space
from e2e.stage import Stage, eventually
from e2e.test_several_shares import holders_of
from kubeshare.api.types.constants import NAMESPACE
from kubeshare.lab.errors import LabError

pytestmark = pytest.mark.lab

REFUSED = "the test refuses bindings"


@pytest.fixture
def extender(stage: Stage, owned_node: OwnedNode) -> Iterator[None]:
    """Both replicas of the extender run, and kube-scheduler calls them."""
    with calling_the_extender(stage, owned_node):
        stage.configure(gpushare={"door": "extender"}, vcuda={"door": "extender"})
        yield


@pytest.mark.usefixtures("extender")
def test_kube_scheduler_and_the_extender_place_the_published_samples(
    stage: Stage, owned_node: OwnedNode, units: int, space: Space
) -> None:
    amounts = {"binpack-1": 2, "binpack-2": 2, "binpack-3": 2, "binpack-4": units - 4}
    for name, amount in amounts.items():
        space.create(deployment(name, template(name, amount)))
        space.until_running(1, app=name)
    found = {name: published(space, name) for name in amounts}
    assert [each["IDX"] for each in found.values()] == ["0", "0", "0", "1"]
    assert {name: int(each["POD"]) for name, each in found.items()} == amounts
    assert inspected(stage, owned_node.name) == {0: (6, units), 1: (units - 4, units)}

    # There is enough memory on the node, and not on one GPU: kube-scheduler alone would bind it.
    space.create(deployment("large", template("large", units - 5)))
    eventually(
        lambda: "Insufficient GPU Memory in one device" in message(space, "large"),
        "kube-scheduler to say why the pod waits",
        explain=lambda: message(space, "large"),
    )
    replica = stage.system_pods("extender")[0]["metadata"]["name"]
    stage.kubectl("delete", "pod", "-n", NAMESPACE, replica, "--force", "--grace-period=0")
    space.create(deployment("small", template("small", 1), replicas=units - 2))
    space.until_running(units - 2, app="small")
    assert inspected(stage, owned_node.name) == {0: (units, units), 1: (units, units)}
    space.delete("deployment", "binpack-4")
    space.until_running(1, app="large")
    assert published(space, "large")["IDX"] == "1"


@pytest.mark.usefixtures("extender")
def test_pods_of_gaia_are_placed_when_kube_scheduler_filters_nodes(
    stage: Stage, owned_node: OwnedNode, space: Space
) -> None:
    stage.kubectl("label", "node", owned_node.name, "kubeshare.nthu/family=vcuda")
    arguments = with_the_extender(owned_node, kubeconfig_of(stage), "vcuda")
    restart_scheduler(stage, arguments)
    for name, cores, gpu in (("part", 60, "0"), ("rest", 40, "0"), ("whole", 100, "1")):
        create(space, name, asking("main", cores, 4))
        written = until_assigned(space, name)
        assert written["predicate-gpu-idx-0"] == gpu
        assert written["predicate-node"] == owned_node.name
        assert written["predicate-time"].isdigit()
    for name in ("part", "rest"):
        space.delete("pod", name)
    # S10: its binding fails after the filter.
    with bindings_refused(stage, space):
        create(space, "again", asking("main", 60, 4))
        eventually(
            lambda: any(REFUSED in each["message"] for each in space.events("again")),
            "kube-scheduler to be refused its binding",
            explain=lambda: str(space.events("again")),
        )
        reserved = holders_of(space, "again")
    assert until_assigned(space, "again")["predicate-gpu-idx-0"] == "0"
    assert holders_of(space, "again") == reserved


@contextmanager
def bindings_refused(stage: Stage, space: Space) -> Iterator[None]:
    """The API server refuses every binding of a pod of a namespace."""
    metadata = {"name": f"{space.name}-bindings"}
    api, admission = stage.lab.api, "/apis/admissionregistration.k8s.io/v1"
    version = "admissionregistration.k8s.io/v1"
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"]}
    here = {"matchLabels": {"kubernetes.io/metadata.name": space.name}}
    policy = {
        "matchConstraints": {
            "namespaceSelector": here,
            "resourceRules": [rule | {"resources": ["pods/binding"]}],
        },
        "validations": [{"expression": "false", "message": REFUSED}],
    }
    binding = {"policyName": metadata["name"], "validationActions": ["Deny"]}
    parts = {"ValidatingAdmissionPolicy": policy, "ValidatingAdmissionPolicyBinding": binding}
    paths = [f"{admission}/validatingadmissionpolic{end}" for end in ("ies", "ybindings")]

    def in_force() -> bool:
        pod = {"kind": "Binding", "metadata": {"name": "nobody"}, "target": {"name": "nowhere"}}
        path = f"/api/v1/namespaces/{space.name}/pods/nobody/binding"
        try:
            api.send("POST", path, {"apiVersion": "v1", **pod})
        except LabError as error:
            return REFUSED in str(error)
        return False

    for path, (kind, spec) in zip(paths, parts.items(), strict=True):
        api.send(
            "POST", path, {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}
        )
    try:
        eventually(in_force, "the policy to be in force")
        yield
    finally:
        for path in paths:
            api.send("DELETE", f"{path}/{metadata['name']}")


def until_assigned(space: Space, name: str) -> dict[str, str]:
    """What Gaia's annotations say about a pod once they say that it has its GPUs."""
    eventually(
        lambda: of_gaia(space, name).get("gpu-assigned") == "true", f"pod {name} to be assigned"
    )
    return of_gaia(space, name)


def message(space: Space, app: str) -> str:
    """What kube-scheduler says about the pod of an app."""
    conditions = [
        each
        for pod in space.pods(app=app)
        for each in pod["status"].get("conditions", [])
        if each["type"] == "PodScheduled"
    ]
    return " ".join(str(each.get("message", "")) for each in conditions)
