"""A vGPU gets a GPU of the model and with the memory that its SharePod asks for."""

import pytest

from expectations.pods import expect_condition, expect_running
from expectations.vgpus import expect_placeholders
from fakes.cluster import FakeCluster, scenario
from kubeshare.api.types.constants import NAMESPACE
from kubeshare.api.types.v1 import GPUNODES
from kubeshare.device_manager.placeholder.fillers import manifest
from kubeshare.device_manager.placeholder.gpu_selector import SELECTION_SECONDS
from kubeshare.kube.resources import NODES, PODS, Raw, Resource
from kubeshare.simulator.control_tier.objects import gpu_uuid


def set_models(cluster: FakeCluster, node: str, *models: str) -> None:
    """The GPUs of a node are of these models."""

    def change(found: Raw) -> None:
        for device, model in zip(found["spec"]["devices"], models, strict=True):
            device["model"] = model

    cluster.server.change(GPUNODES, node, "", change)


@pytest.mark.parametrize("models", [("A100", "V100"), ("A100", "A100", "V100", "A100")])
def test_the_plugin_gives_another_model_first(models: tuple[str, ...]) -> None:
    @scenario(n1=len(models))
    async def run(cluster: FakeCluster) -> None:
        set_models(cluster, "n1", *models)
        cluster.start()
        cluster.share("a", "0.5", model="V100")
        await expect_running(cluster, "a")
        (gpuid,) = cluster.vgpus()
        assert cluster.vgpu(gpuid)["spec"]["uuid"] == gpu_uuid("n1", models.index("V100"))
        assert cluster.vgpu(gpuid)["status"].get("conditions", []) == []
        await expect_placeholders(cluster, 1)

    run()


@scenario(n1=3)
async def test_the_plugin_gives_a_gpu_with_too_little_memory_first(cluster: FakeCluster) -> None:
    """Whoever names no model is given any that has the memory."""

    def enlarge(found: Raw) -> None:
        found["spec"]["devices"][2].update(memoryBytes=32 << 30, model="V100-32GB")

    cluster.server.change(GPUNODES, "n1", "", enlarge)
    cluster.start()
    cluster.share("a", "0.5", memory="20Gi")
    await expect_running(cluster, "a")
    (gpuid,) = cluster.vgpus()
    assert cluster.vgpu(gpuid)["spec"]["uuid"] == gpu_uuid("n1", 2)
    await expect_placeholders(cluster, 1)
    cluster.share("b", "0.5", memory="1Gi")
    await expect_running(cluster, "b")


@pytest.mark.parametrize("last_first", [False, True])
def test_each_gets_its_model_or_memory_where_every_gpu_differs(*, last_first: bool) -> None:
    @scenario(n1=3)
    async def run(cluster: FakeCluster) -> None:
        set_models(cluster, "n1", "V100", "V100-32GB", "A100")

        def enlarge(found: Raw) -> None:
            found["spec"]["devices"][1]["memoryBytes"] = 32 << 30

        cluster.server.change(GPUNODES, "n1", "", enlarge)
        cluster.actors.last_first = last_first
        cluster.start()
        cluster.share("a", "0.5", model="A100")
        cluster.share("b", "0.5", memory="20Gi")
        cluster.share("c", "0.5", model="V100")
        await expect_running(cluster, "a", "b", "c", seconds=200)
        uuids = {
            holders[0]: cluster.vgpu(gpuid)["spec"]["uuid"]
            for gpuid, holders in cluster.vgpus().items()
        }
        assert uuids == {name: gpu_uuid("n1", gpu) for gpu, name in enumerate("cba")}

    run()


@scenario(n1=3)
async def test_each_of_several_sharepods_gets_its_model(cluster: FakeCluster) -> None:
    set_models(cluster, "n1", "A100", "V100", "V100")
    cluster.start()
    for name in "ab":
        cluster.share(name, "1", memory="16Gi", model="V100")
    await expect_running(cluster, "a", "b")
    await cluster.run("c", "1", memory="16Gi", model="A100")
    await expect_placeholders(cluster, 3)


@scenario(n1=2)
async def test_no_gpu_is_kept_while_there_is_none_of_the_model(cluster: FakeCluster) -> None:
    """A pod has taken the only GPU of the model before the placeholder."""
    set_models(cluster, "n1", "A100", "V100")
    cluster.actors.last_first = True
    cluster.start("scheduler")
    cluster.share("a", "0.5", model="V100")
    await cluster.until(lambda: len(cluster.vgpus()) == 1)
    cluster.native_pod("first")
    await expect_running(cluster, "first")
    cluster.actors.last_first = False
    cluster.start("devices")
    await expect_condition(cluster, "a", "Allocated", "OtherModel")
    await expect_placeholders(cluster, 0)
    await cluster.quiet(1.5 * SELECTION_SECONDS)
    cluster.native_pod("second")
    await expect_running(cluster, "second")
    assert cluster.placeholders() == []
    cluster.end("first")
    await expect_running(cluster, "a", seconds=200)


@pytest.mark.parametrize("gone", [NODES, GPUNODES])
def test_the_fillers_of_a_node_that_is_gone_are_deleted(gone: Resource[Raw]) -> None:
    """The program was killed after it had created them."""

    @scenario(n1=1)
    async def run(cluster: FakeCluster) -> None:
        filler = manifest("n1", "image")
        filler["metadata"]["name"] = "kubeshare-filler-x"
        cluster.server.remove(gone, "n1")
        cluster.server.seed(PODS, filler)
        cluster.start("devices")
        await cluster.until(lambda: cluster.server.all(PODS, NAMESPACE) == [])

    run()
