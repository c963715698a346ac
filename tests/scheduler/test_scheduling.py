"""The scheduler against an API server in memory."""

from typing import Any

import pytest

from expectations.pods import expect_event, expect_running
from expectations.scheduling import (
    assert_pending,
    assert_scheduled,
    expect_decided,
    expect_pending,
    expect_scheduled,
)
from expectations.vgpus import expect_holders, expect_shared_gpu, expect_vgpus
from fakes import manifests
from fakes.cluster import GIB, FakeCluster, run_scenario, scenario
from kubeshare.api.types.v1 import GPUNODES, SHAREPODS, VGPUS
from kubeshare.kube.resources import NODES
from kubeshare.simulator.control import Fault

Raw = dict[str, Any]


@scenario(n1=1)
async def test_a_sharepod_on_an_empty_node_gets_a_new_vgpu(cluster: FakeCluster) -> None:
    cluster.share("a")
    cluster.start("scheduler")
    placed = await expect_scheduled(cluster, "a", node="n1")
    vgpu = cluster.server.stored(VGPUS, placed.gpuid)
    assert vgpu is not None
    assert vgpu["spec"]["memoryBytes"] == 16 << 30
    assert vgpu["spec"]["model"] == "V100"
    condition = cluster.condition("a", "Scheduled")
    words = (condition["reason"], condition["message"])
    assert words == ("Bound", f"vGPU {placed.gpuid} on node n1")
    await cluster.quiet(5)
    assert not cluster.events("a"), "an event says what the condition says"


@scenario(n1=1)
async def test_the_published_annotations_are_read_and_kept(cluster: FakeCluster) -> None:
    amounts = {"gpu_request": "0.5", "gpu_limit": "1.0", "gpu_mem": "3145728000"}
    annotations = {f"kubeshare/{key}": value for key, value in amounts.items()}
    cluster.share("a", None, annotations=annotations)
    cluster.start("scheduler")
    gpuid = (await expect_scheduled(cluster, "a")).gpuid
    ask = {"id": gpuid, "attempt": 1, "idGiven": False, "nodeGiven": False}
    assert cluster.sharepod("a")["spec"]["gpu"] == ask
    vgpu = cluster.server.stored(VGPUS, gpuid)
    assert vgpu is not None
    [holder] = vgpu["status"]["holders"]
    assert (holder["requestMicros"], holder["memoryBytes"]) == (500_000, 3_145_728_000)


@scenario(n1=2)
async def test_a_burst_of_two_that_do_not_fit_together_never_shares_a_gpu(
    cluster: FakeCluster,
) -> None:
    cluster.share("a", "0.6")
    cluster.share("b", "0.6")
    cluster.server.freeze_watches()  # the scheduler knows only its own writes
    cluster.start("scheduler")
    await expect_decided(cluster, "a", "b")
    assert assert_scheduled(cluster, "a").gpuid != assert_scheduled(cluster, "b").gpuid
    reads = [each for each in cluster.server.requests if each.verb == "get"]
    assert not reads, "it decided from an old state and had to read again"


@scenario(n1=1)
async def test_six_that_fill_one_gpu_exactly_share_it(cluster: FakeCluster) -> None:
    names = "abcdef"
    for name, request in zip(names, (".1", ".1", ".1", ".3", ".3", ".1"), strict=True):
        cluster.share(name, request, memory="1Gi")
    cluster.start("scheduler")
    await expect_shared_gpu(cluster, *names)


@scenario(n1=1, n2=2)
async def test_a_sharepod_of_two_gpus_gets_equal_parts_of_both_or_waits(
    cluster: FakeCluster,
) -> None:
    cluster.start("scheduler")
    cluster.share("a", "0.7", count=2)
    await expect_decided(cluster, "a")
    spec = cluster.sharepod("a")["spec"]
    assert spec["nodeName"] == "n2"
    ids = spec["gpu"]["ids"]
    assert len(ids) == 2
    for gpuid in ids:
        vgpu = cluster.server.stored(VGPUS, gpuid)
        assert vgpu is not None
        [holder] = vgpu["status"]["holders"]
        assert holder["requestMicros"] == 700_000
    cluster.share("b", "0.7", count=2)
    await expect_decided(cluster, "b")
    assert cluster.condition("b", "Scheduled")["reason"] == "NoRoom"
    assert not cluster.condition("b", "Scheduled")["message"].startswith("count")


