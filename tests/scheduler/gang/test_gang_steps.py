"""Members of a large gang are gone through in steps, and one that is too large costs little."""

import asyncio
from asyncio import events
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from expectations.scheduling import expect_all_scheduled, expect_pending
from fakes.cluster import FakeCluster, scenario
from kubeshare.kube.cache.store import Store
from kubeshare.kube.cache.watch_loop import EVENTS_AT_ONCE
from kubeshare.kube.controller.steps import AT_ONCE, in_steps
from kubeshare.kube.meta import Key
from kubeshare.simulator.control import run_virtual
from scheduler.gang.gangs import gang

MEMBERS = [f"m-{number}" for number in range(150)]


class Reads:
    """How many members were read from a store: in all, and at most between two awaits."""

    def __init__(self) -> None:
        self.count = self.most = self._before = 0

    def end_step(self) -> None:
        self.most = max(self.most, self.count - self._before)
        self._before = self.count


@contextmanager
def counted(monkeypatch: pytest.MonkeyPatch, members: Collection[str] = MEMBERS) -> Iterator[Reads]:
    """Count how often a member is read and decoded, which is what takes the time."""
    reads = Reads()
    by_key: Callable[..., Any] = Store.by_key
    run: Callable[..., Any] = events.Handle._run

    def counting(store: Store[Any], key: Key) -> Any:
        reads.count += key.name in members
        return by_key(store, key)

    def stepping(handle: events.Handle) -> None:
        run(handle)
        reads.end_step()

    with monkeypatch.context() as patch:
        patch.setattr(Store, "by_key", counting)
        patch.setattr(events.Handle, "_run", stepping)
        yield reads


def test_other_tasks_run_while_many_members_are_gone_through() -> None:
    async def main() -> None:
        seen, longest = 0, 0

        async def watch() -> None:
            nonlocal longest
            before = 0
            while seen < 10 * AT_ONCE:
                longest, before = max(longest, seen - before), seen
                await asyncio.sleep(0)

        watching = asyncio.create_task(watch())
        async for _ in in_steps(range(10 * AT_ONCE)):
            seen += 1
        await watching
        assert longest == AT_ONCE

    run_virtual(main())


@pytest.mark.slow
def test_few_members_of_a_large_gang_are_read_between_two_awaits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    @scenario(n1=2)
    async def test(cluster: FakeCluster) -> None:
        cluster.start("scheduler")
        await cluster.quiet(1)
        with counted(monkeypatch) as reads:
            gang(cluster, *MEMBERS, request="0.1")
            await expect_pending(cluster, "m-0", "of the 150 members", reason="GangNoRoom")
        assert reads.count > len(MEMBERS)
        # At each of the events of members that come in a row, one is read twice.
        assert reads.most <= 2 * EVENTS_AT_ONCE

    test()


@pytest.mark.slow
def test_a_gang_that_is_too_large_is_refused_without_reading_all_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each member has an event, at which all of them were read once."""

    @scenario(n1=2)
    async def test(cluster: FakeCluster) -> None:
        cluster.configure(gangMembers=20)
        cluster.start("scheduler")
        await cluster.quiet(1)
        with counted(monkeypatch) as reads:
            gang(cluster, *MEMBERS, needed=2, request="0.01")
            words = "more than 20 members of gang g wait, and gangMembers is 20"
            for name in MEMBERS:
                await expect_pending(cluster, name, "sharedgpu/group_name", words, reason="Invalid")
        # Each is read when it is queued, ranked and refused, each time that one of them changes.
        assert reads.count <= 20 * len(MEMBERS)
        for name in MEMBERS[20:]:
            cluster.delete(name)
        await expect_all_scheduled(cluster, *MEMBERS[:20])

    test()


@pytest.mark.slow
def test_a_gang_of_thousands_costs_what_as_many_refused_sharepods_cost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By the default configuration, all from one namespace."""
    members = dict.fromkeys(f"member-{number}" for number in range(5_000))

    @scenario(n1=2)
    async def test(cluster: FakeCluster) -> None:
        cluster.start("scheduler", "devices")
        await cluster.quiet(1)
        before = len(cluster.server.requests)
        with counted(monkeypatch, members) as reads:
            gang(cluster, *members, needed=len(members), request="0.01")
            await cluster.quiet(30)
        for name in (members.popitem()[0], "member-0"):
            await expect_pending(cluster, name, "and gangMembers is 512", reason="Invalid")
        sent = Counter((each.verb, each.resource) for each in cluster.server.requests[before:])
        # Each is told once, by its condition and an event.
        told = {("patch", "sharepods/status"): 5_000, ("create", "events"): 5_000}
        assert {each: count for each, count in sent.items() if count > 100} == told
        assert reads.count <= 20 * 5_000
        assert reads.most <= 2 * EVENTS_AT_ONCE

    test()
