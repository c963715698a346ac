"""SharePods that hold more memory together than their GPU has, where the node's label allows it."""

from expectations.pods import expect_running
from expectations.scheduling import expect_pending
from expectations.vgpus import expect_holders, expect_owned
from fakes.cluster import FakeCluster, scenario
from fakes.cluster.cluster_objects import GIB
from fakes.cluster.disruptions import label_node, own
from kubeshare.device_manager.owned.controller import SETTLED_SECONDS

FACTOR = {"memory-oversubscription": "1.5"}


async def fill(cluster: FakeCluster) -> None:
    """Three shares of 8 GiB fill a GPU of 16 GiB; a fourth finds no byte."""
    for name in ("a", "b", "c"):
        cluster.share(name, "0.1", memory="8Gi")
        await expect_running(cluster, name)
    cluster.share("d", "0.1", memory="2")
    await expect_pending(cluster, "d")
    await expect_holders(cluster, ["a", "b", "c"])
    (name,) = cluster.vgpus()
    spec = cluster.vgpu(name)["spec"]
    assert (spec["memoryBytes"], spec["physicalMemoryBytes"]) == (24 * GIB, 16 * GIB)


@scenario(agents=True, n1=1)
async def test_a_new_vgpu_gives_out_what_the_label_says(cluster: FakeCluster) -> None:
    label_node(cluster, "n1", **FACTOR)
    cluster.start()
    await fill(cluster)


@scenario(agents=True, n1=1)
async def test_a_static_vgpu_gives_out_what_the_label_says(cluster: FakeCluster) -> None:
    cluster.deadline = 5 * SETTLED_SECONDS
    label_node(cluster, "n1", **FACTOR)
    cluster.start()
    own(cluster, "n1")
    await expect_owned(cluster, "n1")
    await fill(cluster)


@scenario(agents=True, n1=1)
async def test_a_label_that_is_removed_takes_nothing_from_who_has_it(cluster: FakeCluster) -> None:
    label_node(cluster, "n1", **FACTOR)
    cluster.start()
    await fill(cluster)
    label_node(cluster, "n1", **{"memory-oversubscription": None})
    await cluster.quiet(60)
    await expect_holders(cluster, ["a", "b", "c"])
    for name in ("a", "b", "c", "d"):
        cluster.delete(name)
    await cluster.until(lambda: not cluster.vgpus())
    for name in ("e", "f"):
        cluster.share(name, "0.1", memory="8Gi")
        await expect_running(cluster, name)
    cluster.share("g", "0.1", memory="2")
    await expect_pending(cluster, "g")
