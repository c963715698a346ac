"""Gangs of SharePods: enough members at once, or none."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from expectations.pods import expect_condition, expect_event, expect_running, expect_sharepod_phase
from expectations.scheduling import (
    assert_pending,
    assert_scheduled,
    expect_all_scheduled,
    expect_decided,
    expect_pending,
    expect_scheduled,
)
from expectations.vgpus import expect_holder_count, expect_no_vgpus
from fakes.cluster import FakeCluster, run_scenario, scenario
from fakes.cluster.state import gates, holding, is_scheduled
from kubeshare.api.types.v1 import SHAREPODS, VGPUS
from kubeshare.core.gang import GangPlacement, placements
from kubeshare.kube.resources import NODES
from kubeshare.scheduler.gang.members import Members
from kubeshare.scheduler.gang.scheduling import GangScheduler
from kubeshare.simulator.control import Fault, until
from scheduler.gang.gangs import gang, hold_nothing, labels

Raw = dict[str, Any]


@scenario(n1=2, n2=2)
async def test_a_gang_is_placed_in_one_go(cluster: FakeCluster) -> None:
    cluster.start("scheduler")
    gang(cluster, "a", "b", "c", "d")
    await expect_all_scheduled(cluster, *"abcd")
    assert holding(cluster) == ["a", "b", "c", "d"]
    assert len({assert_scheduled(cluster, name).gpuid for name in "abcd"}) == 4


@scenario(n1=4)
async def test_a_gang_waits_until_enough_of_its_members_are_there(cluster: FakeCluster) -> None:
    cluster.start("scheduler")
    gang(cluster, "a", "b", needed=3)
    await expect_event(cluster, "b")
    words = "gang g: 2 of the 3 members that it needs are there"
    for name in "ab":
        assert_pending(cluster, name, words, reason="GangIncomplete")
    assert not cluster.vgpus()
    gang(cluster, "c", needed=3)
    await expect_all_scheduled(cluster, *"abc")


@scenario(n1=4)
async def test_a_gang_that_loses_a_member_says_so(cluster: FakeCluster) -> None:
    cluster.start("scheduler")
    gang(cluster, "a", "b", needed=3)
    await expect_decided(cluster, "b")
    cluster.delete("a")
    await expect_condition(cluster, "b", "Scheduled", message="1 of the 3")


@scenario(n1=3)
async def test_case_61_of_four_with_room_for_three_none_starts(cluster: FakeCluster) -> None:
    cluster.start("scheduler", "devices")
    for name in "abcd":
        threshold = {"group_headcount": "4", "group_threshold": "1.0"}
        said = {"group_name": "g", **threshold}
        cluster.share(name, "1", labels={f"sharedgpu/{key}": value for key, value in said.items()})
    await expect_event(cluster, "d")
    await cluster.quiet(30)
    for name in "abcd":
        assert_pending(
            cluster,
            name,
            "gang g: room for 3 of the 4 members that it needs",
            "n1: no free GPU",
            reason="GangNoRoom",
        )
        assert cluster.pod(name) is None
    assert not cluster.vgpus()
    cluster.add_node("n2", 1)
    await expect_running(cluster, *"abcd")


@scenario(n1=3)
async def test_who_comes_after_enough_are_placed_is_decided_about_alone(
    cluster: FakeCluster,
) -> None:
    cluster.start("scheduler")
    gang(cluster, "a", "b", needed=2)
    await expect_all_scheduled(cluster, *"ab")
    gang(cluster, "c", "d", needed=2)
    await expect_scheduled(cluster, "c")
    await expect_pending(cluster, "d", "n1: no free GPU")


@scenario(n1=3)
async def test_more_than_are_needed_are_placed_as_far_as_there_is_room(
    cluster: FakeCluster,
) -> None:
    gang(cluster, "a", "b", "c", "d", needed=2)
    cluster.start("scheduler")
    await expect_all_scheduled(cluster, *"abc")
    await expect_pending(cluster, "d", "n1: no free GPU")


@scenario(n1=1)
async def test_two_gangs_of_one_name_in_two_namespaces_are_two(cluster: FakeCluster) -> None:
    cluster.start("scheduler")
    gang(cluster, "a", needed=2, request="0.1")
    metadata = {"name": "b", "namespace": "other", "labels": labels(2)}
    spec = {"containers": [{"name": "main"}], "gpu": {"request": "0.1", "memory": "1Gi"}}
    cluster.server.seed(SHAREPODS, {"metadata": metadata, "spec": spec})
    await expect_decided(cluster, "a")
    await cluster.quiet()
    assert_pending(cluster, "a", "1 of the 2", reason="GangIncomplete")


@pytest.mark.parametrize(
    ("said", "label"),
    [
        ({"sharedgpu/min_available": "3"}, "sharedgpu/min_available"),
        ({"sharedgpu/priority": "7"}, "sharedgpu/priority"),
    ],
)
def test_members_have_to_agree_on_what_the_gang_is(said: dict[str, str], label: str) -> None:
    @scenario(n1=2)
    async def play(cluster: FakeCluster) -> None:
        cluster.start("scheduler")
        gang(cluster, "a", needed=2, request="0.1")
        cluster.share("b", "0.1", labels=labels(2) | said)
        await expect_pending(cluster, "b", label, "SharePod default/a", reason="Invalid")
        assert_pending(cluster, "a", "1 of the 2", reason="GangIncomplete")

    play()


@scenario(n1=2)
async def test_a_label_that_cannot_be_read_is_told_by_its_name(cluster: FakeCluster) -> None:
    cluster.start("scheduler")
    cluster.share("a", labels={"sharedgpu/priority": "high"})
    await expect_pending(cluster, "a", "sharedgpu/priority", "high", reason="Invalid")


@scenario(n1=2, n2=2)
async def test_a_refused_part_gives_back_those_before_it(cluster: FakeCluster) -> None:
    cluster.start("scheduler")
    refused = Fault.answer(422, "Invalid")
    # Two holders are written, the third is refused.
    cluster.server.inject(refused, verb="patch", resource="vgpus/status", skip=2)
    most = 0

    def look(*_: object) -> None:
        nonlocal most
        most = max(most, len(holding(cluster)))

    cluster.server.storage.after_change.append(look)
    gang(cluster, "a", "b", "c")
    await expect_all_scheduled(cluster, *"abc")
    writes = [each for each in cluster.server.requests if each.resource == "vgpus/status"]
    removed = [each for each in writes if any(one["op"] == "remove" for one in each.body)]
    assert (most, len(removed)) == (3, 2)


@scenario(n1=4)
async def test_what_was_taken_before_a_kill_is_completed(cluster: FakeCluster) -> None:
    cluster.start("scheduler")
    fault = Fault.hang(after=True)
    cluster.server.inject(fault, verb="patch", resource="vgpus/status", skip=1)
    gang(cluster, "a", "b", "c")
    await expect_holder_count(cluster, 2)
    await cluster.kill("scheduler")
    assert not any(is_scheduled(cluster, name) for name in "abc")
    cluster.start("scheduler")
    await expect_all_scheduled(cluster, *"abc")
    assert holding(cluster) == ["a", "b", "c"]


async def cut_off(cluster: FakeCluster) -> str:
    """Kills the scheduler when two of three hold shares; returns the third's vGPU."""
    cluster.start("scheduler", "devices")
    cluster.server.inject(Fault.hang(after=True), verb="patch", resource="vgpus/status", skip=1)
    gang(cluster, "a", "b", "c")
    await expect_holder_count(cluster, 2)
    await cluster.kill("scheduler")
    return next(gpuid for gpuid, held in cluster.vgpus().items() if not held)


