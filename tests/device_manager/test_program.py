"""The device manager as a whole: its Lease, and in whose name it writes."""

from expectations.pods import expect_running
from fakes.cluster import FakeCluster, scenario
from fakes.cluster.cluster import BORN
from fakes.cluster.disruptions import own
from fakes.cluster.quotas import limit, write_gaia_quotas
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


@scenario(n1=1)
async def test_each_controller_is_told_apart_in_its_metrics(cluster: FakeCluster) -> None:
    own(cluster, "n1")
    cluster.configure(autoscaler={"placeholders": 1})
    limit(cluster, {"gpus": 1})
    write_gaia_quotas(cluster, default={"quota": {"V100": 1}})
    cluster.start()
    cluster.share("a")
    await expect_running(cluster, "a", seconds=300)
    cluster.plain("b")
    await expect_running(cluster, "b")
    assert set(cluster.reconciles("devices")) >= {
        *("gaia-quotas", "gpu-selection", "gpuquotas", "missing", "owned-nodes"),
        *("pods", "pools", "sharepods", "vgpus"),
    }


def _by_devices(event: dict[str, object]) -> bool:
    return event["reportingController"] == "kubeshare.nthu/device-manager"
