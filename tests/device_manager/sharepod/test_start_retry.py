"""Retries the start of pods that their node has refused."""

from expectations.pods import expect_pod
from fakes.cluster import FakeCluster, scenario
from fakes.cluster.state import the_pod
from kubeshare.device_manager.sharepod.start_retry import FIRST_RETRY_SECONDS, MAX_RETRIES
from kubeshare.kube.resources import PODS

NUDGED = "kubeshare.nthu/nudged"


def touches(cluster: FakeCluster) -> list[str]:
    patches = [each for each in cluster.server.requests if each.verb == "patch"]
    return [
        each.body["metadata"]["annotations"][NUDGED] for each in patches if each.resource == "pods"
    ]


@scenario(n1=1)
async def test_a_pod_that_does_not_begin_is_touched_a_few_times_with_growing_pauses(
    cluster: FakeCluster,
) -> None:
    cluster.start()
    await cluster.run("a")
    cluster.actors.node_agents = False
    cluster.share("b")
    await cluster.until(lambda: cluster.pod_uids().get("b"))
    await cluster.quiet(FIRST_RETRY_SECONDS / 2)
    assert touches(cluster) == []
    await cluster.quiet(FIRST_RETRY_SECONDS)
    assert len(touches(cluster)) == 1
    await cluster.until(lambda: len(touches(cluster)) == 2)
    await cluster.quiet(3600)
    assert len(touches(cluster)) == MAX_RETRIES
    pod = the_pod(cluster, "b")
    assert pod["metadata"]["annotations"][NUDGED] == touches(cluster)[-1]


@scenario(n1=1)
async def test_a_pod_that_begins_in_time_is_not_touched(cluster: FakeCluster) -> None:
    cluster.start()
    await cluster.run("a")
    await cluster.quiet(600)
    assert touches(cluster) == []


@scenario(n1=1)
async def test_a_pod_whose_images_take_long_is_not_touched(cluster: FakeCluster) -> None:
    cluster.start()
    await cluster.run("a")
    cluster.actors.node_agents = False
    cluster.share("b")
    await expect_pod(cluster, "b")
    begun = {"type": "PodReadyToStartContainers", "status": "True"}
    bound = {"type": "PodScheduled", "status": "True"}
    cluster.server.change(
        PODS, "b", "default", lambda pod: pod["status"].update(conditions=[bound, begun])
    )
    await cluster.quiet(600)
    assert touches(cluster) == []
