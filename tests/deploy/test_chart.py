"""The Helm chart renders what ``kubeshare install`` applies, and refuses what cannot work."""

from typing import Any

import pytest
import yaml

from deploy.helm import CHART, IMAGE, Helm, HelmError, hook_of
from kubeshare import __version__
from kubeshare.api.configuration import KEY, Configuration, parse
from kubeshare.core.errors import InvalidValueError
from kubeshare.install import manifests
from kubeshare.install.readiness import WORKLOADS
from kubeshare.lab.images import binaries
from kubeshare.lab.progress import Progress

pytestmark = pytest.mark.slow

Raw = dict[str, Any]
SPACE = "gpu-sharing"
NAME = "app.kubernetes.io/name"
INSTANCE = "app.kubernetes.io/instance"
VERSION = "app.kubernetes.io/version"
MANAGED_BY = "app.kubernetes.io/managed-by"
COMPONENT = "app.kubernetes.io/component"
PART_OF = "app.kubernetes.io/part-of"
PODS_OF = {*WORKLOADS, "Job"}
ALL: Raw = {
    "extender": {"enabled": True},
    "web": {"enabled": True, "hosts": ["a.example"], "insecureHTTP": True},
    "defaultDeny": True,
    "monitoring": {"podMonitor": True, "prometheusRule": True, "dashboards": True},
    "networkPolicy": {"enabled": True},
}
"""Values with which a release has every object that the chart knows."""


@pytest.fixture(scope="module")
def helm(tmp_path_factory: pytest.TempPathFactory) -> Helm:
    return Helm(binaries.helm(Progress()), tmp_path_factory.mktemp("helm"))


def by_name(objects: list[Raw]) -> dict[tuple[str, ...], Raw]:
    keys = [
        (
            one["apiVersion"],
            one["kind"],
            one["metadata"].get("namespace", ""),
            one["metadata"]["name"],
        )
        for one in objects
    ]
    assert len(set(keys)) == len(keys)
    return dict(zip(keys, objects, strict=True))


def labels_of(one: Raw) -> list[dict[str, str]]:
    """The labels of an object, and those of the pods that it makes."""
    of_pods = [one["spec"]["template"]["metadata"]] if one["kind"] in PODS_OF else []
    return [each["labels"] for each in (one["metadata"], *of_pods)]


def of_the_release(objects: list[Raw]) -> dict[tuple[str, ...], Raw]:
    """What stays, without the words by which Helm knows its release and keeps the kinds."""
    stays = [one for one in objects if not hook_of(one)]
    for one in stays:
        for labels in labels_of(one):
            assert (labels.pop(MANAGED_BY), labels.pop(INSTANCE)) == ("Helm", "r")
            labels |= {MANAGED_BY: "kubeshare", INSTANCE: "kubeshare"}
        if one["kind"] == "CustomResourceDefinition":
            assert one["metadata"].pop("annotations") == {"helm.sh/resource-policy": "keep"}
    return by_name(stays)


def workload(objects: list[Raw], name: str) -> Raw:
    [found] = [
        one
        for one in objects
        if one["metadata"]["name"] == f"kubeshare-{name}" and one["kind"] in WORKLOADS
    ]
    return found


def program(objects: list[Raw], name: str) -> Raw:
    pod: Raw = workload(objects, name)["spec"]["template"]["spec"]
    return pod


@pytest.mark.parametrize(
    ("namespace", "values", "options"),
    [
        ("kubeshare-system", {}, {}),
        (
            SPACE,
            {"driverRoot": "/", "extender": {"enabled": True}, "defaultDeny": True},
            {"driver_root": "/", "extender": True, "only_namespaces": ()},
        ),
    ],
)
def test_a_release_is_what_install_applies(
    helm: Helm, namespace: str, values: Raw, options: Raw
) -> None:
    image = f"{IMAGE['repository']}:{IMAGE['tag']}"
    ours = manifests.load(manifests.Options(namespace=namespace, image=image, **options))
    # Helm makes the namespace itself, before anything else (--create-namespace).
    expected = by_name([one for one in ours if one["kind"] != "Namespace"])
    rendered = of_the_release(helm.render(namespace, **values))
    assert rendered.keys() == expected.keys()
    for key, manifest in expected.items():
        assert rendered[key] == manifest, key
    if namespace != "kubeshare-system":
        assert "kubeshare-system" not in yaml.safe_dump_all([*rendered.values(), *ours])