@scenario(n1=3)
async def test_what_was_taken_is_given_back_where_the_rest_has_no_room_any_more(
    cluster: FakeCluster,
) -> None:
    gpuid = await cut_off(cluster)
    cluster.share("x", "0.5", id=gpuid, spec={"nodeName": "n1"})
    await expect_running(cluster, "x")
    cluster.start("scheduler")
    await expect_pending(cluster, "c")
    assert holding(cluster) == ["x"]
    for name in "abc":
        assert_pending(cluster, name, "room for 2 of the 3", reason="GangNoRoom")


@scenario(n1=3)
async def test_what_was_taken_is_given_back_when_a_member_is_gone(cluster: FakeCluster) -> None:
    await cut_off(cluster)
    cluster.delete("c")
    cluster.start("scheduler")
    await expect_pending(cluster, "b")
    for name in "ab":
        assert_pending(cluster, name, "2 of the 3", reason="GangIncomplete")
    await expect_no_vgpus(cluster)


@scenario(n1=3)
async def test_a_member_that_changes_while_it_is_told_does_not_stop_the_others(
    cluster: FakeCluster,
) -> None:
    cluster.start("scheduler")
    conflict = Fault.answer(409, "Conflict")
    cluster.server.inject(conflict, verb="patch", resource="sharepods", name="a")
    gang(cluster, "a", "b", "c")
    await expect_all_scheduled(cluster, *"abc")
    assert holding(cluster) == ["a", "b", "c"]


