"""etcd is restored from an older snapshot: pods run that are not in the record."""

from typing import Any

from expectations.pods import expect_running
from expectations.scheduling import expect_pending
from expectations.vgpus import expect_degraded, expect_no_vgpus
from fakes.cluster import FakeCluster, scenario
from fakes.cluster.state import is_same_pod, the_pod
from kubeshare.api.types.v1 import GPUNODES, VGPUS
from kubeshare.kube.resources import EVENTS
from kubeshare.simulator.control.storage import ObjectPath

Raw = dict[str, Any]

LONG = 300.0
"""Virtual time for which containers run that their kubelet is ending."""


def unrecorded(cluster: FakeCluster) -> list[str]:
    """The pods without a holder on the GPU of n1, by its GPUNode."""
    found = cluster.server.stored(GPUNODES, "n1")
    assert found is not None
    (gpu,) = found["spec"]["devices"]
    return list(gpu.get("unrecordedPods", []))


def node_events(cluster: FakeCluster) -> list[str]:
    """The reasons of the events of Node n1, in their order."""
    events = [each for each in cluster.server.all(EVENTS) if each["regarding"]["kind"] == "Node"]
    return [each["reason"] for each in sorted(events, key=lambda each: each["eventTime"])]


def prepare(cluster: FakeCluster) -> None:
    """The containers of n1 outlive their pods, and whatever is restored is meant to be older."""
    cluster.machines["n1"].forced = LONG
    cluster.invariants.restored = True


@scenario(n1=1, agents=True)
async def test_a_gpu_with_pods_that_are_not_in_the_record_takes_no_other(
    cluster: FakeCluster,
) -> None:
    prepare(cluster)
    cluster.start()
    await cluster.run("kept", "0.2")
    kept = the_pod(cluster, "kept")
    snapshot = cluster.server.storage.snapshot()
    await cluster.run("lost", "0.6")
    cluster.server.restore(snapshot)
    await cluster.until(lambda: unrecorded(cluster) == ["default/lost"])
    await expect_degraded(cluster, "UnrecordedPods")
    cluster.share("next", "0.5")
    await expect_pending(cluster, "next")
    await cluster.quiet(LONG / 2)
    assert len(cluster.machines["n1"].containers) == 2, "nobody is ended"
    assert cluster.shares_gpu("kept")
    await expect_running(cluster, "next", seconds=LONG)
    assert unrecorded(cluster) == []
    await expect_degraded(cluster, "Healthy")
    assert is_same_pod(cluster, kept)
    assert [each for each in node_events(cluster) if each in ("UnrecordedPods", "Recorded")] == [
        "UnrecordedPods",
        "Recorded",
    ]


@scenario(n1=1, agents=True)
async def test_a_gpu_is_not_free_while_pods_of_a_lost_vgpu_run_on_it(cluster: FakeCluster) -> None:
    prepare(cluster)
    cluster.start()
    snapshot = cluster.server.storage.snapshot()
    await cluster.run("lost", "0.6")
    cluster.server.restore(snapshot)
    await cluster.until(lambda: unrecorded(cluster) == ["default/lost"])
    cluster.share("next", "0.5")
    await expect_pending(cluster, "next")
    await cluster.quiet(LONG / 2)
    await expect_no_vgpus(cluster)
    await expect_running(cluster, "next", seconds=LONG)


@scenario(n1=1, agents=True)
async def test_an_agent_that_starts_anew_does_not_report_less_meanwhile(
    cluster: FakeCluster,
) -> None:
    prepare(cluster)
    cluster.start()
    snapshot = cluster.server.storage.snapshot()
    await cluster.run("lost", "0.6")
    cluster.server.restore(snapshot)
    await cluster.until(lambda: unrecorded(cluster) == ["default/lost"])
    forgotten: list[list[str]] = []

    def watch(path: ObjectPath, _: Raw | None) -> None:
        if path.plural == GPUNODES.plural and not unrecorded(cluster):
            forgotten.append(unrecorded(cluster))

    cluster.server.storage.after_change.append(watch)
    await cluster.kill("agent/n1")
    cluster.start("agent/n1")
    await cluster.quiet(LONG / 2)
    assert not forgotten
    await cluster.until(lambda: not unrecorded(cluster), seconds=LONG)
    assert not cluster.machines["n1"].left()


@scenario(n1=1, agents=True)
async def test_a_pod_that_is_in_the_record_again_goes_on_with_its_share(
    cluster: FakeCluster,
) -> None:
    prepare(cluster)
    cluster.start()
    await cluster.run("a", "0.5")
    await cluster.run("b", "0.2")
    pod, (gpuid,) = the_pod(cluster, "a"), cluster.vgpus()
    record = cluster.vgpu(gpuid)["status"]
    cluster.server.change(VGPUS, gpuid, "", lambda vgpu: vgpu["status"]["holders"].pop(0))
    await cluster.until(lambda: unrecorded(cluster) == ["default/a"])
    cluster.share("c", "0.3")
    await expect_pending(cluster, "c")
    await cluster.quiet(LONG / 2)
    cluster.server.change(VGPUS, gpuid, "", lambda vgpu: vgpu.update(status=record))
    await expect_running(cluster, "c")
    assert not unrecorded(cluster)
    assert cluster.shares_gpu("a", "b", "c")
    assert is_same_pod(cluster, pod)
