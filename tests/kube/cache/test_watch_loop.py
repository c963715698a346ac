"""A watch without a store: where it begins, what it passes on, and what it counts."""

import asyncio

import pytest

from kube.expectations import expect_value
from kubeshare.kube.cache import watch_loop
from kubeshare.kube.cache.watch import WatchEvent
from kubeshare.kube.cache.watch_loop import WatchLoop
from kubeshare.kube.resources import PODS, Raw
from kubeshare.simulator.control import FakeApiServer, run_virtual


def seed(server: FakeApiServer, *names: str) -> None:
    for name in names:
        server.seed(PODS, {"metadata": {"name": name, "namespace": "default"}})


class Watching:
    """A running loop from the present version on, and the names of what it has passed on."""

    def __init__(self, server: FakeApiServer) -> None:
        client = server.client()
        self.events: list[str] = []
        self.loop: WatchLoop[Raw] = WatchLoop(
            client, PODS, lambda: client.latest_version(PODS), self._handle, draw=lambda: 0.0
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
