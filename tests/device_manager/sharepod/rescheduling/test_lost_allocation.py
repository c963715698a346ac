"""Restarts bound pods that lost an allocation before starting."""

from itertools import count

from expectations.pods import (
    expect_condition,
    expect_event,
    expect_no_pod,
    expect_pod,
    expect_replaced,
    expect_running,
    expect_ungated,
)
from expectations.vgpus import expect_holder_count
from fakes.cluster import FakeCluster, scenario
from fakes.cluster.state import is_same_pod, the_pod
from kubeshare.api.types.v1 import VGPUS
from kubeshare.kube.resources import PODS, Raw
from kubeshare.simulator.control import Fault

TWO = {"kubeshare.nthu/count": "2"}


def lose_a_part(cluster: FakeCluster) -> str:
    """Removes a holder as a paused former leader may; returns its vGPU."""
    lost = min(cluster.vgpus())
    cluster.server.change(VGPUS, lost, "", lambda vgpu: vgpu["status"].update(holders=[]))
    return lost


async def bound_with_one_part(cluster: FakeCluster, name: str = "a") -> Raw:
    """Binds the pod after one of its shares is gone, while no program runs."""
    await expect_holder_count(cluster, 2)
    await expect_pod(cluster, name)
    await cluster.quiet(1)
    await cluster.kill()
    lose_a_part(cluster)
    cluster.actors.binds = True
    cluster.actors.reconcile()
    pod = the_pod(cluster, name)
    assert pod["spec"]["nodeName"]
    cluster.start()
    return pod


@scenario(n1=2)
async def test_a_sharepod_has_its_gpus_chosen_again(cluster: FakeCluster) -> None:
    cluster.actors.binds = False
    cluster.start()
    cluster.share("a", "0.6", count=2)
    pod = await bound_with_one_part(cluster)
    await expect_condition(cluster, "a", "Allocated", "PartTakenBack")
    await expect_replaced(cluster, pod)
    await expect_running(cluster, "a")
    assert list(cluster.vgpus().values()) == [["a"], ["a"]]
    words = "was taken back before the pod began: the pod is deleted"
    assert any(words in each for each in cluster.events("a"))
    assert cluster.sharepod("a")["spec"]["gpu"]["attempt"] == 2


@scenario(n1=1)
async def test_one_that_has_lost_all_begins_again_too(cluster: FakeCluster) -> None:
    cluster.actors.binds = False
    cluster.start()
    cluster.share("a")
    await expect_pod(cluster, "a")
    await cluster.quiet(1)
    await cluster.kill()
    lose_a_part(cluster)
    cluster.actors.binds = True
    cluster.actors.reconcile()
    before = the_pod(cluster, "a")
    cluster.start()
    await expect_replaced(cluster, before)
    await expect_running(cluster, "a")


@scenario(n1=2)
async def test_a_controllers_pod_is_made_again_when_its_budget_allows_it(
    cluster: FakeCluster,
) -> None:
    cluster.actors.binds = False
    cluster.invariants.doubles = True
    cluster.start()
    numbers, owned = count(), {"owner": "web", "annotations": TWO}

    def make() -> None:
        cluster.plain(f"web-{next(numbers)}", "0.6", **owned)

    cluster.actors.controllers["web"] = (make, 1)
    cluster.actors.reconcile()
    refused = Fault.answer(429, "TooManyRequests")
    cluster.server.inject(refused, verb="create", resource="pods/eviction")
    await expect_ungated(cluster, "web-0")
    await bound_with_one_part(cluster, "web-0")
    await expect_event(cluster, "web-0", "EvictionRefused")
    await expect_no_pod(cluster, "web-0")
    await expect_running(cluster, "web-1")
    assert any("so that its controller makes another" in each for each in cluster.events("web-0"))


@scenario(n1=2)
async def test_a_pod_of_its_own_is_told_what_to_do_once(cluster: FakeCluster) -> None:
    cluster.actors.binds = False
    cluster.invariants.doubles = True
    cluster.start()
    cluster.plain("a", "0.6", annotations=TWO)
    await expect_ungated(cluster, "a")
    pod = await bound_with_one_part(cluster)
    await expect_event(cluster, "a", "PartTakenBack")
    await cluster.quiet(100)
    (event,) = [each for each in cluster.events("a") if each.startswith("PartTakenBack")]
    assert event.endswith("delete it, and make it again")
    assert is_same_pod(cluster, pod)


@scenario(n1=2)
async def test_a_pod_that_has_begun_is_its_nodes(cluster: FakeCluster) -> None:
    cluster.actors.binds = False
    cluster.start()
    cluster.share("a", "0.6", count=2)
    pod = await bound_with_one_part(cluster)
    begun = {"conditions": [{"type": "PodReadyToStartContainers", "status": "True"}]}
    cluster.server.change(PODS, "a", "default", lambda obj: obj["status"].update(begun))
    await cluster.quiet(120)
    assert is_same_pod(cluster, pod)


@scenario(n1=2)
async def test_a_part_that_is_only_not_seen_is_not_missed(cluster: FakeCluster) -> None:
    """The watch of vGPUs lags: the controller reads from the API server before it acts."""
    cluster.actors.binds = False
    cluster.configure(pool={"policy": "reservation"})
    cluster.start()
    cluster.share("a", "0.6", count=2)
    pod = await bound_with_one_part(cluster)
    await expect_condition(cluster, "a", "Allocated", "PartTakenBack")
    lost, kept = sorted(cluster.vgpus(), key=lambda gpuid: len(cluster.vgpus()[gpuid]))
    holders = cluster.vgpu(kept)["status"]["holders"]
    cluster.server.freeze_watches()
    cluster.server.change(VGPUS, lost, "", lambda vgpu: vgpu["status"].update(holders=holders))
    await cluster.quiet(60)
    assert is_same_pod(cluster, pod)
