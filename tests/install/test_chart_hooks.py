"""The hooks of the Helm chart have the rights that they need, and no others."""

import copy

import pytest

from deploy.helm import Helm
from fakes.cluster import FakeCluster
from fakes.cluster.scenarios import run_scenario
from install.test_removal import install, pods, uninstall
from kubeshare.install import manifests, rollout
from kubeshare.install.readiness import WORKLOADS
from kubeshare.kube.resources import CUSTOM_RESOURCE_DEFINITIONS, DAEMON_SETS
from kubeshare.lab.images import binaries
from kubeshare.lab.progress import Progress
from kubeshare.simulator.control import Authorizer, Permission

pytestmark = pytest.mark.slow

VGPU_KIND = "vgpus.kubeshare.nthu"
OTHERWISE = {
    # The device manager is another client here; nodes of gpushare, pods that somebody else changes
    # at the same time, and vGPUs with a finalizer.
    Permission(
        "impersonate", "", "serviceaccounts", "kubeshare-system", ("kubeshare-device-manager",)
    ),
    Permission("patch", "", "nodes/status"),
    Permission("get", "", "pods"),
    Permission("patch", "kubeshare.nthu", "vgpus"),
}
"""Rights that this life of a cluster does not use."""


@pytest.fixture(scope="module")
def hooks(tmp_path_factory: pytest.TempPathFactory) -> list[manifests.Manifest]:
    helm = Helm(binaries.helm(Progress()), tmp_path_factory.mktemp("helm"))
    return helm.render()


def test_before_a_release_goes(hooks: list[manifests.Manifest]) -> None:
    rights = Authorizer(hooks, "kubeshare-uninstall")

    async def life(cluster: FakeCluster) -> None:
        programs = [one for one in install(cluster) if one["kind"] in WORKLOADS]
        cluster.start()
        await cluster.run("a")
        cluster.share("b", "0.9")
        cluster.server.authorizers["administrator"] = rights

        assert await uninstall(cluster, programs) == ["default/a on n1"]
        assert cluster.running("a")
        for pod in pods(cluster):
            cluster.actors.delete(pod)
        assert await uninstall(cluster, programs, wait=60) == []
        # It signs its writes as the command does, with no program's name.
        del cluster.server.authorizers["administrator"]
        assert not cluster.server.all(DAEMON_SETS)
        assert cluster.server.all(CUSTOM_RESOURCE_DEFINITIONS)
        assert not cluster.vgpus()

    run_scenario(life, n1=1, agents=True)
    assert rights.unused == OTHERWISE


def test_before_a_release_changes(hooks: list[manifests.Manifest]) -> None:
    rights = Authorizer(hooks, "kubeshare-check")

    async def life(cluster: FakeCluster) -> None:
        [later] = [one for one in install(cluster) if one["metadata"]["name"] == VGPU_KIND]
        cluster.start()
        await cluster.run("a")
        cluster.server.authorizers["administrator"] = rights
        earlier = copy.deepcopy(later)
        schema = earlier["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        del schema["properties"]["status"]["properties"]["holders"]["items"]["properties"]["podUid"]

        async with cluster.server.client("administrator") as client:
            with pytest.raises(rollout.RolloutError, match="default/a"):
                await rollout.check(client, [earlier])

    run_scenario(life, n1=1, agents=False)
    assert not rights.unused
