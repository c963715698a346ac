"""The device manager as a whole: its Lease, and in whose name it writes."""

from fakes.cluster import FakeCluster, scenario
from fakes.cluster.cluster import BORN
from kubeshare.api.types.constants import NAMESPACE
from kubeshare.kube.resources import EVENTS, LEASES


@scenario(n1=1)
async def test_its_lease_names_the_replica(cluster: FakeCluster) -> None:
    cluster.elect = True
    cluster.start("devices")
    await cluster.until(lambda: cluster.server.all(LEASES))
    [lease] = cluster.server.all(LEASES)
    assert (lease["metadata"]["namespace"], lease["metadata"]["name"]) == (
        NAMESPACE,
        "kubeshare-device-manager",
    )
    assert lease["spec"]["holderIdentity"] == "devices"
    assert lease["spec"]["acquireTime"].startswith(BORN.date().isoformat())
    assert lease["metadata"]["annotations"]["kubeshare.nthu/leader"] == "devices"


@scenario(n1=1)
async def test_its_events_name_the_controller_and_the_replica(cluster: FakeCluster) -> None:
    cluster.start()
    await cluster.run("a")
    await cluster.until(lambda: any(map(_by_devices, cluster.server.all(EVENTS))))
    found = [each for each in cluster.server.all(EVENTS) if _by_devices(each)]
    assert {each["reportingInstance"] for each in found} == {"devices"}
    assert found[0]["eventTime"].startswith(BORN.date().isoformat())


def _by_devices(event: dict[str, object]) -> bool:
    return event["reportingController"] == "kubeshare.nthu/device-manager"
