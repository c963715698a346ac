"""A policy that cannot be evaluated does what it does to a violation: it refuses, or it warns."""

from typing import Any

import pytest
import yaml

import kubeshare.install.manifests as install

POLICIES = ("ValidatingAdmissionPolicy", "MutatingAdmissionPolicy")
WARN = {"kubeshare-gpu-count", "kubeshare-sharepod-late-edits"}
"""They refuse nothing, not even when an expression fails."""


FILES = sorted(install.manifest_folder().rglob("*.yaml"))
LOADED = [
    each
    for file in FILES
    for each in yaml.load_all(file.read_text(), getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    if each
]


def manifests(*kinds: str) -> dict[str, dict[str, Any]]:
    """Kind and name → spec, of all manifests in the repository."""
    return {
        f"{each['kind']}/{each['metadata']['name']}": each["spec"]
        for each in LOADED
        if each["kind"] in kinds
    }


BINDINGS = manifests(*(f"{kind}Binding" for kind in POLICIES))


@pytest.mark.parametrize(("name", "spec"), manifests(*POLICIES).items())
def test_a_policy_fails_closed_and_is_bound(name: str, spec: dict[str, Any]) -> None:
    kind, _, policy = name.partition("/")
    bound = [
        each
        for key, each in BINDINGS.items()
        if key.startswith(f"{kind}Binding/") and each["policyName"] == policy
    ]
    actions = [each.get("validationActions") for each in bound]

    assert spec["failurePolicy"] == "Fail"
    if policy in WARN:
        assert actions == [["Warn"]]
        # Errors of parameters, selectors and audit annotations refuse whatever the actions are.
        assert spec.keys().isdisjoint({"paramKind", "auditAnnotations"})
        assert spec["matchConstraints"].keys() == {"resourceRules"}
        return
    denies = [["Deny"]] if kind == "ValidatingAdmissionPolicy" else [None]
    assert actions == denies


def test_few_policies_have_many_parameters_and_none_that_are_asked_often() -> None:
    """The API server goes through all parameters for each request: each time anew."""
    many = {
        key.partition("/")[2]: manifests("ValidatingAdmissionPolicy")[
            f"ValidatingAdmissionPolicy/{each['policyName']}"
        ]
        for key, each in BINDINGS.items()
        if "selector" in each.get("paramRef", {})
    }
    asked = {
        name: [
            (rule["resources"], rule["operations"])
            for rule in spec["matchConstraints"]["resourceRules"]
        ]
        for name, spec in many.items()
    }
    assert asked == {
        "kubeshare-evictions": [(["pods/eviction"], ["CREATE"])],
        "kubeshare-guard-starting-placeholders": [(["pods/eviction"], ["CREATE"])],
        "kubeshare-guard-namespace": [(["namespaces"], ["DELETE"])],
    }


def test_the_manifests_that_are_installed_are_among_them() -> None:
    installed = {
        each["metadata"]["name"]
        for each in install.load(install.Options())
        if each["kind"] in POLICIES
    }

    assert installed >= WARN
    assert installed <= {name.partition("/")[2] for name in manifests(*POLICIES)}