@scenario(n1=1)
async def test_what_does_not_fit_waits_and_is_told_why_for_each_gpu(cluster: FakeCluster) -> None:
    cluster.start("scheduler")
    cluster.share("a", "0.7")
    await expect_decided(cluster, "a")
    cluster.share("b", "0.6")
    await expect_pending(cluster, "b", "compute 0.3 left, 0.6 asked", "n1: no free GPU")
    gpuid = assert_scheduled(cluster, "a").gpuid
    assert f"; it fits when a leaves n1/{gpuid}. It is tried again" in cluster.events("b")[0]


@scenario(n1=1)
async def test_memory_larger_than_any_gpu_is_told_with_the_numbers(cluster: FakeCluster) -> None:
    cluster.start("scheduler")
    cluster.share("a", "0.5", memory="99Gi")
    await expect_pending(cluster, "a", "99Gi asked", "16Gi", reason="NeverFits")


@scenario(n1=1)
async def test_a_value_that_is_not_acceptable_is_told_by_the_name_of_its_field(
    cluster: FakeCluster,
) -> None:
    cluster.start("scheduler")
    cluster.share("a", "0.7", limit="0.5")
    await expect_pending(cluster, "a", "spec.gpu.request", "0.7", reason="Invalid")
    assert not cluster.vgpus()


@scenario(n1=1)
async def test_only_one_of_the_three_amounts_is_refused_by_name(cluster: FakeCluster) -> None:
    cluster.start("scheduler")
    cluster.share("a", None, annotations={"kubeshare/gpu_request": "0.5"})
    await expect_pending(cluster, "a", "kubeshare/gpu_limit", reason="Invalid")


@scenario(n1=1)
async def test_one_that_is_no_pod_is_told_so_and_hinders_nobody(cluster: FakeCluster) -> None:
    cluster.start("scheduler")
    # The schema keeps most of a PodSpec as it came.
    cluster.share("a", spec={"affinity": "ssd"})
    cluster.share("b")
    await expect_decided(cluster, "a")
    await expect_scheduled(cluster, "b")
    assert_pending(cluster, "a", "spec.affinity", reason="Invalid")


@scenario(n1=1)
async def test_nothing_of_a_gpu_is_none_of_the_schedulers_business(cluster: FakeCluster) -> None:
    cluster.start("scheduler")
    cluster.share("a", None)
    await cluster.quiet()
    assert not cluster.condition("a", "Scheduled")
    assert not cluster.server.writes


async def _fill_and_wait(cluster: FakeCluster) -> None:
    cluster.start("scheduler")
    cluster.share("a", "0.7")
    await expect_decided(cluster, "a")
    cluster.share("b", "0.6")
    cluster.share("c", "0.6")
    await expect_decided(cluster, "c")
    assert_pending(cluster, "b")


@scenario(n1=1)
async def test_what_waits_is_tried_again_when_a_part_is_given_back_oldest_first(
    cluster: FakeCluster,
) -> None:
    await _fill_and_wait(cluster)
    gpuid = assert_scheduled(cluster, "a").gpuid
    cluster.server.change(VGPUS, gpuid, "", lambda vgpu: vgpu["status"].update(holders=[]))
    await expect_scheduled(cluster, "b", gpuid=gpuid)
    assert_pending(cluster, "c")


