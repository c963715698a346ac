"""Labels in a cluster: whichever policy places, and whichever scope is configured."""

from typing import Any

from expectations.scheduling import expect_decided, expect_pending
from fakes import manifests
from fakes.cluster import FakeCluster, scenario
from kubeshare.api.types.v1 import SHAREPODS
from kubeshare.kube.resources import EVENTS
from scheduler.gang.gangs import labels


def share_in(cluster: FakeCluster, namespace: str, name: str, **gpu: Any) -> None:
    """Creates a SharePod in another namespace."""
    asked = {"request": "0.3", "memory": "1Gi", **gpu}
    made = manifests.sharepod(name, asked, metadata={"namespace": namespace})
    cluster.server.seed(SHAREPODS, made)


@scenario(n1=1)
async def test_the_scope_of_labels_may_be_changed_while_somebody_waits(
    cluster: FakeCluster,
) -> None:
    cluster.configure(labelScope="namespace")
    share_in(cluster, "other", "theirs", exclusion="e")
    cluster.start("scheduler")
    await cluster.until(lambda: cluster.shares_gpu("theirs"))
    cluster.share("mine", exclusion="e")
    await expect_pending(cluster, "mine", "exclusion of another namespace, asked default/e")
    cluster.configure(labelScope="cluster")
    await cluster.until(lambda: cluster.shares_gpu("mine", "theirs"))


@scenario(n1=1)
async def test_what_is_recorded_are_the_labels_as_they_were_written(cluster: FakeCluster) -> None:
    cluster.configure(labelScope="namespace")
    cluster.share("mine", affinity="red", antiAffinity="g", exclusion="e")
    cluster.start("scheduler")
    await expect_decided(cluster, "mine")
    (gpuid,) = cluster.vgpus()
    (holder,) = cluster.vgpu(gpuid)["status"]["holders"]
    labels = [holder[kind] for kind in ("affinity", "antiAffinity", "exclusion")]
    assert labels == ["red", "g", "e"]


@scenario(n1=1)
async def test_binpack_keeps_to_the_labels_of_holders(cluster: FakeCluster) -> None:
    cluster.policy = "binpack"
    cluster.reserve("n1", "gpu")
    cluster.share("first", exclusion="e", antiAffinity="g")
    cluster.start()
    await expect_decided(cluster, "first")
    cluster.share("plain")
    await expect_pending(cluster, "plain", "n1/gpu: exclusion e, asked none")
    cluster.share("second", exclusion="e", antiAffinity="g")
    await expect_pending(cluster, "second", "n1/gpu: anti-affinity g is on it already")
    cluster.share("third", exclusion="e", antiAffinity="h")
    await expect_decided(cluster, "third")


@scenario(n1=1)
async def test_neither_condition_nor_event_names_objects_of_another_namespace(
    cluster: FakeCluster,
) -> None:
    cluster.start()
    await cluster.run("secret", "0.9", exclusion="classified", id="covert")
    share_in(cluster, "other", "mine", request="0.5")

    def texts() -> str:
        conditions = (cluster.server.stored(SHAREPODS, "mine", "other") or {}).get("status", {})
        events = [each["note"] for each in cluster.server.all(EVENTS, "other")]
        return " ".join([str(conditions), *events])

    named = "a GPU on n1 that another namespace named"
    await cluster.until(lambda: f"a demand of another namespace leaves {named}" in texts())
    assert f"{named}: exclusion of another namespace, asked none" in texts()
    assert "secret" not in texts()
    assert "classified" not in texts()
    assert "covert" not in texts()


@scenario(n1=1)
async def test_nor_does_the_condition_of_a_gang_whose_members_have_different_labels(
    cluster: FakeCluster,
) -> None:
    cluster.start()
    await cluster.run("theirs", "0.9", affinity="red", id="covert")
    asked = {"request": "0.05", "memory": "1Gi"}
    wants = {"a": asked, "b": {"request": "0.5", "memory": "1Gi", "affinity": "red"}}
    for second, (name, gpu) in enumerate(wants.items()):
        created = f"2026-01-01T00:00:{second:02}Z"
        metadata = {"namespace": "other", "labels": labels(2), "creationTimestamp": created}
        cluster.server.seed(SHAREPODS, manifests.sharepod(name, gpu, metadata=metadata))

    def texts() -> str:
        found = (cluster.server.stored(SHAREPODS, name, "other") or {} for name in wants)
        events = [each["note"] for each in cluster.server.all(EVENTS, "other")]
        return " ".join([*(str(each.get("status")) for each in found), *events])

    words = "affinity red is on a GPU on n1 that another namespace named"
    await cluster.until(lambda: words in texts())
    assert "covert" not in texts()