def test_every_object_has_the_labels_that_kubernetes_recommends(helm: Helm) -> None:
    objects = helm.render(SPACE, **ALL)
    assert len(objects) > 100
    for one in objects:
        for labels in labels_of(one):
            assert labels[COMPONENT], one["metadata"]["name"]
            assert labels.items() >= {
                (NAME, "kubeshare"),
                (PART_OF, "kubeshare"),
                (INSTANCE, "r"),
                (VERSION, __version__),
                (MANAGED_BY, "Helm"),
            }
    for one in manifests.load(manifests.Options(extender=True, only_namespaces=("team",))):
        if one["metadata"]["name"] != "team":
            for labels in labels_of(one):
                assert labels[COMPONENT]
                assert (labels[MANAGED_BY], labels[VERSION]) == ("kubeshare", __version__)


def test_selectors_are_those_of_all_releases_since_they_cannot_change(helm: Helm) -> None:
    objects = helm.render(SPACE, **(ALL | {"scheduler": {"podLabels": {"team": "ml"}}}))
    programs = [one for one in objects if one["kind"] in WORKLOADS]
    for one in programs:
        name = one["metadata"]["name"].removeprefix("kubeshare-")
        expected = {PART_OF: "kubeshare", COMPONENT: name}
        assert one["spec"]["selector"] == {"matchLabels": expected}
    [service, page] = [one["spec"]["selector"] for one in objects if one["kind"] == "Service"]
    assert service == {PART_OF: "kubeshare", COMPONENT: "extender"}
    assert page == {PART_OF: "kubeshare", COMPONENT: "web"}
    assert len(programs) == 6


