"""The extender has the rights that it needs, and no other."""

from fakes.cluster import FakeCluster, scenario
from fakes.cluster.extender import bind, pod, start
from kubeshare.simulator.control import Fault


@scenario(n1=1)
async def test_it_uses_all_of_its_rights(cluster: FakeCluster) -> None:
    await start(cluster)
    conflict = Fault.answer(409, "Conflict")
    cluster.server.inject(conflict, verb="patch", resource="vgpus/status")
    pod(cluster, "a", 4)
    assert (await bind(cluster, "a"))[0] == 200
    assert (await bind(cluster, "missing"))[0] == 500
    error = Fault.answer(500, "InternalError")
    cluster.server.inject(error, verb="create", resource="pods/binding")
    pod(cluster, "taken-back", 4)
    assert (await bind(cluster, "taken-back"))[0] == 500
    pod(cluster, "b", 99)
    for _ in range(2):  # the second event makes a series of the first
        assert (await bind(cluster, "b"))[0] == 500
        await cluster.quiet(5)
    assert cluster.rights["extender"].unused == set()
