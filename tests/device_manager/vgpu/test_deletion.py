"""A vGPU is deleted only as it was seen: idle, and not replaced by another one of its name."""

from expectations import expect_running
from fakes.cluster import GIB, World, scenario
from kubeshare.api.types.v1 import VGPUS
from kubeshare.simulator.control import Fault


@scenario(n1=1)
async def test_a_vgpu_that_is_created_anew_while_it_is_deleted_stays(world: World) -> None:
    world.start("devices")
    world.share("a", id="x", spec={"nodeName": "n1"})
    await expect_running(world, "a")
    later: list[str] = []

    def replace() -> None:
        world.server.remove(VGPUS, "x")
        spec = {"nodeName": "n1", "pool": "onDemand", "memoryBytes": 16 * GIB}
        made = world.server.seed(VGPUS, {"metadata": {"name": "x"}, "spec": spec})
        later.append(made["metadata"]["uid"])
        world.share("b", id="x", spec={"nodeName": "n1"})

    world.server.inject(Fault.preceded_by(replace), verb="delete", resource="vgpus", name="x")
    world.delete("a")
    await expect_running(world, "b")
    assert [world.vgpu("x")["metadata"]["uid"]] == later
