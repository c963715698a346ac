"""What a cluster lacks is found, and named with what mends it."""

from datetime import timedelta
from typing import Any

import pytest

from fakes.checks import NODE, NOW, WANTED, gpunode, lease, node, platform
from kubeshare.api.types.constants import NAMESPACE
from kubeshare.install.checks.facts import PlatformFacts, Server
from kubeshare.install.checks.finding import Finding, Level, run
from kubeshare.install.checks.platform import PLATFORM, gates_of

SIDECAR = {
    "configuration": "mesh",
    "rules": [{"apiGroups": [""], "resources": ["pods"], "operations": ["CREATE"]}],
}
EXCEPTED = {
    "namespaceSelector": {
        "matchExpressions": [
            {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": [NAMESPACE]}
        ]
    }
}
OPTED_IN = {"namespaceSelector": {"matchLabels": {"inject": "yes"}}}
FOR_OTHER_PODS = {"objectSelector": {"matchLabels": {"inject": "yes"}}}
ALL_KINDS = {
    "configuration": "engine",
    "rules": [{"apiGroups": ["*"], "resources": ["*"], "operations": ["*"]}],
    **EXCEPTED,
}


def changes(plural: str) -> dict[str, Any]:
    """A webhook for one of KubeShare's kinds."""
    rule = {"apiGroups": ["kubeshare.nthu"], "resources": [plural], "operations": ["*"]}
    return {"configuration": f"for-{plural}", "rules": [rule], **EXCEPTED}


def judged(facts: PlatformFacts) -> dict[str, Finding]:
    return {each.check: each for each in run(PLATFORM, facts, facts.unread)}


def bad(facts: PlatformFacts) -> list[tuple[str, Level]]:
    return [
        (name, each.level) for name, each in judged(facts).items() if each.level is not Level.OK
    ]


def test_a_cluster_that_has_all_is_fine() -> None:
    assert bad(platform()) == []
    assert bad(platform(gpunodes=(gpunode(),))) == []


@pytest.mark.parametrize(
    ("check", "level", "seen", "changed"),
    [
        ("Kubernetes", "fail", "v1.35.4", {"server": Server(version="v1.35.4", now=NOW)}),
        ("Kubernetes", "warn", "unknown", {"server": Server(version="", now=NOW)}),
        ("API kinds", "fail", "FlowSchema (x/v1)", {"missing_kinds": ("FlowSchema (x/v1)",)}),
        ("feature gates", "fail", "DRAExtendedResource", {"gates": {"DRAExtendedResource": False}}),
        ("kubelets", "fail", "n1 (v1.35.9)", {"nodes": (node(kubelet="v1.35.9"),)}),
        (
            "container runtimes",
            "fail",
            "n1 (containerd://1.6.8)",
            {"nodes": (node(runtime="containerd://1.6.8"),)},
        ),
        (
            "container runtimes",
            "warn",
            "containerd://1.7.2",
            {"nodes": (node(runtime="containerd://1.7.2"),)},
        ),
        (
            "container runtimes",
            "warn",
            "docker://27",
            {"nodes": (node(runtime="docker://27"),)},
        ),
        ("GPU drivers", "fail", "n1: its driver 470", {"gpunodes": (gpunode(driver="470.1"),)}),
        (
            "GPU drivers",
            "fail",
            "n1: its driver 515",
            {"nodes": (node(labels={"nvidia.com/cuda.driver.major": "515"}),)},
        ),
        (
            "device plugin",
            "fail",
            "n1 (time-slicing, 4 of each GPU)",
            {
                "nodes": (
                    node(
                        labels={
                            "nvidia.com/gpu.sharing-strategy": "time-slicing",
                            "nvidia.com/gpu.replicas": "4",
                        }
                    ),
                )
            },
        ),
        (
            "device plugin",
            "fail",
            "nvidia.com/mig-1g.5gb",
            {"nodes": (node(offers={"nvidia.com/gpu": "1", "nvidia.com/mig-1g.5gb": "7"}),)},
        ),
        ("NVIDIA runtime", "warn", "nvidia-cdi", {"runtime_classes": {"nvidia-cdi": "nvidia"}}),
        ("webhooks", "warn", "mesh", {"webhooks": (SIDECAR,)}),
        ("webhooks", "warn", "engine", {"webhooks": (ALL_KINDS,)}),
        (
            "clocks",
            "warn",
            "8 s behind this machine's",
            {"server": Server(version="v1.36.3", now=NOW, ahead_seconds=-8.0)},
        ),
        (
            "clocks",
            "warn",
            "n1 (+9 s)",
            {"node_leases": (lease(NODE, renewed=NOW + timedelta(seconds=9)),)},
        ),
        (
            "clocks",
            "warn",
            "n1 (-90 s)",
            {"node_leases": (lease(NODE, renewed=NOW - timedelta(seconds=90)),)},
        ),
        ("webhooks", "warn", "could not be read: no", {"unread": {"webhooks": "no"}}),
    ],
)
def test_each_lack_is_one_finding_with_what_mends_it(
    check: str, level: str, seen: str, changed: dict[str, Any]
) -> None:
    facts = platform(**changed)
    assert bad(facts) == [(check, level)]
    found = judged(facts)[check]
    assert seen in found.seen
    assert found.fix


def test_a_cluster_without_gpus_is_no_failure() -> None:
    assert bad(platform(nodes=(node(offers={}),), node_leases=())) == [("GPUs", Level.WARN)]


@pytest.mark.parametrize("selector", [EXCEPTED, OPTED_IN, FOR_OTHER_PODS])
def test_a_webhook_that_excepts_the_programs_is_fine(selector: dict[str, Any]) -> None:
    assert bad(platform(webhooks=({**SIDECAR, **selector},))) == []


def test_old_nodes_without_gpus_do_not_matter() -> None:
    other = node("n2", kubelet="v1.34.0", runtime="docker://1", offers={})
    assert bad(platform(nodes=(node(), other))) == []


def test_the_gates_are_read_from_metrics() -> None:
    text = (
        "# HELP kubernetes_feature_enabled whether a gate is on\n"
        'kubernetes_feature_enabled{name="DRAExtendedResource",stage="BETA"} 0\n'
        'kubernetes_feature_enabled{name="DynamicResourceAllocation",stage=""} 1\n'
        'other{name="x"} 1\n'
    )
    assert gates_of(text) == {"DRAExtendedResource": False, "DynamicResourceAllocation": True}


def test_a_webhook_for_any_kind_of_kubeshare_is_found() -> None:
    plurals = {
        each["spec"]["names"]["plural"]
        for each in WANTED
        if each["kind"] == "CustomResourceDefinition"
    }
    assert len(plurals) == 5
    for plural in plurals:
        [(check, _)] = bad(platform(webhooks=(changes(plural),)))
        assert check == "webhooks"
