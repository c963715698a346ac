"""A watch without a store: where it begins, what it passes on, and what it counts."""

import asyncio
import itertools

import pytest

from kube.expectations import expect_value
from kubeshare.kube.cache import watch_loop
from kubeshare.kube.cache.watch import WatchEvent
from kubeshare.kube.cache.watch_loop import IDLE_SECONDS, WatchLoop
from kubeshare.kube.resources import CONFIG_MAPS, PODS, Raw
from kubeshare.simulator.control import FakeApiServer, run_virtual


def seed(server: FakeApiServer, *names: str) -> None:
    for name in names:
        server.seed(PODS, {"metadata": {"name": name, "namespace": "default"}})


class Watching:
    """A running loop from the present version on, and the names of what it has passed on."""

    def __init__(self, server: FakeApiServer, *, bookmarks: bool = True) -> None:
        client = server.client()
        self.events: list[str] = []

        async def latest() -> str:
            return await client.latest_version(PODS)

        self.loop: WatchLoop[Raw] = WatchLoop(
            client,
            PODS,
            latest,
            self._handle,
            latest=None if bookmarks else latest,
            draw=lambda: 0.0,
        )
        self._running = asyncio.create_task(self.loop.run())

    def _handle(self, event: WatchEvent[Raw]) -> None:
        self.events.append(f"{event.type} {event.key.name}")

    async def end(self) -> None:
        self._running.cancel()
        await asyncio.wait([self._running])


def test_by_default_all_objects_are_watched(server: FakeApiServer) -> None:
    seed(server, "old")

    async def main() -> None:
        watching = Watching(server)
        assert watching.loop.resource_version == ""
        assert watching.loop.last_event_age is None
        await asyncio.sleep(1)
        seed(server, "new")
        await expect_value(lambda: watching.events, ["ADDED new"])
        assert watching.loop.resource_version == str(server.storage.version)
        await asyncio.sleep(7)
        age = watching.loop.last_event_age
        assert age is not None
        assert 7 <= age < 8
        await watching.end()
        latest, watched = server.requests
        assert (latest.path.namespace, latest.query) == ("", {"limit": "1"})
        assert watched.path.namespace == ""
        assert not {"labelSelector", "fieldSelector"} & watched.query.keys()

    run_virtual(main())


def test_each_end_of_a_watch_is_counted_once(server: FakeApiServer) -> None:
    async def main() -> None:
        watching = Watching(server)
        for _ in range(10):
            await asyncio.sleep(61)
            server.bookmark()
        watched = [request.at for request in server.requests if request.verb == "watch"]
        assert len(watched) == 3
        assert watching.loop.restarts == {"ended": 2}
        await watching.end()

    run_virtual(main())


def test_without_bookmarks_a_silent_watch_begins_again_at_once(server: FakeApiServer) -> None:
    """From a version of one silence ago: what is older has been delivered, or is 410."""

    async def main() -> None:
        watching = Watching(server, bookmarks=False)
        await asyncio.sleep(1)
        for _ in range(20):
            # Of another kind, so the version grows and the watch stays silent.
            server.seed(CONFIG_MAPS, {"metadata": {"name": "c", "namespace": "default"}})
            await asyncio.sleep(IDLE_SECONDS)
        assert watching.loop.restarts == {"silent": 20}
        watched = [each for each in server.requests if each.verb == "watch"]
        pauses = [b.at - a.at for a, b in itertools.pairwise(watched)]
        assert max(pauses) - IDLE_SECONDS < 0.01
        versions = [int(each.query["resourceVersion"]) for each in watched]
        assert server.storage.version - versions[-1] <= 2
        seed(server, "new")
        await expect_value(lambda: watching.events, ["ADDED new"])
        await watching.end()

    run_virtual(main())


def test_a_watch_that_gets_no_bookmarks_begins_again_at_once(server: FakeApiServer) -> None:
    """Each silence once counted as a failure, and the next watch began up to 30 s later."""

    async def main() -> None:
        watching = Watching(server)
        await asyncio.sleep(1)
        for _ in range(20):
            await asyncio.sleep(IDLE_SECONDS)
        assert watching.loop.restarts == {"silent": 20}
        watched = [each.at for each in server.requests if each.verb == "watch"]
        pauses = [later - earlier for earlier, later in itertools.pairwise(watched)]
        assert max(pauses) - IDLE_SECONDS < 0.01
        await watching.end()

    run_virtual(main())


def test_without_bookmarks_what_happens_between_two_watches_is_delivered_once(
    server: FakeApiServer,
) -> None:
    async def main() -> None:
        watching = Watching(server, bookmarks=False)
        for number in range(3):
            await asyncio.sleep(IDLE_SECONDS - 1)
            server.freeze_watches()  # the connection is lost
            seed(server, f"p{number}")
            server.freeze_watches(frozen=False)
            await asyncio.sleep(IDLE_SECONDS)
        assert watching.events == ["ADDED p0", "ADDED p1", "ADDED p2"]
        await watching.end()

    run_virtual(main())


def test_others_run_between_many_events(
    server: FakeApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch_loop, "EVENTS_AT_ONCE", 10)

    async def main() -> None:
        watching = Watching(server)
        await asyncio.sleep(1)
        seed(server, *(f"p{number}" for number in range(35)))
        seen: set[int] = set()
        while len(watching.events) < 35:
            seen.add(len(watching.events))
            await asyncio.sleep(0)
        assert {10, 20, 30} <= seen
        await watching.end()

    run_virtual(main())
