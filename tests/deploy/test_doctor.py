"""`kubeshare doctor` takes what a real API server stores for what was installed."""

import asyncio

import pytest

from kubeshare.api.types.constants import NAMESPACE
from kubeshare.cli.doctor import examine
from kubeshare.install.checks.finding import Finding, Level
from kubeshare.kube.client.client import Client
from kubeshare.lab.control_plane.api_server import ApiServer

pytestmark = pytest.mark.apiserver


def examined(cluster: ApiServer) -> dict[str, Finding]:
    async def main() -> list[Finding]:
        async with Client.connect(cluster.kubeconfig) as client:
            return await examine(client)

    return {each.check: each for each in asyncio.run(main())}


def test_kinds_and_policies_are_as_installed_until_somebody_changes_them(
    cluster: ApiServer,
) -> None:
    found = examined(cluster)
    fine = ("Kubernetes", "API kinds", "feature gates", "kinds", "admission policies", "clocks")
    assert [(name, found[name].level, found[name].seen) for name in fine] == [
        (name, Level.OK, found[name].seen) for name in fine
    ]
    assert found["feature gates"].seen == (
        "on: DRAConsumableCapacity, DRAExtendedResource, MutatingAdmissionPolicy"
    )
    assert found["programs"].level is Level.FAIL


def test_a_namespace_that_helm_has_made_is_found_without_labels(cluster: ApiServer) -> None:
    namespaces = cluster.get("/api/v1/namespaces")["items"]
    if NAMESPACE not in [each["metadata"]["name"] for each in namespaces]:
        cluster.kubectl("create", "namespace", NAMESPACE)
    part_of = "app.kubernetes.io/part-of"
    cluster.kubectl("label", "namespace", NAMESPACE, f"{part_of}-")
    try:
        assert "there is no namespace" not in examined(cluster)["namespace"].seen
    finally:
        cluster.kubectl("label", "namespace", NAMESPACE, f"{part_of}=kubeshare")
