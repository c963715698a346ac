"""A vGPU is deleted only as it was seen: idle, and not replaced by another one of its name."""

from expectations.pods import expect_running
from fakes.cluster import GIB, FakeCluster, scenario
from kubeshare.api.types.v1 import VGPUS
from kubeshare.simulator.control import Fault


@scenario(n1=1)
async def test_a_vgpu_that_is_created_anew_while_it_is_deleted_stays(cluster: FakeCluster) -> None:
    cluster.start("devices")
    cluster.share("a", id="x", spec={"nodeName": "n1"})
    await expect_running(cluster, "a")
    later: list[str] = []

    def replace() -> None:
        cluster.server.remove(VGPUS, "x")
        spec = {"nodeName": "n1", "pool": "onDemand", "memoryBytes": 16 * GIB}
        made = cluster.server.seed(VGPUS, {"metadata": {"name": "x"}, "spec": spec})
        later.append(made["metadata"]["uid"])
        cluster.share("b", id="x", spec={"nodeName": "n1"})

    cluster.server.inject(Fault.preceded_by(replace), verb="delete", resource="vgpus", name="x")
    cluster.delete("a")
    await expect_running(cluster, "b")
    assert [cluster.vgpu("x")["metadata"]["uid"]] == later