@scenario(n1=1)
async def test_the_oldest_is_the_one_that_was_created_first(cluster: FakeCluster) -> None:
    cluster.start("scheduler")
    cluster.share("first", "0.9")
    gpuid = (await expect_scheduled(cluster, "first")).gpuid
    for name in ("z", "b"):
        cluster.share(name, "0.9")
        await expect_pending(cluster, name)
    cluster.server.change(VGPUS, gpuid, "", lambda vgpu: vgpu["status"].update(holders=[]))
    await expect_scheduled(cluster, "z", gpuid=gpuid)
    assert_pending(cluster, "b")


@scenario(n1=1)
async def test_what_waits_is_tried_again_when_a_node_comes(cluster: FakeCluster) -> None:
    await _fill_and_wait(cluster)
    cluster.add_node("n2", 1)
    await expect_scheduled(cluster, "b", node="n2")


@scenario(n1=1)
async def test_what_waits_is_tried_again_when_a_native_pod_ends(cluster: FakeCluster) -> None:
    cluster.native_pod("whole")
    await expect_running(cluster, "whole")
    cluster.start("scheduler")
    cluster.share("a")
    await expect_pending(cluster, "a")
    cluster.end("whole")
    await expect_scheduled(cluster, "a")


@scenario(n1=1)
async def test_nothing_is_asked_of_the_server_while_something_waits(cluster: FakeCluster) -> None:
    await _fill_and_wait(cluster)
    await cluster.quiet(5)
    before = len(cluster.server.requests)
    await cluster.quiet(60)
    assert len(cluster.server.requests) == before


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"unschedulable": True}, "cordoned"),
        ({"taints": [{"key": "gpu", "effect": "NoSchedule"}]}, "taint gpu is not tolerated"),
    ],
    ids=["cordoned", "tainted"],
)
def test_a_node_that_takes_no_pods_is_passed_over(spec: Raw, why: str) -> None:
    async def scenario(cluster: FakeCluster) -> None:
        cluster.add_node("n1", 1, **spec)
        cluster.start("scheduler")
        cluster.share("a")
        await expect_pending(cluster, "a", f"n1: {why}")
        cluster.server.change(NODES, "n1", "", lambda node: node.update(spec={}))
        await expect_scheduled(cluster, "a")

    run_scenario(scenario)


def test_a_tainted_node_does_not_keep_a_sharepod_from_another_one() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        cluster.add_node("n1", 1, taints=[{"key": "gpu", "effect": "NoSchedule"}])
        cluster.add_node("n2", 2)
        cluster.start("scheduler")
        for name in ("a", "b", "c"):
            cluster.share(name, "0.6")
        await expect_decided(cluster, "c")
        for name in ("a", "b"):
            assert_scheduled(cluster, name, node="n2")
        assert_pending(cluster, "c")

    run_scenario(scenario)


def test_a_toleration_opens_a_tainted_node() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        cluster.add_node("n1", 1, taints=[{"key": "gpu", "value": "yes", "effect": "NoSchedule"}])
        cluster.start("scheduler")
        toleration = {"key": "gpu", "value": "yes", "effect": "NoSchedule"}
        cluster.share("a", spec={"tolerations": [toleration]})
        await expect_scheduled(cluster, "a", node="n1")

    run_scenario(scenario)


@scenario(n1=1, n2=1)
async def test_the_node_selector_is_respected_even_where_another_vgpu_has_room(
    cluster: FakeCluster,
) -> None:
    cluster.start("scheduler")
    cluster.share("a", "0.1", spec={"nodeSelector": {"kubernetes.io/hostname": "n1"}})
    await expect_decided(cluster, "a")
    cluster.share("b", "0.1", spec={"nodeSelector": {"kubernetes.io/hostname": "n2"}})
    await expect_decided(cluster, "b")
    assert_scheduled(cluster, "a", node="n1")
    assert_scheduled(cluster, "b", node="n2")


@scenario(n1=1)
async def test_a_gpuid_without_a_node_gets_its_node_from_the_scheduler(
    cluster: FakeCluster,
) -> None:
    cluster.start("scheduler")
    cluster.share("a", "0.5", id="abcde")
    await expect_scheduled(cluster, "a", gpuid="abcde", node="n1")


