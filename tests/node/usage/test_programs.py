"""Accounts of SharePods while the real programs run, and end."""

from expectations.pods import expect_running
from fakes.cluster import FakeCluster, scenario
from kubeshare.api.types.share_usage import SHARE_USAGES
from kubeshare.simulator.control import Fault


def ended(cluster: FakeCluster) -> list[str]:
    """The owners of accounts that have ended."""
    found = [each["status"] for each in cluster.server.all(SHARE_USAGES)]
    return [each["owner"] for each in found if each.get("ended")]


@scenario(agents=True, n1=1)
async def test_each_pod_has_one_account_though_every_program_is_killed(
    cluster: FakeCluster,
) -> None:
    cluster.start()
    for name in ("a", "b"):
        cluster.share(name, "0.5")
        await expect_running(cluster, name)
    await cluster.kill()
    cluster.start()
    cluster.delete("a")
    await cluster.until(lambda: ended(cluster) == ["SharePod/a"])
    cluster.delete("b")
    await cluster.until(lambda: sorted(ended(cluster)) == ["SharePod/a", "SharePod/b"])


@scenario(agents=True, n1=1)
async def test_an_end_that_could_not_be_written_is_written_later(cluster: FakeCluster) -> None:
    cluster.start()
    cluster.share("a", "0.5")
    await expect_running(cluster, "a")
    cluster.server.inject(Fault.reset(after=True), verb="patch", resource="shareusages", times=1)
    cluster.server.inject(Fault.answer(503), verb="patch", resource="shareusages", times=2)
    cluster.delete("a")
    await cluster.until(lambda: ended(cluster) == ["SharePod/a"])
    await cluster.until(lambda: len(cluster.server.all(SHARE_USAGES)) == 1)
