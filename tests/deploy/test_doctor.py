"""`kubeshare doctor` takes what a real API server stores for what was installed."""

import asyncio

import pytest

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
