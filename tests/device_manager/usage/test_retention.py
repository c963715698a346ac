"""Old accounts are removed, and those that are too many."""

from fakes.cluster import FakeCluster, scenario
from fakes.cluster.usage import account
from kubeshare.api.configuration import KEY, NAME
from kubeshare.api.types.constants import NAMESPACE
from kubeshare.api.types.share_usage import SHARE_USAGES
from kubeshare.device_manager.usage import retention
from kubeshare.kube.resources import CONFIG_MAPS
from kubeshare.simulator.control import Fault


def left(cluster: FakeCluster) -> list[str]:
    return sorted(each["metadata"]["name"] for each in cluster.server.all(SHARE_USAGES))


def configure(cluster: FakeCluster, text: str) -> None:
    metadata = {"name": NAME, "namespace": NAMESPACE}
    cluster.server.seed(CONFIG_MAPS, {"metadata": metadata, "data": {KEY: text}})


@scenario(n1=1)
async def test_an_old_account_is_removed_and_a_newer_one_stays(cluster: FakeCluster) -> None:
    account(cluster, "new", 89)
    account(cluster, "old", 91)
    cluster.start("devices")
    await cluster.until(lambda: left(cluster) == ["new"])


@scenario(n1=1)
async def test_the_oldest_are_removed_of_too_many(cluster: FakeCluster) -> None:
    configure(cluster, "usage: {objects: 2}")
    for days in range(1, 6):
        account(cluster, f"day-{days}", days)
    cluster.start("devices")
    await cluster.until(lambda: left(cluster) == ["day-1", "day-2"])


@scenario(n1=1)
async def test_a_failed_pass_is_repeated(cluster: FakeCluster) -> None:
    cluster.server.inject(Fault.answer(500), verb="delete", resource="shareusages", times=1)
    account(cluster, "old", 91)
    cluster.start("devices")
    await cluster.until(lambda: not left(cluster), seconds=retention.PASS_SECONDS + 60)
