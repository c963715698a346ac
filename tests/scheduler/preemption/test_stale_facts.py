"""What changes while the search for victims is paused: nobody is evicted for what was."""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import pytest

from expectations.pods import expect_running
from fakes.cluster import FakeCluster, run_scenario
from kubeshare.api.eviction import evict
from kubeshare.api.types.core_v1 import Pod
from kubeshare.api.types.v1 import SHAREPODS, VGPUS
from kubeshare.core.gang import GangPlacement
from kubeshare.kube.client.client import Client
from kubeshare.kube.client.errors import TooManyRequestsError
from kubeshare.kube.controller.controller import RequeueAfter
from kubeshare.kube.resources import PODS
from kubeshare.scheduler.preemption import preemption
from kubeshare.scheduler.preemption.nominations import Nomination
from kubeshare.scheduler.preemption.preemption import Preemptor
from kubeshare.scheduler.preemption.victims import Victim
from kubeshare.simulator.control import until
from scheduler.gang.gangs import hold_nothing, labels
from scheduler.preemption.test_preemption import MARKED, evicted, high

Pausing: TypeAlias = Callable[..., list[int]]


def between_steps(
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[], object],
    seen: Callable[[Preemptor], object],
    at: int = 1,
) -> list[int]:
    """Change the cluster in a pause of the first search; a number is added for each pause."""
    calls: list[int] = []
    pause = Preemptor._pause

    async def patched(self: Preemptor, *args: Any) -> None:
        calls.append(1)
        if len(calls) == at:
            change()
            await until(lambda: seen(self))
        await pause(self, *args)

    monkeypatch.setattr(Preemptor, "_pause", patched)
    return calls


def while_budgets_are_asked(
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[], object],
    seen: Callable[[Preemptor], object],
) -> list[int]:
    """Change the cluster after the dry runs of the first evictions."""
    calls: list[int] = []
    ask = Preemptor._protected

    async def patched(self: Preemptor, victims: Sequence[Victim]) -> list[str]:
        protected = await ask(self, victims)
        calls.append(1)
        if len(calls) == 1:
            change()
            await until(lambda: seen(self))
        return protected

    monkeypatch.setattr(Preemptor, "_protected", patched)
    return calls


async def two_low_ones(cluster: FakeCluster) -> None:
    cluster.configure(preemption=True)
    cluster.start()
    for name in ("low1", "low2"):
        cluster.plain(name, "1", annotations=MARKED)
        await expect_running(cluster, name)


async def a_gang_of_two(cluster: FakeCluster, calls: list[int]) -> None:
    for name in "ab":
        cluster.share(name, "1", labels={**labels(2), **high()})
    await cluster.until(lambda: calls)
    await cluster.quiet(10)


def marked(preemptor: Preemptor) -> int:
    return len(preemptor._pods.by_index("preemptible", "true"))


def test_a_pod_that_may_not_be_evicted_any_more_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    async def play(cluster: FakeCluster) -> None:
        def unmark() -> None:
            cluster.server.change(
                PODS,
                "low1",
                "default",
                lambda pod: pod["metadata"]["annotations"].pop("kubeshare.nthu/preemptible"),
            )

        await two_low_ones(cluster)
        calls = between_steps(monkeypatch, unmark, lambda preemptor: marked(preemptor) < 2)
        await a_gang_of_two(cluster, calls)
        assert evicted(cluster) == []

    run_scenario(play, n1=2)


def test_a_pod_whose_priority_was_raised_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    async def play(cluster: FakeCluster) -> None:
        def promote() -> None:
            cluster.server.change(
                PODS,
                "low1",
                "default",
                lambda pod: pod["metadata"].update(labels=high(9)),
            )

        def seen(preemptor: Preemptor) -> bool:
            return any(each.priority == 9 for each in preemptor._victims().values())

        await two_low_ones(cluster)
        await a_gang_of_two(cluster, between_steps(monkeypatch, promote, seen))
        assert evicted(cluster) == []

    run_scenario(play, n1=2)