@scenario(n1=3)
async def test_what_is_told_of_a_gang_that_waits_is_told_once(cluster: FakeCluster) -> None:
    cluster.start("scheduler")
    gang(cluster, "a", "b", "c", "d")
    await expect_event(cluster, "d")
    await cluster.quiet(5)
    before = len(cluster.server.requests)
    labels = {"new": "label"}
    cluster.server.change(NODES, "n1", "", lambda node: node["metadata"].update(labels=labels))
    await cluster.quiet(60)
    assert len(cluster.server.requests) == before


@scenario(n1=2)
async def test_plain_pods_start_together_too(cluster: FakeCluster) -> None:
    cluster.start()
    cluster.plain("a", "1", labels=labels(2))
    await expect_pending(cluster, "a", reason="GangIncomplete")
    cluster.plain("b", "1", labels=labels(2))
    await expect_running(cluster, "a", "b")


@scenario(n1=2)
async def test_a_sharepod_and_a_plain_pod_may_be_of_one_gang(cluster: FakeCluster) -> None:
    cluster.start()
    gang(cluster, "a", needed=2)
    await expect_decided(cluster, "a")
    cluster.plain("b", "1", labels=labels(2))
    await expect_running(cluster, "a", "b")


@scenario(n1=2)
async def test_no_pod_of_a_gang_is_let_go_before_all_of_their_gpus_are_there(
    cluster: FakeCluster,
) -> None:
    cluster.configure(gangTimeoutSeconds=60)
    cluster.start()
    await cluster.run("x", "0.4")
    # The second one needs a vGPU that no node agent activates.
    cluster.actors.node_agents = False
    cluster.plain("a", "0.6", labels=labels(2))
    cluster.plain("b", "0.6", labels=labels(2))
    await expect_pending(cluster, "b", reason="Creating")
    assert gates(cluster, "a")
    assert gates(cluster, "b")
    assert "gang g: " in cluster.pod_condition("a")["message"]
    await expect_pending(cluster, "a", reason="GangTimedOut", seconds=120)
    assert holding(cluster) == ["x"]
    assert "has not started within 60 s" in cluster.pod_condition("b")["message"]
    assert gates(cluster, "a")
    cluster.actors.node_agents = True
    await expect_running(cluster, "a", "b", seconds=120)


@scenario(n1=3)
async def test_one_beyond_those_that_are_needed_is_told_once_why_it_has_no_part(
    cluster: FakeCluster,
) -> None:
    cluster.actors.node_agents = False
    cluster.start()
    for name in "abcd":
        cluster.plain(name, "1", labels=labels(3))
    await expect_pending(cluster, "d", reason="NoRoom")
    await expect_pending(cluster, "a", reason="Creating")
    before = len(cluster.server.requests)
    await cluster.quiet(20)
    assert len(cluster.server.requests) == before
    assert "n1: no free GPU" in cluster.pod_condition("d")["message"]


@scenario(n1=2)
async def test_a_member_that_is_done_counts_for_the_others_of_its_job_and_for_no_other_job(
    cluster: FakeCluster,
) -> None:
    cluster.start()
    for name in "ab":
        cluster.plain(name, "1", labels=labels(2), owner="first job")
    await expect_running(cluster, "a", "b")
    cluster.end("a")
    cluster.end("b", "Failed")
    cluster.plain("c", "1", labels=labels(2), owner="first job")
    await expect_running(cluster, "c")
    cluster.end("c")
    cluster.plain("d", "1", labels=labels(2), owner="second job")
    await expect_pending(cluster, "d", reason="GangIncomplete")
    cluster.plain("e", "1", labels=labels(2), owner="second job")
    await expect_running(cluster, "d", "e")


@scenario(n1=3)
async def test_a_member_that_failed_does_not_count(cluster: FakeCluster) -> None:
    cluster.start()
    for name in "ab":
        cluster.plain(name, "1", labels=labels(2), owner="job")
    await expect_running(cluster, "a", "b")
    for name in "ab":
        cluster.end(name, "Failed")
    cluster.plain("c", "1", labels=labels(2), owner="job")
    await expect_pending(cluster, "c", "1 of the 2 members", reason="GangIncomplete")
    for name in "xy":
        cluster.share(name, "1", labels=labels(2, "shares"))
    await expect_running(cluster, "x", "y")
    for name in "xy":
        cluster.end(name, "Failed")
    await expect_sharepod_phase(cluster, "x", "Failed")
    await expect_sharepod_phase(cluster, "y", "Failed")
    cluster.share("z", "1", labels=labels(2, "shares"))
    await expect_pending(cluster, "z", "1 of the 2 members", reason="GangIncomplete")


