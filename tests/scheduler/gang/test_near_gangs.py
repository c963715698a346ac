"""Gangs that ask to be near: under one switch, on one node, on few nodes."""

import pytest

from expectations.pods import expect_evictions, expect_running
from expectations.scheduling import (
    assert_pending,
    assert_scheduled,
    expect_all_scheduled,
    expect_pending,
    expect_scheduled,
)
from expectations.vgpus import expect_activated, expect_holder_count
from fakes.cluster import FakeCluster, scenario
from fakes.cluster.disruptions import label_node
from kubeshare.api.affinity_terms import require_node
from kubeshare.dialects.priority_and_gang import GANG_NEAR
from kubeshare.simulator.control import Fault
from scheduler.gang.gangs import labels, nodes


def near_gang(
    cluster: FakeCluster,
    near: str,
    *names: str,
    needed: int = 0,
    request: str = "1",
    priority: int = 0,
) -> None:
    said = labels(needed or len(names)) | {"sharedgpu/priority": str(priority)}
    for name in names:
        cluster.share(name, request, labels=said, annotations={GANG_NEAR: near})


def nodes_of(cluster: FakeCluster, *names: str) -> set[str]:
    return {cluster.sharepod(name)["spec"]["nodeName"] for name in names}


@scenario(n1=1, n2=3)
async def test_a_gang_on_one_node_is_placed_on_the_node_with_room_for_all(
    cluster: FakeCluster,
) -> None:
    cluster.start("scheduler")
    near_gang(cluster, "node", *"abc")
    await expect_all_scheduled(cluster, *"abc")
    assert nodes_of(cluster, *"abc") == {"n2"}


@scenario(n1=2, n2=1)
async def test_where_no_node_has_room_for_all_the_reason_is_said_and_a_larger_node_helps(
    cluster: FakeCluster,
) -> None:
    cluster.start("scheduler")
    near_gang(cluster, "node", *"abc")
    words = "gang g: room for 2 of the 3 members that it needs on one node; "
    also = ("n1: no free GPU", "n2: room for 1")
    await expect_pending(cluster, "c", words, *also, reason="GangNoRoom")
    assert_pending(cluster, "a", reason="GangNoRoom")
    assert not cluster.vgpus()
    cluster.add_node("n3", 3)
    await expect_all_scheduled(cluster, *"abc")
    assert nodes_of(cluster, *"abc") == {"n3"}


@scenario(n1=4)
async def test_a_gang_under_one_switch_leaves_the_other_pair(cluster: FakeCluster) -> None:
    """The first GPU of a pair is taken, and the policy alone would take the first that is free."""
    cluster.link("n1", gpu_0_1="PIX", gpu_2_3="PIX")
    cluster.reserve("n1", "p", "q", "r", "s")
    cluster.start("devices")
    await expect_activated(cluster)
    gpus = sorted(each["uuid"] for each in cluster.actors.devices["n1"])
    [first] = [gpuid for gpuid in cluster.vgpus() if cluster.vgpu(gpuid)["spec"]["uuid"] == gpus[0]]
    cluster.share("x", "1", id=first, spec={"nodeName": "n1"})
    await expect_running(cluster, "x")
    cluster.start("scheduler")
    near_gang(cluster, "switch", *"ab")
    await expect_all_scheduled(cluster, *"ab")
    gpuids = [assert_scheduled(cluster, name).gpuid for name in "ab"]
    assert sorted(cluster.vgpu(gpuid)["spec"]["uuid"] for gpuid in gpuids) == gpus[2:]


@scenario(n1=2, n2=2, n3=2)
async def test_few_nodes_are_of_one_domain_by_the_label_that_is_configured(
    cluster: FakeCluster,
) -> None:
    cluster.configure(gangDomainLabel="kubeshare.nthu/rack")
    for node, rack in (("n1", "b"), ("n2", "a"), ("n3", "b")):
        label_node(cluster, node, rack=rack)
    cluster.start("scheduler")
    near_gang(cluster, "nodes", *"abcd")
    await expect_all_scheduled(cluster, *"abcd")
    assert nodes_of(cluster, *"abcd") == {"n1", "n3"}


@scenario(n1=2, n2=2)
async def test_another_label_of_domains_applies_from_the_next_decision_on(
    cluster: FakeCluster,
) -> None:
    cluster.add_node("n3", 2)
    for node, rack, row in (("n1", "b", "y"), ("n2", "a", "x"), ("n3", "b", "x")):
        label_node(cluster, node, rack=rack, row=row)
    cluster.configure(gangDomainLabel="kubeshare.nthu/rack")
    cluster.start("scheduler")
    cluster.share("x", "0.1")
    await expect_scheduled(cluster, "x")
    cluster.delete("x")
    cluster.configure(gangDomainLabel="kubeshare.nthu/row")
    near_gang(cluster, "nodes", *"abcd")
    await expect_all_scheduled(cluster, *"abcd")
    assert nodes_of(cluster, *"abcd") == {"n2", "n3"}


