"""Labels in a cluster: whichever policy places, and whichever scope is configured."""

from typing import Any

from expectations import expect_decided, expect_pending
from fakes import manifests
from fakes.cluster import World, scenario
from kubeshare.api.types.v1 import SHAREPODS


def share_in(world: World, namespace: str, name: str, **gpu: Any) -> None:
    """Creates a SharePod in another namespace."""
    asked = {"request": "0.3", "memory": "1Gi", **gpu}
    made = manifests.sharepod(name, asked, metadata={"namespace": namespace})
    world.server.seed(SHAREPODS, made)


@scenario(n1=1)
async def test_the_scope_of_labels_may_be_changed_while_somebody_waits(world: World) -> None:
    world.configure(labelScope="namespace")
    share_in(world, "other", "theirs", exclusion="e")
    world.start("scheduler")
    await world.until(lambda: world.shares_gpu("theirs"))
    world.share("mine", exclusion="e")
    await expect_pending(world, "mine", "exclusion other/e, asked default/e")
    world.configure(labelScope="cluster")
    await world.until(lambda: world.shares_gpu("mine", "theirs"))


@scenario(n1=1)
async def test_what_is_recorded_are_the_labels_as_they_were_written(world: World) -> None:
    world.configure(labelScope="namespace")
    world.share("mine", affinity="red", antiAffinity="g", exclusion="e")
    world.start("scheduler")
    await expect_decided(world, "mine")
    (gpuid,) = world.vgpus()
    (holder,) = world.vgpu(gpuid)["status"]["holders"]
    labels = [holder[kind] for kind in ("affinity", "antiAffinity", "exclusion")]
    assert labels == ["red", "g", "e"]


@scenario(n1=1)
async def test_binpack_keeps_to_the_labels_of_holders(world: World) -> None:
    world.policy = "binpack"
    world.reserve("n1", "gpu")
    world.share("first", exclusion="e", antiAffinity="g")
    world.start()
    await expect_decided(world, "first")
    world.share("plain")
    await expect_pending(world, "plain", "n1/gpu: exclusion e, asked none")
    world.share("second", exclusion="e", antiAffinity="g")
    await expect_pending(world, "second", "n1/gpu: anti-affinity g is on it already")
    world.share("third", exclusion="e", antiAffinity="h")
    await expect_decided(world, "third")
