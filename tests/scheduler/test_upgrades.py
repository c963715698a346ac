"""New forms of demands wait until an upgrade has reached all programs that carry them out."""

from typing import Any

import pytest

from expectations.pods import expect_running
from expectations.scheduling import expect_pending, expect_scheduled
from expectations.vgpus import expect_holders
from fakes.cluster import FakeCluster, run_scenario, scenario
from kubeshare.api.types.constants import DEVICE_MANAGER, NAMESPACE
from kubeshare.api.types.v1 import GPUNODES, VGPUS
from kubeshare.kube.resources import LEASES

Raw = dict[str, Any]

ALONE = {"limit": "0.5", "limitAlone": "1"}


def hold_lease(
    cluster: FakeCluster, holder: str, program: str = DEVICE_MANAGER, **annotations: str
) -> None:
    """The Lease of a program, as some version wrote it."""
    written = {f"kubeshare.nthu/{key}": value for key, value in annotations.items()}
    metadata = {"name": program, "namespace": NAMESPACE, "annotations": written}
    cluster.server.seed(LEASES, {"metadata": metadata, "spec": {"holderIdentity": holder}})


def upgrade(node: Raw) -> None:
    node["spec"]["supportsShares"] = True


@scenario(n1=1, n2=1)
async def test_a_node_with_an_earlier_agent_is_no_candidate(cluster: FakeCluster) -> None:
    cluster.server.change(GPUNODES, "n1", "", lambda obj: obj["spec"].pop("supportsShares"))
    cluster.start("scheduler")
    cluster.share("a", **ALONE)
    cluster.share("b", memory="16Gi")
    await expect_scheduled(cluster, "a", node="n2")
    await expect_scheduled(cluster, "b", node="n1")


@scenario(n1=1)
async def test_without_another_node_it_waits_and_names_the_node(cluster: FakeCluster) -> None:
    def old(node: Raw) -> None:
        node["spec"] |= {"supportsShares": False, "agentVersion": "0.4"}

    cluster.server.change(GPUNODES, "n1", "", old)
    cluster.start("scheduler")
    cluster.share("a", **ALONE)
    await expect_pending(cluster, "a", "n1: its node agent 0.4", reason="UpgradeInProgress")
    cluster.server.change(GPUNODES, "n1", "", upgrade)
    await expect_scheduled(cluster, "a", node="n1")


@scenario(n1=1)
async def test_a_device_manager_of_an_earlier_version_is_waited_for(cluster: FakeCluster) -> None:
    hold_lease(cluster, "old-1")
    cluster.start("scheduler")
    cluster.share("a", **ALONE)
    cluster.share("b", "0.2")
    await expect_scheduled(cluster, "b")
    await expect_pending(cluster, "a", "device manager (old-1)", reason="UpgradeInProgress")
    hold_lease(cluster, "new-1", leader="new-1", supports="shares")
    await expect_scheduled(cluster, "a")


@pytest.mark.parametrize("leader", [{"leader": "new-1"}, {}])
def test_what_a_later_leader_wrote_does_not_count_after_a_rollback(leader: dict[str, str]) -> None:
    async def scenario(cluster: FakeCluster) -> None:
        hold_lease(cluster, "old-2", supports="shares", **leader)
        cluster.start("scheduler")
        cluster.share("a", **ALONE)
        await expect_pending(cluster, "a", "device manager (old-2)", reason="UpgradeInProgress")
        # Released: nobody of an earlier version is at work.
        hold_lease(cluster, "", leader="new-1", supports="shares")
        await expect_scheduled(cluster, "a")

    run_scenario(scenario, n1=1)


@scenario(n1=1)
async def test_leaders_of_this_version_say_so_in_their_leases(cluster: FakeCluster) -> None:
    cluster.elect = True
    cluster.start()
    cluster.share("a", **ALONE)
    await expect_running(cluster, "a")
    [lease] = [
        each for each in cluster.server.all(LEASES) if each["metadata"]["name"] == DEVICE_MANAGER
    ]
    assert lease["metadata"]["annotations"] == {
        "kubeshare.nthu/leader": lease["spec"]["holderIdentity"],
        "kubeshare.nthu/supports": "shares",
    }
    await expect_holders(cluster, ["a"])
    [holder] = cluster.server.all(VGPUS)[0]["status"]["holders"]
    assert (holder["limitMicros"], holder["limitAloneMicros"]) == (500_000, 1_000_000)