@scenario(n1=1)
async def test_a_gpuid_with_a_node_is_left_to_the_device_manager(cluster: FakeCluster) -> None:
    cluster.start("scheduler")
    cluster.share("a", "0.5", id="abcde", spec={"nodeName": "n1"})
    await expect_decided(cluster, "a")
    assert cluster.condition("a", "Scheduled")["reason"] == "Given"
    assert not cluster.vgpus()


@scenario(n1=2)
async def test_a_decision_from_a_state_that_is_no_more_is_refused_once_and_made_again(
    cluster: FakeCluster,
) -> None:
    cluster.reserve("n1", "x")
    cluster.server.inject(Fault.hang(), verb="watch", resource="vgpus")
    cluster.start("scheduler")
    await cluster.quiet(1)
    # No watch event reports this to the scheduler.
    taken = manifests.holder("u", "other", requestMicros=700_000, memoryBytes=GIB)
    cluster.server.change(VGPUS, "x", "", lambda vgpu: vgpu.update(status={"holders": [taken]}))
    before = len(cluster.server.requests)
    cluster.share("a", "0.6")
    placed = await expect_scheduled(cluster, "a", node="n1")
    assert placed.gpuid != "x"
    assert cluster.vgpus()["x"] == ["other"]
    asked = [f"{each.verb} {each.resource}" for each in cluster.server.requests[before:]]
    wanted = ["patch vgpus/status", "get vgpus", "create vgpus", "patch vgpus/status"]
    assert [each for each in asked if "vgpus" in each] == wanted


@scenario(n1=1)
async def test_whoever_decides_at_the_same_time_wins_and_the_part_is_given_back(
    cluster: FakeCluster,
) -> None:
    def decide_first() -> None:
        decision = {"nodeName": "n1", "gpu": {"request": "0.3", "id": "mine"}}
        cluster.server.change(SHAREPODS, "a", "default", lambda shp: shp["spec"].update(decision))

    conflict = Fault("answer", 409, "Conflict", action=decide_first)
    cluster.server.inject(conflict, verb="patch", resource="sharepods")
    cluster.start("scheduler")
    cluster.share("a")
    await expect_decided(cluster, "a")
    assert cluster.sharepod("a")["spec"]["gpu"]["id"] == "mine"
    assert list(cluster.vgpus().values()) == [[]]


def _held(cluster: FakeCluster, uid: str, **holder: Any) -> None:
    """Adds a vGPU with a holder that an earlier run of the scheduler has written."""
    amounts = {"requestMicros": 300_000, "limitMicros": 1_000_000, "memoryBytes": GIB}
    held = manifests.holder(uid, **(amounts | holder))
    vgpu = manifests.vgpu("old", "n1", held, phase="Creating", pool="onDemand")
    cluster.server.seed(VGPUS, vgpu)


@pytest.mark.parametrize(
    ("holder", "writes"),
    [({"attempt": 1}, 0), ({"attempt": 1, "requestMicros": 200_000}, 2), ({"attempt": 0}, 2)],
    ids=["taken up", "asked otherwise since", "of a decision that was undone"],
)
def test_what_an_earlier_run_holds_is_taken_up_if_it_is_still_right(
    holder: Raw, writes: int
) -> None:
    async def scenario(cluster: FakeCluster) -> None:
        _held(cluster, cluster.share("a")["metadata"]["uid"], **holder)
        cluster.start("scheduler")
        await expect_scheduled(cluster, "a", gpuid="old")
        asked = [each.resource for each in cluster.server.requests if each.verb == "patch"]
        assert asked.count("vgpus/status") == writes
        vgpu = cluster.server.stored(VGPUS, "old")
        assert vgpu is not None
        [now] = vgpu["status"]["holders"]
        assert (now["attempt"], now["requestMicros"]) == (1, 300_000)

    run_scenario(scenario, n1=1)


