"""Pods of gpushare and Gaia by a real kube-scheduler that is configured with the extender."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from e2e import pages
from e2e.manifests import deployment
from e2e.owned.gpushare_pods import published, template
from e2e.owned.node import OwnedNode
from e2e.owned.test_vcuda import asking, create
from e2e.owned.test_vcuda import published as of_gaia
from e2e.space import Space
from e2e.stage import Stage, eventually
from e2e.test_several_shares import holders_of
from kubeshare.api.types.constants import NAMESPACE
from kubeshare.install import manifests
from kubeshare.lab import configuration
from kubeshare.lab.errors import LabError

pytestmark = pytest.mark.lab

EXAMPLES = pages.ROOT / "examples"
SCHEDULER = "kube-scheduler"
REFUSED = "the test refuses bindings"
INSPECT = f"/api/v1/namespaces/{NAMESPACE}/services/kubeshare-extender:extender/proxy"


@pytest.fixture
def extender(stage: Stage, owned_node: OwnedNode) -> Iterator[None]:
    """Both replicas of the extender run, and kube-scheduler calls them."""
    pages.run(stage, pages.script("extender"))
    stage.configure(gpushare={"door": "extender"}, vcuda={"door": "extender"})
    restart_scheduler(stage, with_the_extender(owned_node, kubeconfig_of(stage), "gpushare"))
    yield
    restart_scheduler(stage, configuration.scheduler_arguments(kubeconfig_of(stage)))
    stage.configure()
    ours = manifests.load(manifests.Options(extender=True))
    installed = [each for each in ours if each["metadata"]["name"] == "kubeshare-extender"]
    stage.kubectl("delete", "-f", "-", "--ignore-not-found", stdin=yaml.safe_dump_all(installed))


def kubeconfig_of(stage: Stage) -> Path:
    """The kubeconfig of kube-scheduler."""
    return stage.lab.layout.folder / f"{SCHEDULER}.kubeconfig"


def with_the_extender(node: OwnedNode, kubeconfig: Path, family: str) -> list[str]:
    """The command line of kube-scheduler with the shipped configuration.

    Args:
        node: where it calls the extender.
        kubeconfig: with which it calls the API server.
        family: the manifest family whose pods the extender places.
    """
    addresses = {each["type"]: each["address"] for each in node.raw()["status"]["addresses"]}
    text = (EXAMPLES / family / "kube-scheduler.yaml").read_text()
    written = yaml.safe_load(text.replace("NODE_ADDRESS", addresses["InternalIP"]))
    written["clientConnection"]["kubeconfig"] = str(kubeconfig)
    written["leaderElection"] = {"leaderElect": False}
    path = kubeconfig.parent / "kube-scheduler-with-the-extender.yaml"
    path.write_text(yaml.safe_dump(written))
    access = [f"--{what}-kubeconfig={kubeconfig}" for what in ("authentication", "authorization")]
    return [SCHEDULER, f"--config={path}", *access, "--bind-address=127.0.0.1"]


def restart_scheduler(stage: Stage, arguments: list[str]) -> None:
    """Run kube-scheduler with another command line than before."""
    stage.lab.stop_component(f"{stage.lab.control_plane.name}/{SCHEDULER}")
    program = str(stage.lab.api.programs / SCHEDULER)
    stage.lab.control_plane.start(SCHEDULER, [program, *arguments[1:]])


def inspected(stage: Stage, node: str) -> dict[int, tuple[int, int]]:
    """Index of each GPU of the node -> its units in use and in all, as the extender sees it."""
    path = f"{INSPECT}/gpushare-scheduler/inspect/{node}"
    [found] = json.loads(stage.kubectl("get", "--raw", path))["nodes"]
    return {each["id"]: (each["usedGPU"], each["totalGPU"]) for each in found["devs"]}


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
