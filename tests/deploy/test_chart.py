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


def of_the_release(objects: list[Raw]) -> dict[tuple[str, ...], Raw]:
    """What stays, without the word by which Helm keeps the kinds."""
    stays = [one for one in objects if not hook_of(one)]
    for one in stays:
        if one["kind"] == "CustomResourceDefinition":
            assert one["metadata"].pop("annotations") == {"helm.sh/resource-policy": "keep"}
    return by_name(stays)


def program(objects: list[Raw], name: str) -> Raw:
    [found] = [
        one
        for one in objects
        if one["metadata"]["name"] == f"kubeshare-{name}" and one["kind"] in WORKLOADS
    ]
    pod: Raw = found["spec"]["template"]["spec"]
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
        ({"nodeAgent": {"replicas": 2}}, "'replicas'"),
        ({"scheduler": {"tolerations": {}}}, "/scheduler/tolerations"),
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
