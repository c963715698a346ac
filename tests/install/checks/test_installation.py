"""What is missing, old or idle in an installation is found."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from fakes.checks import NOW, WANTED, gpunode, installation, installed, lease
from kubeshare.api.types.constants import DEVICE_MANAGER, NAMESPACE, SCHEDULER
from kubeshare.install.checks.facts import InstallationFacts
from kubeshare.install.checks.finding import Finding, Level, run
from kubeshare.install.checks.installation import INSTALLATION, ObjectKey, object_key

POLICY = "ValidatingAdmissionPolicy", "", "kubeshare-guard-vgpus"
CRD = "CustomResourceDefinition", "", "vgpus.kubeshare.nthu"
SPACE = "Namespace", "", NAMESPACE
PROGRAM = "Deployment", NAMESPACE, SCHEDULER
ROLE = "ClusterRole", "", SCHEDULER

Change = Callable[[dict[str, Any]], object]


def judged(facts: InstallationFacts) -> dict[str, Finding]:
    return {each.check: each for each in run(INSTALLATION, facts, facts.unread)}


def bad(facts: InstallationFacts) -> list[tuple[str, Level]]:
    return [
        (name, each.level) for name, each in judged(facts).items() if each.level is not Level.OK
    ]


def with_object(key: ObjectKey, change: Change | None) -> InstallationFacts:
    """An installation with one object changed, or missing."""
    objects = {object_key(each): installed(each) for each in WANTED}
    if change is None:
        del objects[key]
    else:
        change(objects[key])
    return installation(objects=objects)


def test_a_whole_installation_is_fine() -> None:
    assert bad(installation()) == []


@pytest.mark.parametrize(
    ("check", "level", "seen", "key", "change"),
    [
        ("namespace", "fail", "restricted", SPACE, lambda o: o["metadata"]["labels"].update(
            {"pod-security.kubernetes.io/enforce": "restricted"}
        )),
        ("namespace", "warn", "allows the node programs", SPACE, lambda o: o["metadata"].update(
            labels={"app.kubernetes.io/part-of": "kubeshare"}
        )),
        ("kinds", "fail", CRD[2], CRD, lambda o: o["status"].pop("conditions")),
        ("kinds", "warn", "v1alpha1", CRD, lambda o: o["status"].update(
            storedVersions=["v1", "v1alpha1"]
        )),
        ("kinds", "warn", CRD[2], CRD, lambda o: o["spec"]["names"].update(shortNames=["x"])),
        ("kinds", "fail", CRD[2], CRD, None),
        ("admission policies", "fail", "not enforced: kubeshare-guard-vgpus", POLICY, None),
        ("admission policies", "fail", "kubeshare-guard-vgpus", POLICY, lambda o: o["spec"].update(
            failurePolicy="Ignore"
        )),
        ("programs", "fail", "1 ready", PROGRAM, lambda o: o["status"].update(readyReplicas=1)),
        ("programs", "fail", "kubeshare-scheduler: missing", PROGRAM, None),
        ("other objects", "fail", "ClusterRole kubeshare-scheduler", ROLE, None),
        ("versions", "warn", "kubeshare:old", PROGRAM, lambda o: o["spec"]["template"]["spec"][
            "containers"
        ][0].update(image="kubeshare:old")),
    ],
)  # fmt: skip
def test_an_object_that_is_missing_or_changed_is_named(
    check: str, level: str, seen: str, key: ObjectKey, change: Change | None
) -> None:
    facts = with_object(key, change)
    assert bad(facts) == [(check, level)]
    assert seen in judged(facts)[check].seen
    assert judged(facts)[check].fix


def test_a_namespace_without_a_level_is_refused_where_the_default_is_stricter() -> None:
    objects = {object_key(each): installed(each) for each in WANTED}
    objects[SPACE]["metadata"]["labels"] = None
    objects["DaemonSet", NAMESPACE, "kubeshare-node-agent"]["status"]["currentNumberScheduled"] = 0
    found = judged(installation(objects=objects))["namespace"]
    assert found.level is Level.FAIL
    assert "not set: it refuses the node programs, such as kubeshare-node-agent" in found.seen
    assert "pod-security.kubernetes.io/enforce=privileged" in found.fix


@pytest.mark.parametrize(
    ("check", "level", "seen", "changed"),
    [
        (
            "leaders",
            "fail",
            f"{DEVICE_MANAGER}: a renewed its Lease 20 s ago",
            {
                "leases": (
                    lease(SCHEDULER),
                    lease(DEVICE_MANAGER, renewed=NOW - timedelta(seconds=20)),
                )
            },
        ),
        ("leaders", "fail", "nobody leads", {"leases": (lease(SCHEDULER, holder=""),)}),
        ("configuration", "fail", "labelScope", {"configuration": "labelScope: galaxy"}),
        ("configuration", "warn", "missing", {"configuration": None}),
        ("node agents", "fail", "n1", {"gpunodes": ()}),
        ("node agents", "fail", "the kubelet knows no driver", {"attached_nodes": frozenset()}),
        (
            "shareable GPUs",
            "warn",
            "n1 GPU 0: MIG is enabled",
            {"gpunodes": (gpunode(message="MIG is enabled"),)},
        ),
    ],
)
def test_each_program_that_does_not_work_is_one_finding(
    check: str, level: str, seen: str, changed: dict[str, Any]
) -> None:
    facts = installation(**changed)
    assert bad(facts) == [(check, level)]
    assert seen in judged(facts)[check].seen


def test_a_node_agent_of_another_version_is_named() -> None:
    old = gpunode()
    old = type(old)(
        metadata=old.metadata, spec=type(old.spec)(agent_version="0.0.1", devices=old.spec.devices)
    )
    facts = installation(gpunodes=(old,))
    assert bad(facts) == [("versions", Level.WARN)]
    assert "0.0.1" in judged(facts)["versions"].seen


def test_defaults_of_the_api_server_are_no_change() -> None:
    def default(policy: dict[str, Any]) -> None:
        policy["spec"]["matchConstraints"]["matchPolicy"] = "Equivalent"
        policy["spec"].pop("variables", None)

    without_variables = next(
        object_key(each)
        for each in WANTED
        if each["kind"] == POLICY[0] and "variables" not in each["spec"]
    )
    assert bad(with_object(without_variables, default)) == []
