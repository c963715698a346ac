"""KubeShare is taken off a lab in use, and put on it again."""

import asyncio

import pytest

from e2e.booting import install
from e2e.space import BURN, Space
from e2e.stage import Stage
from kubeshare.install import manifests
from kubeshare.install import uninstall as removal
from kubeshare.kube.client.client import Client

pytestmark = pytest.mark.lab

PODS = ("x", "y")


def uninstall(stage: Stage, wait: float) -> list[str]:
    async def remove() -> list[str]:
        config = stage.lab.kubeconfig
        async with (
            Client.connect(config) as client,
            Client.connect(config, impersonate=removal.DEVICE_MANAGER) as device_manager,
        ):
            loaded = manifests.load(manifests.Options())
            say = stage.lab.progress.say
            return await removal.uninstall(
                client, device_manager, loaded, wait=wait, deadline=90, say=say
            )

    return asyncio.run(remove())


def test_pods_outlive_kubeshare_and_keep_their_shares_until_they_end(
    stage: Stage, space: Space
) -> None:
    for name in PODS:
        space.share(name, {"request": "0.5", "memory": "64Mi", "affinity": "pair"}, BURN)
    place, _ = [space.ready(name) for name in PODS]
    before = [space.lives(name) for name in PODS]
    run_folder = stage.node(place.node).machine.path("/run/kubeshare")
    assert run_folder.is_mount()
    stage.keep_logs()
    try:
        running = uninstall(stage, 0)

        assert sorted(running) == [f"{space.name}/{name} on {place.node}" for name in PODS]
        assert space.sharepods() == []
        stage.works_for(place, *PODS)
        assert [space.lives(name) for name in PODS] == before
        assert set(stage.top(place)) == set(PODS)
        assert set(stage.holders(place.gpuid)) == set(PODS)
        assert len(stage.placeholders()) == 1

        for name in PODS:
            space.delete("pod", name)
        assert uninstall(stage, 60) == []
        assert "kubeshare" not in stage.kubectl("get", "crds,namespaces", "-o", "name")
        assert stage.placeholders() == []
        assert not run_folder.is_mount()
    finally:
        install(stage)