@pytest.mark.parametrize("asks", [{}, {"request": "0.5", "limit": "0.1"}], ids=["nothing", "amiss"])
def test_what_was_taken_is_given_back_when_it_was_changed_to_ask_for(asks: Raw) -> None:
    async def play(cluster: FakeCluster) -> None:
        cluster.server.inject(Fault.hang(), verb="patch", resource="sharepods")
        cluster.share("a")
        cluster.start("scheduler")
        await expect_holders(cluster, ["a"])
        await cluster.kill("scheduler")
        cluster.server.change(
            SHAREPODS, "a", "default", lambda sharepod: sharepod["spec"].update(gpu=asks)
        )
        cluster.start("scheduler")
        await expect_holders(cluster, [])

    run_scenario(play, n1=1)


@scenario(n1=1)
async def test_a_sharepod_that_is_deleted_meanwhile_leaves_no_holder(cluster: FakeCluster) -> None:
    gone = Fault("answer", 404, "NotFound", action=lambda: cluster.delete("a"))
    cluster.server.inject(gone, verb="patch", resource="sharepods")
    cluster.start("scheduler")
    cluster.share("a")
    await expect_holders(cluster, [])


@scenario(n1=1)
async def test_a_node_whose_agent_has_not_reported_gets_no_new_vgpu(cluster: FakeCluster) -> None:
    cluster.actors.node_agents = False
    cluster.server.remove(GPUNODES, "n1")
    cluster.start("scheduler")
    cluster.share("a")
    await expect_pending(cluster, "a", "n1: no free GPU")


def test_a_message_about_many_gpus_has_a_bounded_length() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        for number in range(60):
            cluster.add_node(f"node-with-a-long-name-{number}", 0)
        cluster.start("scheduler")
        cluster.share("a")
        await expect_decided(cluster, "a")
        message = cluster.condition("a", "Scheduled")["message"]
        assert len(message) < 1100
        assert message.endswith("more")

    run_scenario(scenario)


def test_what_makes_it_impossible_is_told_before_what_is_wrong_with_each_gpu() -> None:
    async def scenario(cluster: FakeCluster) -> None:
        for number in range(60):
            cluster.add_node(f"node-with-a-long-name-{number}", 1)
        cluster.start("scheduler")
        cluster.share("a", memory="99Gi")
        await expect_event(cluster, "a")
        message = cluster.condition("a", "Scheduled")["message"]
        assert message.startswith("memory: 99Gi asked, and the largest GPU has 16Gi")

    run_scenario(scenario)


@scenario(n1=1)
async def test_a_podspec_of_an_odd_form_is_told_of_and_holds_nobody_up(
    cluster: FakeCluster,
) -> None:
    cluster.start("scheduler")
    cluster.share("a", spec={"tolerations": "all"})
    cluster.share("b", spec={"affinity": {"nodeAffinity": ["n1"]}})
    cluster.share("c")
    await expect_shared_gpu(cluster, "c")
    for name, field in (("a", "spec.tolerations"), ("b", "spec.affinity.nodeAffinity")):
        await expect_decided(cluster, name)
        condition = cluster.condition(name, "Scheduled")
        assert (condition["status"], condition["reason"]) == ("False", "Invalid")
        assert condition["message"].startswith(f"{field}: is not as Kubernetes has it")


@scenario(n1=2)
async def test_a_watch_that_has_gone_silent_makes_nobody_hold_two_gpus(
    cluster: FakeCluster,
) -> None:
    """No event reports the new vGPU until the reflector detects the silence."""
    cluster.server.inject_at_write(1, lambda: Fault.preceded_by(cluster.server.mute_watches))
    cluster.start("scheduler")
    cluster.plain("a")
    await expect_vgpus(cluster, 1)
    cluster.plain("b")
    await cluster.quiet(300)
    assert list(cluster.vgpus().values()) == [["a", "b"]]
