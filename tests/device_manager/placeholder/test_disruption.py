"""A placeholder must not be evicted while pods share its GPU."""

from expectations.pods import expect_running
from expectations.vgpus import expect_activated, expect_phases, expect_placeholders
from fakes import manifests
from fakes.cluster import FakeCluster, scenario
from kubeshare.api.types.constants import ANNOTATION_SAFE_TO_EVICT, LABEL_IN_USE, NAMESPACE
from kubeshare.api.types.v1 import VGPUS
from kubeshare.device_manager.placeholder.disruption import IDLE_SECONDS
from kubeshare.kube.resources import PODS, Raw
from kubeshare.simulator.control import Fault, ObjectPath


def placeholder(cluster: FakeCluster) -> Raw:
    (found,) = cluster.server.all(PODS, NAMESPACE)
    return found


def says(cluster: FakeCluster) -> tuple[str, str]:
    metadata = placeholder(cluster)["metadata"]
    return metadata["labels"][LABEL_IN_USE], metadata["annotations"][ANNOTATION_SAFE_TO_EVICT]


def changes(cluster: FakeCluster) -> int:
    return sum(each.verb == "patch" and each.resource == "pods" for each in cluster.server.requests)


@scenario(n1=1)
async def test_one_made_on_demand_is_guarded_from_the_beginning_without_a_request(
    cluster: FakeCluster,
) -> None:
    cluster.start()
    await cluster.run("a")
    assert says(cluster) == ("true", "false")
    cluster.share("b", "0.1")
    await expect_running(cluster, "b")
    assert changes(cluster) == 0


@scenario(n1=1)
async def test_a_warm_one_may_be_evicted_until_somebody_shares_it(cluster: FakeCluster) -> None:
    cluster.configure(pool={"policy": "reservation", "warm": 1})
    cluster.start()
    await expect_placeholders(cluster, 1)
    assert says(cluster) == ("false", "true")
    await cluster.run("a")
    await cluster.until(lambda: says(cluster) == ("true", "false"))
    cluster.delete("a")
    await cluster.quiet(IDLE_SECONDS / 2)
    assert says(cluster) == ("true", "false")
    await cluster.until(lambda: says(cluster) == ("false", "true"))
    assert changes(cluster) == 2


@scenario(n1=1)
async def test_one_that_is_being_deleted_is_left_as_it_is(cluster: FakeCluster) -> None:
    cluster.configure(pool={"policy": "reservation", "warm": 1})
    cluster.start("devices")
    await expect_activated(cluster)
    await expect_phases(cluster, "Idle")
    cluster.actors.removes = False
    terminating = {"deletionTimestamp": "2026-01-01T00:01:00Z"}
    name = placeholder(cluster)["metadata"]["name"]
    cluster.server.change(PODS, name, NAMESPACE, lambda pod: pod["metadata"].update(terminating))
    [gpuid] = cluster.vgpus()
    made = cluster.share("a", id=gpuid, attempt=1, spec={"nodeName": "n1"})
    holder = manifests.holder(made["metadata"]["uid"], "a")
    cluster.server.change(VGPUS, gpuid, "", lambda vgpu: vgpu["status"].update(holders=[holder]))
    await cluster.quiet(1)
    assert cluster.vgpus() == {gpuid: ["a"]}
    assert "deletionTimestamp" in placeholder(cluster)["metadata"]
    assert says(cluster) == ("false", "true")
    assert changes(cluster) == 0


@scenario(n1=1)
async def test_one_of_an_earlier_version_is_guarded_too(cluster: FakeCluster) -> None:
    cluster.start()
    await cluster.run("a")
    await cluster.kill()

    def forget(pod: Raw) -> None:
        pod["metadata"].pop("annotations")
        del pod["metadata"]["labels"][LABEL_IN_USE]

    cluster.server.change(PODS, cluster.placeholders()[0], NAMESPACE, forget)
    cluster.start()
    await cluster.until(lambda: LABEL_IN_USE in placeholder(cluster)["metadata"]["labels"])
    assert says(cluster) == ("true", "false")


@scenario(n1=1)
async def test_a_label_is_never_written_to_a_later_placeholder_of_the_same_name(
    cluster: FakeCluster,
) -> None:
    cluster.configure(pool={"policy": "reservation", "warm": 1})
    cluster.start()
    [name] = await expect_placeholders(cluster, 1)
    await expect_phases(cluster, "Idle")
    later: list[str] = []
    labels: list[str] = []

    def replace() -> None:
        pod = cluster.server.stored(PODS, name, NAMESPACE)
        assert pod is not None
        cluster.server.remove(PODS, name, NAMESPACE)
        for field in ("uid", "resourceVersion"):
            del pod["metadata"][field]
        made = cluster.server.seed(PODS, pod | {"status": {"phase": "Failed"}})
        later.append(made["metadata"]["uid"])

    def note(place: ObjectPath, new: Raw | None) -> None:
        if new is not None and place.name == name and new["metadata"]["uid"] in later:
            labels.append(new["metadata"]["labels"][LABEL_IN_USE])

    cluster.server.inject(Fault.preceded_by(replace), verb="patch", resource="pods", name=name)
    cluster.server.storage.after_change.append(note)
    cluster.share("a")
    await cluster.until(lambda: later)
    await cluster.quiet(5)
    assert "true" not in labels
