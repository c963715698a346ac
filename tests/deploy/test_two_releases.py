"""A cluster has KubeShare once: Helm says where it is, and changes nothing."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from deploy.helm import CHART, IMAGE, Helm, HelmError
from kubeshare.api.types.constants import NAMESPACE
from kubeshare.install import manifests
from kubeshare.lab.control_plane.api_server import ApiServer
from kubeshare.lab.images import binaries
from kubeshare.lab.progress import Progress

pytestmark = pytest.mark.apiserver

OTHER: Final = "second"
BINDING: Final = "kubeshare-scheduler"


@pytest.fixture
def helm(system: ApiServer, tmp_path: Path) -> Helm:
    return Helm(binaries.helm(Progress()), tmp_path, system.kubeconfig)


@pytest.fixture(params=["Helm", "kubeshare install"])
def first(request: pytest.FixtureRequest, system: ApiServer) -> Iterator[str]:
    """An installation in the namespace of the programs: the name of its release, or ""."""
    [binding] = [
        one
        for one in manifests.load(manifests.Options())
        if (one["kind"], one["metadata"]["name"]) == ("ClusterRoleBinding", BINDING)
    ]
    release = "mine" if request.param == "Helm" else ""
    if release:
        binding["metadata"]["annotations"] = {
            "meta.helm.sh/release-name": release,
            "meta.helm.sh/release-namespace": NAMESPACE,
        }
        binding["metadata"]["labels"]["app.kubernetes.io/managed-by"] = "Helm"
    system.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(binding))
    yield release
    system.kubectl("delete", "clusterrolebinding", BINDING)


def install(helm: Helm, release: str, namespace: str, *options: str) -> str:
    arguments = ("install", release, str(CHART), "--namespace", namespace, *options)
    return helm(*arguments, values={"image": IMAGE})


def stored(system: ApiServer) -> list[dict[str, Any]]:
    """What Helm would have written: its releases, and the binding that is there."""
    everywhere = system.kubectl("get", "secrets", "-A", "-o", "json")
    releases = [
        one for one in json.loads(everywhere)["items"] if one["type"] == "helm.sh/release.v1"
    ]
    binding = system.kubectl("get", "clusterrolebinding", BINDING, "-o", "json")
    return [*releases, json.loads(binding)]


def test_a_second_release_elsewhere_is_refused_and_nothing_is_written(
    helm: Helm, system: ApiServer, first: str
) -> None:
    before = stored(system)
    with pytest.raises(HelmError) as caught:
        install(helm, "other", OTHER, "--create-namespace")
    words = f"this cluster has KubeShare in namespace {NAMESPACE}, and can have it once: upgrade it"
    assert words in str(caught.value)
    assert f"helm upgrade {first or 'other'} … --namespace {NAMESPACE}" in str(caught.value)
    assert stored(system) == before
    assert [one for one in before if one["kind"] == "Secret"] == []


def test_the_release_itself_is_not_taken_for_a_second_one(helm: Helm, first: str) -> None:
    # The server's kinds have come without Helm; with a real release they would be its own.
    options = ("--dry-run=server", "--take-ownership")
    assert f"name: {BINDING}\n" in install(helm, first or "any", NAMESPACE, *options)


def test_a_release_of_another_name_beside_it_is_refused(
    helm: Helm, system: ApiServer, first: str
) -> None:
    before = stored(system)
    with pytest.raises(HelmError) as caught:
        install(helm, "other", NAMESPACE)
    said = str(caught.value)
    if first:
        assert f"helm upgrade {first} … --namespace {NAMESPACE}" in said
    else:  # Helm itself takes over nothing that it has not made
        assert "cannot be imported into the current release" in said
    assert stored(system) == before