def test_pods_have_labels_annotations_and_affinity_of_the_values(helm: Helm) -> None:
    term = {"matchExpressions": [{"key": "pool", "operator": "In", "values": ["system"]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    given: Raw = {
        "podLabels": {"team": "ml", COMPONENT: "mine"},
        "podAnnotations": {"example.com/scrape": "true"},
        "affinity": {"nodeAffinity": required},
    }
    for key, name in (("scheduler", "scheduler"), ("tokenDaemon", "token-daemon")):
        values: Raw = {key: given}
        template = workload(helm.render(**values), name)["spec"]["template"]
        labels = template["metadata"]["labels"]
        assert (labels["team"], labels[COMPONENT]) == ("ml", name)
        assert template["metadata"]["annotations"] == given["podAnnotations"]
        assert template["spec"]["affinity"] == given["affinity"]
    plain = workload(helm.render(), "scheduler")["spec"]["template"]
    assert "annotations" not in plain["metadata"]
    assert "affinity" not in plain["spec"]


@pytest.mark.parametrize("level", ["debug", "warning"])
def test_all_programs_log_from_the_severity_of_the_values(helm: Helm, level: str) -> None:
    objects = helm.render(logLevel=level, **ALL)
    commands = [
        container["command"]
        for one in objects
        if one["kind"] in WORKLOADS
        for container in one["spec"]["template"]["spec"]["containers"]
    ]
    assert len(commands) == 6
    assert all(command[-2:] == ["--log-level", level] for command in commands)


def test_a_release_of_before_log_levels_keeps_its_values(helm: Helm) -> None:
    """``helm upgrade --reuse-values`` renders without the defaults of values that are new."""
    assert by_name(helm.render(logLevel=None)) == by_name(helm.render())


def test_values_change_the_pods_of_a_program_and_leave_the_rest(helm: Helm) -> None:
    digest = "sha256:" + "0" * 64
    toleration = {"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}
    objects = helm.render(
        image={"repository": "registry.example:5000/kubeshare", "digest": digest},
        scheduler={
            "resources": {"limits": {"memory": "2Gi"}},
            "tolerations": [toleration],
            "nodeSelector": {"pool": "system"},
            "priorityClassName": "high",
        },
        nodeAgent={"nodeSelector": {"gpu": "true"}},
    )
    scheduler, agent = program(objects, "scheduler"), program(objects, "node-agent")
    [container] = scheduler["containers"]
    assert container["image"] == f"registry.example:5000/kubeshare@{digest}"
    assert container["resources"] == {
        "requests": {"cpu": "20m", "memory": "64Mi"},
        "limits": {"memory": "2Gi"},
    }
    assert scheduler["tolerations"] == [toleration]
    assert scheduler["containers"][0]["command"] == ["python3", "-m", "kubeshare.scheduler"]
    assert scheduler["nodeSelector"] == {"pool": "system"}
    assert scheduler["priorityClassName"] == "high"
    assert agent["nodeSelector"] == {"gpu": "true"}
    assert agent["tolerations"] == [{"operator": "Exists"}]


def test_the_configuration_is_that_of_the_values_over_the_defaults(helm: Helm) -> None:
    given = {"pool": {"policy": "hybrid"}, "gangMembers": 7, "labelScope": "namespace"}
    [found] = [one for one in helm.render(configuration=given) if one["kind"] == "ConfigMap"]
    read = parse(found["data"][KEY])
    assert (read.pool.policy, read.gang_members, read.label_scope) == ("hybrid", 7, "namespace")
    assert read.pool.idle_seconds == Configuration().pool.idle_seconds
    assert read.gpu_failure == Configuration().gpu_failure


def test_tolerations_are_added_so_node_programs_tolerate_every_taint(helm: Helm) -> None:
    toleration = {"key": "gpu", "operator": "Exists"}
    objects = helm.render(nodeAgent={"tolerations": [toleration]})
    assert program(objects, "node-agent")["tolerations"] == [{"operator": "Exists"}, toleration]


def test_policies_of_the_programs_are_options_of_their_commands(helm: Helm) -> None:
    objects = helm.render(scheduler={"policy": "topology"}, nodeAgent={"escapes": "kill"})
    [scheduler] = program(objects, "scheduler")["containers"]
    [manager] = program(objects, "device-manager")["containers"]
    [agent] = program(objects, "node-agent")["containers"]
    assert manager["command"][-2:] == ["--policy", "topology"]
    assert scheduler["command"][-2:] == ["--policy", "topology"]
    assert agent["command"][-2:] == ["--escapes", "kill"]


def test_all_pods_of_a_release_have_the_secrets_for_its_image(helm: Helm) -> None:
    objects = helm.render(imagePullSecrets=["a", "b"], extender={"enabled": True})
    pods = [
        one["spec"]["template"]["spec"] for one in objects if one["kind"] in {*WORKLOADS, "Job"}
    ]
    assert len(pods) == 8
    assert all(pod["imagePullSecrets"] == [{"name": "a"}, {"name": "b"}] for pod in pods)


def test_monitoring_is_in_the_release_where_it_is_switched_on(helm: Helm) -> None:
    plain = by_name(helm.render(SPACE))
    on = {"podMonitor": True, "prometheusRule": True, "dashboards": True}
    more = helm.render(SPACE, monitoring=on | {"labels": {"release": "prometheus"}})
    added = [one for key, one in by_name(more).items() if key not in plain]
    assert {one["metadata"]["namespace"] for one in added} == {SPACE}
    dashboards = {name: text for one in added for name, text in one.get("data", {}).items()}
    files = sorted((CHART / "monitoring" / "dashboards").glob("*.json"))
    assert dashboards == {f"kubeshare-{file.name}": file.read_text() for file in files}
    for one in added:
        labels = one["metadata"]["labels"]
        assert labels.pop(COMPONENT) == "monitoring"
        for common in (PART_OF, NAME, INSTANCE, VERSION, MANAGED_BY):
            del labels[common]
        if one["kind"] == "ConfigMap":
            assert labels == {"grafana_dashboard": "1"}
        else:
            file = {"PodMonitor": "pod-monitor", "PrometheusRule": "prometheus-rule"}[one["kind"]]
            path = CHART / "monitoring" / "operator" / f"{file}.yaml"
            assert labels == {"release": "prometheus"}
            assert one["spec"] == yaml.safe_load(path.read_text())["spec"]
    assert len(added) == len(files) + 2


def test_metrics_are_for_those_that_the_network_policy_lists(helm: Helm) -> None:
    peer = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}
    objects = helm.render(networkPolicy={"enabled": True, "from": [peer]})
    [found] = [one for one in objects if one["kind"] == "NetworkPolicy"]
    extender, metrics = found["spec"]["ingress"]
    assert extender == {"ports": [{"port": "extender"}]}
    assert metrics == {"ports": [{"port": "metrics"}], "from": [peer]}
    alone = helm.render(networkPolicy={"enabled": True})
    [found] = [one for one in alone if one["kind"] == "NetworkPolicy"]
    assert found["spec"]["ingress"] == [extender]


def test_a_program_that_is_not_ready_holds_up_no_drain(helm: Helm) -> None:
    objects = helm.render(extender={"enabled": True})
    pods = {
        one["metadata"]["name"]: one["spec"]["template"]["metadata"]["labels"]
        for one in objects
        if one["kind"] == "Deployment"
    }
    budgets = {
        one["metadata"]["name"]: one["spec"]
        for one in objects
        if one["kind"] == "PodDisruptionBudget" and "maxUnavailable" in one["spec"]
    }
    assert budgets.keys() == pods.keys()
    for name, budget in budgets.items():
        assert budget["unhealthyPodEvictionPolicy"] == "AlwaysAllow"
        assert budget["selector"]["matchLabels"].items() <= pods[name].items()


def test_of_a_hook_that_failed_only_its_job_stays(helm: Helm) -> None:
    policies = {
        (one["kind"] == "Job"): one["metadata"]["annotations"]["helm.sh/hook-delete-policy"]
        for one in helm.render()
        if hook_of(one)
    }
    assert policies == {
        True: "before-hook-creation,hook-succeeded",
        False: "before-hook-creation,hook-succeeded,hook-failed",
    }


def test_the_notes_name_what_helm_cannot_do(helm: Helm) -> None:
    values = {"image": IMAGE, "imagePullSecrets": ["a", "b"]}
    arguments = ("install", "r", str(CHART), "--namespace", SPACE, "--dry-run=client")
    said = helm(*arguments, values=values)
    assert f"kubectl label namespace {SPACE} pod-security.kubernetes.io/enforce=privileged" in said
    patch = """--patch '{"imagePullSecrets": [{"name": "a"}, {"name": "b"}]}'"""
    assert f"kubectl patch serviceaccount default --namespace {SPACE} {patch}" in said


@pytest.mark.parametrize(
    ("values", "path"),
    [
        ({"imagee": {}}, "'imagee'"),
        ({"image": {"repository": 7}}, "/image/repository"),
        ({"image": {"repository": "r", "digest": "latest"}}, "/image/digest"),
        ({"driverRoot": "run"}, "/driverRoot"),
        ({"defaultDeny": "yes"}, "/defaultDeny"),
        ({"configuration": {"gangMember": 3}}, "'gangMember'"),
        ({"configuration": {"pool": {"policy": "ondemand"}}}, "/configuration/pool/policy"),
        ({"configuration": {"pool": {"minimum": -1}}}, "/configuration/pool/minimum"),
        ({"configuration": {"gpushare": {"door": "webhook"}}}, "/configuration/gpushare/door"),
        ({"configuration": {"timeQuota": {"pods": {"minimum": 50}}}}, "'maximum'"),
        ({"nodeAgent": {"replicas": 2}}, "'replicas'"),
        ({"scheduler": {"tolerations": {}}}, "/scheduler/tolerations"),
        ({"scheduler": {"policy": "a b"}}, "/scheduler/policy"),
        ({"scheduler": {"affinity": {"nodeSelector": {}}}}, "'nodeSelector'"),
        ({"scheduler": {"podLabels": {"a": 1}}}, "/scheduler/podLabels/a"),
        ({"logLevel": "loud"}, "/logLevel"),
        ({"deviceManager": {"policy": "binpack"}}, "'policy'"),
        ({"nodeAgent": {"escapes": "forbid"}}, "/nodeAgent/escapes"),
        ({"imagePullSecrets": [{"name": "a"}]}, "/imagePullSecrets/0"),
        ({"monitoring": {"podMonitor": "yes"}}, "/monitoring/podMonitor"),
        ({"web": {"host": "a"}}, "'host'"),
        ({"web": {"hosts": ["a b"]}}, "/web/hosts/0"),
        ({"web": {"tlsSecret": "A"}}, "/web/tlsSecret"),
        ({"web": {"viewers": 0}}, "/web/viewers"),
        ({"networkPolicy": {"from": [{"cidr": "0.0.0.0/0"}]}}, "'cidr'"),
    ],
)
def test_a_value_of_a_wrong_type_or_name_is_refused_by_its_path(
    helm: Helm, values: Raw, path: str
) -> None:
    with pytest.raises(HelmError) as caught:
        helm.render(**values)
    assert path in str(caught.value)


def test_an_image_is_asked_for(helm: Helm) -> None:
    with pytest.raises(HelmError, match=r"image\.repository is empty"):
        helm.render(image={})


@pytest.mark.parametrize("namespace", ["default", "kube-system"])
def test_a_namespace_of_others_is_refused_by_helm_and_by_install(
    helm: Helm, namespace: str
) -> None:
    with pytest.raises(HelmError, match="--namespace kubeshare-system --create-namespace"):
        helm.render(namespace)
    with pytest.raises(InvalidValueError, match="KUBESHARE_NAMESPACE"):
        manifests.load(manifests.Options(namespace=namespace))


def test_the_chart_has_the_version_of_the_programs() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == __version__


def test_helm_finds_nothing_wrong(helm: Helm) -> None:
    said = helm("lint", str(CHART), "--strict", "--namespace", SPACE, values={"image": IMAGE})
    assert "0 chart(s) failed" in said
