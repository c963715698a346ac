"""A placeholder for a selected GPU has a claim that only this GPU satisfies."""

from expectations import expect_vgpus
from fakes.cluster import FakeCluster, scenario
from fakes.objects import vgpu
from kubeshare.api.types.v1 import GPUNODES, VGPUS
from kubeshare.device_manager.placeholder import pods
from kubeshare.kube.resources import NODES, PODS, RESOURCE_CLAIMS, Raw


def offer_by_claims(cluster: FakeCluster, node: str) -> list[str]:
    """NVIDIA's DRA driver offers the GPUs of a node instead of a plugin; returns their UUIDs."""

    def without_plugin(found: Raw) -> None:
        cluster.actors.by_claims[node] = int(found["status"]["allocatable"].pop("nvidia.com/gpu"))

    def with_driver(found: Raw) -> None:
        for device in found["spec"]["devices"]:
            device["claimDriver"] = "gpu.nvidia.com"
        found["spec"]["draCount"] = len(found["spec"]["devices"])

    cluster.server.change(NODES, node, "", without_plugin)
    cluster.server.change(GPUNODES, node, "", with_driver)
    stored = cluster.server.stored(GPUNODES, node)
    assert stored is not None
    return [device["uuid"] for device in stored["spec"]["devices"]]


@scenario(n1=2)
async def test_the_claim_selects_the_gpu_that_the_policy_chose(cluster: FakeCluster) -> None:
    first, _ = offer_by_claims(cluster, "n1")
    cluster.start()
    cluster.share("a")
    await expect_vgpus(cluster, 1)
    [gpuid] = cluster.vgpus()
    made = cluster.server.stored(VGPUS, gpuid)
    assert made is not None
    assert made["spec"]["selectedUuid"] == first
    await cluster.until(lambda: bool(cluster.server.all(PODS, "kubeshare-system")))
    [placeholder] = cluster.server.all(PODS, "kubeshare-system")
    [claim] = cluster.server.all(RESOURCE_CLAIMS, "kubeshare-system")
    [owner] = claim["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"]) == ("VGPU", made["metadata"]["uid"])
    [request] = claim["spec"]["devices"]["requests"]
    assert request["exactly"]["deviceClassName"] == "gpu.nvidia.com"
    [selector] = request["exactly"]["selectors"]
    assert selector["cel"]["expression"].endswith(f".uuid == '{first}'")
    [used] = placeholder["spec"]["resourceClaims"]
    assert used["resourceClaimName"] == claim["metadata"]["name"]
    [container] = placeholder["spec"]["containers"]
    assert container["resources"]["claims"] == [{"name": used["name"]}]
    assert container["resources"]["limits"] == {"cpu": "10m", "memory": "16Mi"}


def test_without_a_selected_gpu_a_placeholder_asks_for_any() -> None:
    [container] = pods.manifest(vgpu("a"), "image", "uid")["spec"]["containers"]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "1"
    assert "claims" not in container["resources"]
