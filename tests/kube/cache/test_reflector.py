"""Failures that a reflector has to survive.

Each test breaks the watch in one way while objects change, and expects that the store ends up equal
to the server, that every change is reported exactly once, and that requests have a backoff.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from msgspec import Struct

from kube.expectations import expect_count, expect_true, expect_value
from kubeshare.kube.cache.reflector import Reflector
from kubeshare.kube.meta import ObjectMeta
from kubeshare.kube.resources import PODS, Raw
from kubeshare.simulator.control import FakeApiServer, Fault, run_virtual
from kubeshare.simulator.control.storage import event_line


class Watched:
    """A running reflector, and the changes that it has reported."""

    def __init__(self, server: FakeApiServer, **options: Any) -> None:
        self.server = server
        self.changes: list[str] = []
        self.reflector = Reflector(server.client(timeout=10), PODS, draw=lambda: 0.5, **options)
        self.reflector.subscribe(
            lambda change: self.changes.append(f"{change.type} {change.key.name}")
        )

    @property
    def names(self) -> set[str]:
        return {key.name for key in self.reflector.store.snapshot()}

    def asked(self, verb: str) -> list[float]:
        return [request.at for request in self.server.requests if request.verb == verb]

    async def expect_names(self, names: set[str], seconds: float = 60) -> None:
        await expect_value(lambda: self.names, names, seconds)

    async def expect_name(self, name: str) -> None:
        await expect_true(lambda: name in self.names, f"{name} in the store")

    async def expect_changes(self, changes: list[str]) -> None:
        await expect_value(lambda: self.changes, changes)

    async def expect_change(self, change: str) -> None:
        await expect_true(lambda: change in self.changes, f"{change} reported")

    async def expect_change_count(self, count: int) -> None:
        await expect_count(self.changes, count)

    async def expect_watches(self, count: int, seconds: float = 60) -> None:
        await expect_true(lambda: len(self.asked("watch")) >= count, f"{count} watches", seconds)

    def most_watches_in(self, seconds: float) -> int:
        times = self.asked("watch")
        return max(sum(start <= at < start + seconds for at in times) for start in times)


@asynccontextmanager
async def watching(server: FakeApiServer, **options: Any) -> AsyncIterator[Watched]:
    watched = Watched(server, **options)
    running = asyncio.create_task(watched.reflector.run())
    await watched.reflector.wait_for_sync()
    await watched.expect_watches(1)
    watched.changes.clear()
    try:
        yield watched
    finally:
        running.cancel()
        await asyncio.wait([running])


def seeded(*names: str) -> FakeApiServer:
    server = FakeApiServer()
    for name in names:
        seed(server, name)
    return server


def seed(server: FakeApiServer, name: str, **labels: str) -> None:
    server.seed(PODS, {"metadata": {"name": name, "namespace": "default", "labels": labels}})


def touch(server: FakeApiServer, name: str) -> None:
    def mutate(obj: Raw) -> None:
        annotations = obj["metadata"].setdefault("annotations", {})
        annotations["touched"] = str(server.storage.version)

    server.change(PODS, name, "default", mutate)


def test_410_in_the_stream_lists_again_and_reports_deleted_objects() -> None:
    server = seeded("a", "b", "c")

    async def main() -> None:
        async with watching(server) as watched:
            server.freeze_watches()
            server.remove(PODS, "b", "default")
            touch(server, "c")
            seed(server, "d")
            server.freeze_watches(frozen=False)
            server.expire_watches()
            await watched.expect_names({"a", "c", "d"})
            await asyncio.sleep(5)
            assert watched.changes == ["DELETED b", "MODIFIED c", "ADDED d"]
            assert watched.reflector.relists == 1
            assert watched.reflector.restarts["expired"] == 1

    run_virtual(main())


def test_a_server_that_has_gone_back_to_an_older_state_is_listed_again() -> None:
    """A watch from a version that is yet to come stays silent."""
    server = seeded("a", "b")

    async def main() -> None:
        async with watching(server) as watched:
            snapshot = server.storage.snapshot()
            watched.reflector.subscribe_to_restores(lambda: watched.changes.append("restored"))
            for name in ("c", "d", "e"):
                seed(server, name)
            touch(server, "b")
            await watched.expect_names({"a", "b", "c", "d", "e"})
            watched.changes.clear()
            server.restore(snapshot)
            seed(server, "f")
            await watched.expect_names({"a", "b", "f"}, seconds=5)
            assert watched.changes[0] == "restored", "before the store is what was listed"
            assert watched.changes[-2:] == ["MODIFIED b", "ADDED f"]
            assert watched.reflector.restarts["restored"] == 1
            touch(server, "f")
            await watched.expect_change("MODIFIED f")

    run_virtual(main())


def test_a_server_that_has_gone_back_is_listed_again_when_it_has_passed_the_last_version() -> None:
    """No version shows it, so a store that fits into one page is always listed."""
    server = seeded("a", "b")

    async def main() -> None:
        async with watching(server) as watched:
            snapshot = server.storage.snapshot()
            seed(server, "c")
            await watched.expect_names({"a", "b", "c"})
            server.restore(snapshot)
            for name in ("d", "e", "f"):
                seed(server, name)
            await watched.expect_names({"a", "b", "d", "e", "f"}, seconds=5)
            assert watched.reflector.relists == 1

    run_virtual(main())


def test_a_watch_that_ends_at_its_time_costs_no_other_request() -> None:
    server = seeded("a")

    async def main() -> None:
        async with watching(server) as watched:
            for _ in range(30):
                await asyncio.sleep(60)
                server.bookmark()
            assert len(watched.asked("watch")) > 2
            assert len(watched.asked("list")) == 1

    run_virtual(main())


def test_410_as_a_status_lists_again() -> None:
    server = seeded("a", "b")

    async def main() -> None:
        async with watching(server) as watched:
            server.inject(Fault.answer(410, "Expired"), verb="watch")
            server.freeze_watches()
            server.remove(PODS, "b", "default")
            server.freeze_watches(frozen=False)
            server.end_watches()
            await watched.expect_names({"a"})
            assert watched.changes == ["DELETED b"]
            assert watched.reflector.relists == 1

    run_virtual(main())


def test_a_late_delete_leaves_a_namesake_made_later() -> None:
    server = seeded("a", "b")

    async def main() -> None:
        async with watching(server) as watched:
            old = server.stored(PODS, "a", "default")
            assert old is not None
            server.remove(PODS, "a", "default")
            seed(server, "a")
            await watched.expect_changes(["DELETED a", "ADDED a"])
            for watcher in server.storage.watchers:
                watcher.queue.put_nowait(event_line("DELETED", old))
            server.remove(PODS, "b", "default")
            await watched.expect_change("DELETED b")
            assert watched.changes == ["DELETED a", "ADDED a", "DELETED b"]
            assert watched.names == {"a"}

    run_virtual(main())


def test_a_watch_that_ends_at_once_is_retried_with_backoff() -> None:
    server = seeded("a")
    server.inject(Fault.end(), verb="watch", times=1000)

    async def main() -> None:
        async with watching(server) as watched:
            await asyncio.sleep(300)
            assert watched.most_watches_in(5) <= 6
            gaps = [late - early for early, late in zip(*_pairs(watched), strict=True)]
            assert gaps == sorted(gaps)
            assert 15 <= gaps[-1] <= 30

    run_virtual(main())


def _pairs(watched: Watched) -> tuple[list[float], list[float]]:
    times = watched.asked("watch")
    return times[1:-1], times[2:]


def test_500_on_watch_is_retried_with_backoff_until_it_works() -> None:
    server = seeded("a", "z")
    server.inject(Fault.answer(500, "InternalError"), verb="watch", skip=1, times=5)

    async def main() -> None:
        async with watching(server, page=1) as watched:
            server.reset_watches()
            seed(server, "b")
            await watched.expect_names({"a", "b", "z"})
            assert watched.changes == ["ADDED b"]
            assert watched.most_watches_in(4) <= 5
            assert watched.reflector.relists == 0

    run_virtual(main())


def test_429_waits_as_long_as_the_server_says() -> None:
    server = seeded("a", "z")
    server.inject(Fault.answer(429, "TooManyRequests", retry_after=9), verb="watch", skip=1)

    async def main() -> None:
        async with watching(server, page=1) as watched:
            await asyncio.sleep(2)
            server.reset_watches()
            seed(server, "b")
            await watched.expect_names({"a", "b", "z"})
            *_, refused, answered = watched.asked("watch")
            assert answered - refused >= 9

    run_virtual(main())


def test_after_a_connection_reset_a_watch_of_many_continues_from_the_last_event() -> None:
    server = seeded("a", "z")

    async def main() -> None:
        async with watching(server, page=1) as watched:
            seed(server, "b")
            await watched.expect_name("b")
            server.freeze_watches()
            seed(server, "c")
            server.remove(PODS, "a", "default")
            server.freeze_watches(frozen=False)
            server.reset_watches()
            await watched.expect_names({"b", "c", "z"})
            assert watched.changes == ["ADDED b", "ADDED c", "DELETED a"]
            assert watched.reflector.relists == 0

    run_virtual(main())


def test_a_server_that_is_gone_for_a_while_is_found_again() -> None:
    server = seeded("a")

    async def main() -> None:
        async with watching(server) as watched:
            server.down = True
            server.reset_watches()
            await asyncio.sleep(90)
            seed(server, "b")
            server.down = False
            await watched.expect_names({"a", "b"}, seconds=31)
            assert watched.changes == ["ADDED b"]

    run_virtual(main())


def test_a_server_that_is_gone_from_the_start_is_waited_for() -> None:
    server = seeded("a")
    server.down = True

    async def main() -> None:
        reflector = Reflector(server.client(), PODS)
        running = asyncio.create_task(reflector.run())
        await asyncio.sleep(60)
        assert not reflector.synced
        server.down = False
        await expect_true(lambda: reflector.synced, "synced", 31)
        running.cancel()

    run_virtual(main())


def test_bookmarks_are_requested_and_advance_the_version() -> None:
    server = seeded("a", "z")

    async def main() -> None:
        async with watching(server, namespace="default", page=1) as watched:
            assert server.requests[-1].query["allowWatchBookmarks"] == "true"
            server.seed(PODS, {"metadata": {"name": "x", "namespace": "unseen"}})
            server.bookmark()
            bookmarked = server.storage.version
            await asyncio.sleep(1)
            server.compact()
            server.reset_watches()
            seed(server, "b")
            await watched.expect_name("b")
            assert server.requests[-1].query["resourceVersion"] == str(bookmarked)
            assert watched.reflector.relists == 0

    run_virtual(main())


def test_a_half_open_connection_is_given_up_after_75_seconds_of_silence() -> None:
    server = seeded("a")

    async def main() -> None:
        async with watching(server) as watched:
            server.freeze_watches()
            seed(server, "b")
            began = asyncio.get_running_loop().time()
            await watched.expect_watches(2, seconds=100)
            assert watched.asked("watch")[-1] - began == pytest.approx(75, abs=1)
            server.freeze_watches(frozen=False)
            await watched.expect_name("b")
            assert watched.changes == ["ADDED b"]

    run_virtual(main())


def test_the_server_is_asked_to_end_a_watch_after_five_to_ten_minutes() -> None:
    async def main() -> None:
        async with watching(seeded("a"), idle=10_000) as watched:
            query = watched.server.requests[-1].query
            assert 300 <= int(query["timeoutSeconds"]) <= 600
            await asyncio.sleep(2000)
            assert len(watched.asked("watch")) in {4, 5, 6}
            assert watched.reflector.restarts.keys() == {"ended"}
            assert watched.changes == []

    run_virtual(main())


def test_a_name_reused_during_an_outage_is_deleted_and_added() -> None:
    server = seeded("a", "b")

    async def main() -> None:
        async with watching(server) as watched:
            before = watched.reflector.store.get("a", "default")
            server.freeze_watches()
            server.remove(PODS, "a", "default")
            seed(server, "a")
            server.freeze_watches(frozen=False)
            server.expire_watches()
            await watched.expect_change_count(2)
            assert watched.changes == ["DELETED a", "ADDED a"]
            assert before is not None
            store = watched.reflector.store
            assert store.by_uid(before["metadata"]["uid"]) is None

    run_virtual(main())


def test_changes_of_the_first_list_are_initial_and_all_pages_are_read() -> None:
    server = seeded(*(f"p{number}" for number in range(25)))

    async def main() -> None:
        reflector = Reflector(server.client(), PODS, page=10)
        initial: list[bool] = []
        reflector.subscribe(lambda change: initial.append(change.initial))
        assert reflector.last_event_age is None
        running = asyncio.create_task(reflector.run())
        await reflector.wait_for_sync()
        assert len(reflector.store) == 25
        seed(server, "late")
        await expect_count(initial, 26)
        assert initial == [True] * 25 + [False]
        assert reflector.last_event_age is not None
        running.cancel()

    run_virtual(main())


def test_an_object_leaves_the_selection_as_if_deleted() -> None:
    server = FakeApiServer()
    seed(server, "a", app="x")
    seed(server, "b", app="y")

    async def main() -> None:
        async with watching(server, labels="app=x") as watched:
            assert watched.names == {"a"}
            server.change(PODS, "a", "default", lambda obj: obj["metadata"].pop("labels"))
            await watched.expect_names(set())
            assert watched.changes == ["DELETED a"]

    run_virtual(main())


def test_an_object_that_cannot_be_read_neither_stops_the_watch_nor_counts_as_gone() -> None:
    class Small(Struct):
        metadata: ObjectMeta
        spec: dict[str, int]

    server = FakeApiServer()
    for name in ("a", "b"):
        server.seed(PODS, {"metadata": {"name": name, "namespace": "d"}, "spec": {"size": 1}})

    async def main() -> None:
        reflector = Reflector(server.client(), PODS.into(Small))
        running = asyncio.create_task(reflector.run())
        await reflector.wait_for_sync()
        server.change(PODS, "a", "d", lambda obj: obj["spec"].update(size="large"))
        server.change(PODS, "b", "d", lambda obj: obj["spec"].update(size=2))
        await expect_value(lambda: _size(reflector, "b"), 2)
        server.expire_watches()
        await expect_value(lambda: reflector.relists, 1)
        assert _size(reflector, "a") == 1
        server.remove(PODS, "a", "d")
        await expect_value(lambda: reflector.store.get("a", "d"), None)
        running.cancel()

    def _size(reflector: Reflector[Small], name: str) -> int:
        found = reflector.store.get(name, "d")
        assert found is not None
        return found.spec["size"]

    run_virtual(main())


MISHAPS: dict[str, tuple[Fault, int] | None] = {
    "reset": None,
    "refused": (Fault.refuse(), 2),
    "failing": (Fault.answer(500, "InternalError"), 2),
    "busy": (Fault.answer(429, "TooManyRequests", retry_after=1), 1),
    "hanging": (Fault.hang(), 1),
    "expired": (Fault.answer(410, "Expired"), 1),
    "ending": (Fault.end(), 3),
}


@pytest.mark.parametrize("mishap", MISHAPS)
def test_changes_around_any_failure_are_reported_exactly_once(mishap: str) -> None:
    server = seeded("a", "b")

    async def main() -> None:
        async with watching(server) as watched:
            seed(server, "c")
            await watched.expect_name("c")
            if fault := MISHAPS[mishap]:
                server.inject(fault[0], times=fault[1])
            server.reset_watches()
            server.remove(PODS, "a", "default")
            await asyncio.sleep(0)
            seed(server, "d")
            await watched.expect_names({"b", "c", "d"})
            await asyncio.sleep(30)
            assert sorted(watched.changes) == ["ADDED c", "ADDED d", "DELETED a"]
            assert watched.most_watches_in(5) <= 6

    run_virtual(main())


def test_raw_objects_are_stored_without_managed_fields() -> None:
    def noted(name: str) -> Raw:
        notes = [{"manager": "kubectl", "fieldsV1": {"f:spec": {}}}]
        return {"metadata": {"name": name, "namespace": "default", "managedFields": notes}}

    async def main() -> None:
        server = FakeApiServer()
        server.seed(PODS, noted("a"))
        async with watching(server) as watched:
            server.seed(PODS, noted("b"))
            await watched.expect_names({"a", "b"})
            for kept in watched.reflector.store.snapshot().values():
                assert "managedFields" not in kept["metadata"]

    run_virtual(main())
