"""A placeholder for a selected GPU has a claim that only this GPU satisfies."""

from expectations import expect_vgpus
from fakes.cluster import FakeCluster, scenario
from fakes.cluster.disruptions import serve_by_claims
from fakes.objects import vgpu
from kubeshare.api.types.v1 import VGPUS
from kubeshare.device_manager.placeholder import pods
from kubeshare.kube.resources import PODS, RESOURCE_CLAIMS


@scenario(n1=2)
async def test_the_claim_selects_the_gpu_that_the_policy_chose(cluster: FakeCluster) -> None:
    first, _ = serve_by_claims(cluster, "n1")
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