@scenario(n1=2)
async def test_a_gang_larger_than_allowed_is_refused_with_the_numbers(
    cluster: FakeCluster,
) -> None:
    cluster.configure(gangMembers=2)
    cluster.start("scheduler")
    gang(cluster, "a", "b", "c", needed=2, request="0.1")
    for name in "abc":
        words = "more than 2 members of gang g wait, and gangMembers is 2"
        await expect_pending(cluster, name, "sharedgpu/group_name", words, reason="Invalid")
    assert not cluster.vgpus()
    cluster.configure(gangMembers=3)
    await expect_all_scheduled(cluster, *"abc")


def test_a_gang_without_room_is_tried_once_for_all_that_come_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And the loop runs between two orders: the Lease and the probes get their turn."""
    tried: list[int] = []
    turns: list[int] = []

    def counting(*arguments: Any) -> Iterator[GangPlacement]:
        tried.append(0)
        for each in placements(*arguments):
            before = len(turns)
            asyncio.get_running_loop().call_soon(turns.append, 1)
            yield each
            tried[-1] += 1
            assert len(turns) > before, "two orders without a turn for others"

    async def main(cluster: FakeCluster) -> None:
        names = [f"m{number}" for number in range(20)]
        for number, name in enumerate(names):
            cluster.share(name, f"0.{70 + number}", labels=labels(20))
        cluster.start("scheduler")
        await expect_pending(cluster, "m19", reason="GangNoRoom")
        await cluster.quiet()
        assert len(tried) <= 3, "every member tried the whole gang"
        assert max(tried) > 10, "there was one order only"
        cluster.add_node("n2", 19)
        await expect_all_scheduled(cluster, *names)

    monkeypatch.setattr("kubeshare.scheduler.gang.scheduling.placements", counting)
    run_scenario(main, n1=1)


@scenario(n1=2)
async def test_news_of_a_gang_are_not_lost_with_the_member_that_had_them_first(
    cluster: FakeCluster,
) -> None:
    def news(text: str, *, unschedulable: bool = True) -> None:
        def change(node: Raw) -> None:
            node["metadata"]["labels"] = {"news": text}
            node.setdefault("spec", {})["unschedulable"] = unschedulable

        cluster.server.change(NODES, "n1", "", change)

    news("cordoned")
    cluster.start("scheduler")
    gang(cluster, "a", "b", "c", needed=2)
    await expect_event(cluster, "c")
    await cluster.quiet()
    news("refused, and that is known for a second")
    await cluster.quiet(0.1)
    news("tried again at its end")
    await cluster.quiet(0.1)
    other = labels(2, name="other")
    cluster.server.change(
        SHAREPODS, "c", "default", lambda obj: obj["metadata"].update(labels=other)
    )
    await cluster.quiet(0.1)
    news("room", unschedulable=False)
    await expect_all_scheduled(cluster, "a", "b")


def test_room_that_comes_while_orders_are_tried_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also after a restart, when nobody waits yet and the condition need not be written."""

    async def main(cluster: FakeCluster) -> None:
        cluster.start("scheduler")
        cluster.share("x", "0.5")
        gpuid = (await expect_scheduled(cluster, "x")).gpuid
        gang(cluster, "a", request="0.9")
        await expect_pending(cluster, "a", reason="GangNoRoom")
        await cluster.kill("scheduler")

        def orders_without_room(*arguments: Any) -> Iterator[GangPlacement]:
            answer = list(placements(*arguments))[-1]
            monkeypatch.undo()
            cluster.server.change(VGPUS, gpuid, "", lambda obj: obj["status"].update(holders=[]))
            for _ in range(100):
                yield answer

        monkeypatch.setattr("kubeshare.scheduler.gang.scheduling.placements", orders_without_room)
        cluster.start("scheduler")
        await expect_scheduled(cluster, "a")

    run_scenario(main, n1=1)


def test_a_member_that_gets_a_share_before_its_gang_is_placed_is_no_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A reconcile that fails is in the log, with which no scenario passes."""
    read = GangScheduler._request

    async def main(cluster: FakeCluster) -> None:
        async def patched(self: GangScheduler, members: Members) -> Any:
            request = await read(self, members)
            monkeypatch.undo()
            hold_nothing(cluster, "b")
            uid = cluster.sharepod("b")["metadata"]["uid"]
            await until(lambda: self._context.pool.held_by(uid))
            return request

        cluster.start("scheduler")
        cluster.share("x", "0.1")
        await expect_scheduled(cluster, "x")
        monkeypatch.setattr(GangScheduler, "_request", patched)
        gang(cluster, "a", "b", request="0.3")
        await expect_all_scheduled(cluster, "a", "b")
        assert read == GangScheduler._request

    run_scenario(main, n1=1)
