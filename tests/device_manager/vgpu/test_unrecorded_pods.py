"""vGPUs whose GPU runs pods that the record lacks."""

from expectations.pods import expect_running
from expectations.scheduling import expect_pending
from expectations.vgpus import (
    expect_degraded,
)
from fakes.cluster import FakeCluster, scenario
from fakes.cluster.disruptions import report_unrecorded
from fakes.cluster.state import is_same_pod, the_pod


@scenario(n1=1)
async def test_a_gpu_with_unrecorded_pods_takes_no_holder_and_is_not_given_back(
    cluster: FakeCluster,
) -> None:
    cluster.configure(gpuFailure="evict")
    cluster.start()
    await cluster.run("a")
    pod, (gpuid,) = the_pod(cluster, "a"), cluster.vgpus()
    cluster.invariants.restored = True
    report_unrecorded(cluster, "other/lost")
    condition = await expect_degraded(cluster, "UnrecordedPods")
    assert "lost" not in condition["message"], "others read it"
    cluster.share("b")
    await expect_pending(cluster, "b")
    await cluster.quiet(60)
    assert is_same_pod(cluster, pod), "nobody is evicted"
    cluster.delete("a")
    await cluster.until(lambda: cluster.vgpus() == {gpuid: []})
    await cluster.quiet(60)
    assert list(cluster.vgpus()) == [gpuid]
    assert not cluster.running("b")
    report_unrecorded(cluster)
    await expect_running(cluster, "b")