@pytest.mark.parametrize("how", ["unmark", "promote", "forbid"])
def test_the_second_victim_is_looked_at_again_after_the_first_has_gone(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def change(cluster: FakeCluster, name: str) -> None:
        def pod(changed: dict[str, Any]) -> None:
            if how == "unmark":
                changed["metadata"]["annotations"].pop("kubeshare.nthu/preemptible")
            else:
                changed["metadata"].update(labels=high(9))

        if how == "forbid":
            cluster.configure(preemption=False)
        else:
            cluster.server.change(PODS, name, "default", pod)

    def is_seen(preemptor: Preemptor, name: str) -> bool:
        if how == "forbid":
            return not preemptor._configuration.now().preemption
        victims = [each for each in preemptor._victims().values() if each.pod.metadata.name == name]
        return all(each.priority == 9 for each in victims)

    async def play(cluster: FakeCluster) -> None:
        await two_low_ones(cluster)
        done: list[int] = []
        really = Preemptor._evict
        preemptors: list[Preemptor] = []

        async def grab(self: Preemptor, nomination: Nomination) -> RequeueAfter:
            preemptors.append(self)
            return await really(self, nomination)

        async def evict_one(client: Client, pod: Pod, *, dry_run: bool = False) -> None:
            await evict(client, pod, dry_run=dry_run)
            if not dry_run and not done:
                done.append(1)
                other = {"low1": "low2", "low2": "low1"}[pod.metadata.name]
                change(cluster, other)
                await until(lambda: is_seen(preemptors[0], other))

        monkeypatch.setattr(Preemptor, "_evict", grab)
        monkeypatch.setattr(preemption, "evict", evict_one)
        await a_gang_of_two(cluster, done)
        assert len(evicted(cluster)) == 1

    run_scenario(play, n1=2)


def test_nobody_leaves_for_one_whose_priority_was_lowered(monkeypatch: pytest.MonkeyPatch) -> None:
    async def play(cluster: FakeCluster) -> None:
        def lower() -> None:
            for name in "ab":
                cluster.server.change(
                    SHAREPODS,
                    name,
                    "default",
                    lambda raw: raw["metadata"].update(labels={**labels(2), **high(0)}),
                )

        def seen(preemptor: Preemptor) -> bool:
            [sharepods] = [kind for name, kind in preemptor._kinds.items() if name == "SharePod"]
            members = list(sharepods.in_gang("default", "g"))
            return all(each.standing().priority == 0 for each in members)

        await two_low_ones(cluster)
        await a_gang_of_two(cluster, between_steps(monkeypatch, lower, seen))
        assert evicted(cluster) == []

    run_scenario(play, n1=2)


def test_nobody_leaves_once_preemption_is_forbidden(monkeypatch: pytest.MonkeyPatch) -> None:
    async def play(cluster: FakeCluster) -> None:
        await two_low_ones(cluster)
        calls = between_steps(
            monkeypatch,
            lambda: cluster.configure(preemption=False),
            lambda preemptor: not preemptor._configuration.now().preemption,
        )
        await a_gang_of_two(cluster, calls)
        assert evicted(cluster) == []

    run_scenario(play, n1=2)


def test_nobody_leaves_for_a_gang_that_has_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    async def play(cluster: FakeCluster) -> None:
        def remove() -> None:
            for name in "ab":
                cluster.server.remove(SHAREPODS, name, "default")

        def seen(preemptor: Preemptor) -> bool:
            [sharepods] = [kind for name, kind in preemptor._kinds.items() if name == "SharePod"]
            return not list(sharepods.in_gang("default", "g"))

        await two_low_ones(cluster)
        await a_gang_of_two(cluster, between_steps(monkeypatch, remove, seen))
        assert evicted(cluster) == []

    run_scenario(play, n1=2)


def test_nobody_leaves_where_that_suffices_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    async def play(cluster: FakeCluster) -> None:
        cluster.configure(preemption=True)
        cluster.start()
        cluster.plain("low", "1", annotations=MARKED)
        await expect_running(cluster, "low")
        [low] = [pod for pod in cluster.server.all(PODS) if pod["metadata"]["name"] == "low"]
        other = {"n1": "n2", "n2": "n1"}[low["spec"]["nodeName"]]
        calls = between_steps(
            monkeypatch,
            lambda: cluster.lose_node(other),
            lambda preemptor: other not in preemptor._cluster_state.ledger().nodes,
        )
        await a_gang_of_two(cluster, calls)
        assert evicted(cluster) == []

    run_scenario(play, n1=1, n2=1)


@pytest.mark.parametrize("at", [1, 2])
def test_no_more_leave_than_are_needed_beside_a_gpu_that_is_freed(
    at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def play(cluster: FakeCluster) -> None:
        def seen(preemptor: Preemptor) -> bool:
            ledger = preemptor._cluster_state.ledger()
            idle = [each for each in ledger.devices.values() if each.idle and not each.fenced]
            return bool(idle or ledger.nodes["n1"].free)

        await two_low_ones(cluster)
        cluster.plain("fixed", "1")
        await expect_running(cluster, "fixed")
        calls = between_steps(
            monkeypatch, lambda: cluster.server.remove(PODS, "fixed", "default"), seen, at
        )
        await a_gang_of_two(cluster, calls)
        assert len(calls) >= at
        await expect_running(cluster, "a")
        await expect_running(cluster, "b")
        assert len(evicted(cluster)) == 1

    run_scenario(play, n1=3)


def test_no_more_leave_beside_a_gpu_that_is_freed_while_budgets_are_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def play(cluster: FakeCluster) -> None:
        def seen(preemptor: Preemptor) -> bool:
            return preemptor._cluster_state.ledger().nodes["n1"].free != ()

        await two_low_ones(cluster)
        cluster.plain("fixed", "1")
        await expect_running(cluster, "fixed")
        calls = while_budgets_are_asked(
            monkeypatch, lambda: cluster.server.remove(PODS, "fixed", "default"), seen
        )
        await a_gang_of_two(cluster, calls)
        await expect_running(cluster, "a")
        await expect_running(cluster, "b")
        assert len(evicted(cluster)) == 1

    run_scenario(play, n1=3)


@pytest.mark.parametrize("while_paused", [between_steps, while_budgets_are_asked])
def test_a_member_that_gets_a_share_while_the_search_is_paused_is_no_failure(
    while_paused: Pausing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reconcile that fails is in the log, with which no scenario passes."""

    async def play(cluster: FakeCluster) -> None:
        await two_low_ones(cluster)
        calls = while_paused(
            monkeypatch,
            lambda: hold_nothing(cluster, "b"),
            lambda preemptor: preemptor._cluster_state.pool.held_by(
                cluster.sharepod("b")["metadata"]["uid"]
            ),
        )
        await a_gang_of_two(cluster, calls)
        await expect_running(cluster, "a", seconds=60)
        await expect_running(cluster, "b", seconds=60)

    run_scenario(play, n1=2)


def test_a_set_that_does_not_suffice_is_not_evicted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A policy may place the members elsewhere once the ledger has changed in the last pause."""

    async def play(cluster: FakeCluster) -> None:
        async def nowhere(*_: object) -> GangPlacement:
            return GangPlacement(room_for=0)

        await two_low_ones(cluster)
        monkeypatch.setattr(Preemptor, "_placement", nowhere)
        calls = between_steps(monkeypatch, lambda: None, lambda _: True)
        await a_gang_of_two(cluster, calls)
        assert evicted(cluster) == []
        monkeypatch.undo()
        await expect_running(cluster, "a", seconds=60)

    run_scenario(play, n1=2)


def test_a_gang_of_the_same_name_evicts_no_more_for_the_one_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The second eviction was refused for a moment; then a gang of a lower priority came."""
    done: list[str] = []
    allowed: list[int] = []

    async def one_only(client: Client, pod: Pod, *, dry_run: bool = False) -> None:
        if not dry_run and done and not allowed:
            raise TooManyRequestsError("a budget", status=429)
        await evict(client, pod, dry_run=dry_run)
        if not dry_run:
            done.append(pod.metadata.name)

    async def play(cluster: FakeCluster) -> None:
        cluster.configure(preemption=True)
        cluster.start()
        for name in ("low1", "low2"):
            cluster.plain(name, "1", annotations=MARKED, labels=high(3))
            await expect_running(cluster, name)
        cluster.actors.node_agents = False
        for name in "ab":
            cluster.share(name, "1", labels={**labels(2), **high()})
        await cluster.until(lambda: done)
        for name in "ab":
            cluster.server.remove(SHAREPODS, name, "default")
        for name in "ab":
            cluster.share(name, "0.1", labels={**labels(2), **high(0)})
        allowed.append(1)
        await cluster.quiet(30)
        assert len(done) == 1

    monkeypatch.setattr(preemption, "evict", one_only)
    run_scenario(play, n1=2)


@pytest.mark.parametrize("gang", [False, True])
def test_a_successor_takes_the_room_that_was_made(gang: bool) -> None:
    """Nobody is evicted again for a SharePod, or members of a gang, of the same name."""
    first, second = (("a", "b"), ("c", "d")) if gang else (("a",), ("a",))
    its_labels = {**labels(2), **high()} if gang else high()

    async def play(cluster: FakeCluster) -> None:
        cluster.configure(preemption=True)
        cluster.start()
        for name in ("low1", "low2", "low3", "low4"):
            cluster.plain(name, "1", annotations=MARKED)
            await expect_running(cluster, name)
        cluster.actors.node_agents = False
        for name in first:
            cluster.share(name, "1", labels=its_labels)
        await cluster.until(lambda: len(evicted(cluster)) == len(first))
        if gang:
            for name in second:
                cluster.share(name, "1", labels=its_labels)
            await cluster.quiet(3)
        for name in first:
            cluster.server.remove(SHAREPODS, name, "default")
        if not gang:
            cluster.share("a", "1", labels=its_labels)
        await cluster.quiet(3)
        gone = set(evicted(cluster))
        for vgpu in cluster.server.all(VGPUS):
            cluster.server.change(
                VGPUS,
                vgpu["metadata"]["name"],
                "",
                lambda raw: raw["status"].update(
                    holders=[
                        each
                        for each in raw["status"].get("holders", ())
                        if each["name"] not in gone
                    ]
                ),
            )
        cluster.actors.node_agents = True
        await cluster.quiet(60)
        assert set(evicted(cluster)) == gone

    run_scenario(play, n1=4)
