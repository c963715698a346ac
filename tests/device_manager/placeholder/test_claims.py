"""A placeholder for a selected GPU has a claim that only this GPU satisfies."""

import pytest

from expectations.pods import expect_condition, expect_running
from expectations.vgpus import expect_vgpus
from fakes.cluster import FakeCluster, scenario
from fakes.cluster.disruptions import fail_gpu, serve_by_claims
from fakes.cluster.state import degraded, held_gpus
from fakes.objects import vgpu
from kubeshare.api.types.v1 import VGPUS
from kubeshare.device_manager.placeholder import pods
from kubeshare.device_manager.placeholder.claims import Claims, claim_name
from kubeshare.kube.client.errors import ConflictError
from kubeshare.kube.resources import PODS, RESOURCE_CLAIMS
from kubeshare.simulator.control import FakeApiServer, run_virtual


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


@scenario(n1=2)
async def test_a_lost_claim_fences_the_vgpu_until_another_claim_has_the_gpu(
    cluster: FakeCluster,
) -> None:
    uuid, _ = serve_by_claims(cluster, "n1")
    cluster.start()
    await cluster.run("a", "0.5")
    [gpuid] = cluster.vgpus()
    placeholder = cluster.vgpu(gpuid)["spec"]["placeholderUid"]
    cluster.actors.node_agents = False
    [claim] = cluster.server.all(RESOURCE_CLAIMS, "kubeshare-system")
    cluster.server.remove(RESOURCE_CLAIMS, claim["metadata"]["name"], "kubeshare-system")
    await cluster.until(lambda: degraded(cluster).get("reason") == "PlaceholderLost")
    cluster.share("b", "0.1", affinity="beside", id=gpuid, spec={"nodeName": "n1"})
    await expect_condition(cluster, "b", "Allocated", "NoRoom")
    cluster.actors.node_agents = True
    await cluster.until(lambda: degraded(cluster).get("status") == "False")
    spec = cluster.vgpu(gpuid)["spec"]
    assert (spec["uuid"], spec["placeholderUid"] != placeholder) == (uuid, True)
    [claim] = cluster.server.all(RESOURCE_CLAIMS, "kubeshare-system")
    assert uuid in str(claim["spec"])


@scenario(n1=2)
async def test_a_gpu_that_fails_before_its_placeholder_has_it_is_chosen_no_more(
    cluster: FakeCluster,
) -> None:
    first, second = serve_by_claims(cluster, "n1")
    cluster.start("scheduler")
    cluster.share("a", "0.5")
    await expect_vgpus(cluster, 1)
    fail_gpu(cluster, "n1", 0)
    cluster.actors.full.add("n1")
    cluster.start("devices")
    cluster.actors.full.clear()
    await expect_running(cluster, "a")
    await cluster.until(lambda: len(cluster.vgpus()) == 1)
    [gpuid] = cluster.vgpus()
    assert cluster.vgpu(gpuid)["spec"]["uuid"] == second != first


@scenario(n1=2)
async def test_sharepods_of_a_gpu_that_fails_run_on_another(cluster: FakeCluster) -> None:
    first, second = serve_by_claims(cluster, "n1")
    cluster.configure(gpuFailure="evict")
    cluster.start()
    await cluster.run("a", "0.5")
    await cluster.run("b", "0.5")
    assert set(held_gpus(cluster).values()) == {first}
    fail_gpu(cluster, "n1", 0)
    await cluster.until(lambda: set(held_gpus(cluster).values()) == {second})
    await expect_running(cluster, "a", "b")
    await expect_vgpus(cluster, 1, placeholders=1)


def test_a_claim_is_made_once_and_only_the_one_that_was_seen_is_deleted() -> None:
    made, name, namespace = vgpu("a"), claim_name(vgpu("a")), "kubeshare-system"

    async def main() -> None:
        server = FakeApiServer()
        claims = Claims(server.client())
        assert await claims.is_lost(made)
        await claims.delete(made)
        for _ in range(2):
            await claims.create(made)
        assert not claims.is_watched(made)
        assert not await claims.is_lost(made)
        seen = await server.client().list(claims.reflector.resource, namespace)
        claims.reflector.store.replace(seen.items)
        assert claims.is_watched(made)
        server.remove(RESOURCE_CLAIMS, name, namespace)
        await claims.delete(made)
        server.seed(RESOURCE_CLAIMS, {"metadata": {"name": name, "namespace": namespace}})
        with pytest.raises(ConflictError):
            await claims.delete(made)
        assert server.stored(RESOURCE_CLAIMS, name, namespace) is not None

    run_virtual(main())