@scenario(n1=2, n2=4)
async def test_a_later_member_goes_to_the_others_or_waits(cluster: FakeCluster) -> None:
    cluster.start()
    near_gang(cluster, "node", "a", "b", needed=2)
    await expect_running(cluster, "a", "b")
    assert nodes_of(cluster, "a", "b") == {"n1"}
    near_gang(cluster, "node", "c", needed=2)
    await expect_pending(cluster, "c", "n1: no free GPU", reason="NoRoom")
    assert "n2" not in cluster.condition("c", "Scheduled")["message"]
    cluster.end("a")
    await expect_running(cluster, "c")
    assert nodes_of(cluster, "c") == {"n1"}


@scenario(n1=3, n2=3)
async def test_what_was_taken_before_a_kill_is_completed_on_the_same_node(
    cluster: FakeCluster,
) -> None:
    cluster.start("scheduler")
    fault = Fault.hang(after=True)
    cluster.server.inject(fault, verb="patch", resource="vgpus/status")
    near_gang(cluster, "node", *"abc")
    await expect_holder_count(cluster, 1)
    await cluster.kill("scheduler")
    cluster.start("scheduler")
    await expect_all_scheduled(cluster, *"abc")
    assert len(nodes_of(cluster, *"abc")) == 1


@scenario(n1=2, n2=3)
async def test_a_gang_one_of_whose_gpus_a_native_pod_took_moves_to_another_node_as_a_whole(
    cluster: FakeCluster,
) -> None:
    cluster.start("scheduler")
    for name in "ab":
        cluster.plain(name, "1", labels=labels(2), annotations={GANG_NEAR: "node"})
    await expect_holder_count(cluster, 2)
    assert nodes(cluster) == ["n1", "n1"]
    cluster.native_pod("whole", affinity=require_node({}, "n1"))
    await expect_running(cluster, "whole")
    cluster.start("devices")
    await expect_running(cluster, "a", "b", seconds=120)
    assert {(cluster.pod(name) or {})["spec"]["nodeName"] for name in "ab"} == {"n2"}


@pytest.mark.parametrize(
    ("near", "label", "words"),
    [
        ("switch", "min_available", "switch differs from node of SharePod default/a"),
        ("", "min_available", "none differs from node of SharePod default/a"),
        ("rack", "min_available", "'rack' is none of switch, node, nodes"),
        ("node", "priority", "there is no gang: give the labels sharedgpu/group_name and"),
    ],
)
def test_members_that_disagree_are_refused_by_the_name_of_the_annotation(
    near: str, label: str, words: str
) -> None:
    @scenario(n1=2)
    async def play(cluster: FakeCluster) -> None:
        cluster.start("scheduler")
        near_gang(cluster, "node", "a", needed=2, request="0.1")
        said = labels(2) if label == "min_available" else {"sharedgpu/priority": "0"}
        cluster.share("b", "0.1", labels=said, annotations={GANG_NEAR: near})
        await expect_pending(cluster, "b", GANG_NEAR, words, reason="Invalid")
        assert_pending(cluster, "a", "1 of the 2", reason="GangIncomplete")

    play()


@scenario(n1=2, n2=2)
async def test_a_gang_on_one_node_evicts_from_that_node_only(cluster: FakeCluster) -> None:
    """Anywhere, those of the lowest priority would do, one of each node."""
    cluster.configure(preemption=True)
    cluster.start()
    priorities = {"n1-low": 0, "n1-high": 3, "n2-low": 0, "n2-mid": 1}
    for name, priority in priorities.items():
        await cluster.run(
            name,
            "1",
            annotations={"kubeshare.nthu/preemptible": "true"},
            labels={"sharedgpu/priority": str(priority)},
            spec={"nodeSelector": {"kubernetes.io/hostname": name[:2]}},
        )
    near_gang(cluster, "node", "a", "b", priority=5)
    await expect_running(cluster, "a", "b")
    assert nodes_of(cluster, "a", "b") == {"n2"}
    assert cluster.running("n1-low", "n1-high")


@scenario(n1=2, n2=2)
async def test_room_is_kept_for_a_gang_on_the_node_that_it_is_to_have(
    cluster: FakeCluster,
) -> None:
    cluster.configure(preemption=True)
    cluster.start()
    for name, priority in {"n1-low": 0, "n1-high": 7, "n2-low": 0, "n2-mid": 1}.items():
        await cluster.run(
            name,
            "0.8",
            annotations={"kubeshare.nthu/preemptible": "true"},
            labels={"sharedgpu/priority": str(priority)},
            spec={"nodeSelector": {"kubernetes.io/hostname": name[:2]}},
        )
    cluster.actors.node_agents = False  # the shares of evicted pods are not released
    near_gang(cluster, "node", "a", "b", priority=5)
    await expect_evictions(cluster, "n2-low", "n2-mid")
    for node in ("n1", "n2"):
        spec = {"nodeSelector": {"kubernetes.io/hostname": node}}
        cluster.share(f"small-{node}", "0.1", spec=spec)
    await expect_scheduled(cluster, "small-n1")
    words = "kept for gang g of namespace default of priority 5"
    await expect_pending(cluster, "small-n2", words)
    assert cluster.condition("small-n2", "Scheduled")["message"].count(words) == 2
