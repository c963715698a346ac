"""What a reflector asks for and calls around its lists, and who runs while a long one is stored."""

import asyncio
from collections.abc import Awaitable, Callable
from itertools import pairwise
from typing import Any

import pytest

from kube.expectations import expect_count, expect_true, expect_value
from kubeshare.kube.cache import reflector
from kubeshare.kube.cache.reflector import Reflector
from kubeshare.kube.cache.store import DELETED, Change
from kubeshare.kube.resources import PODS, Raw
from kubeshare.simulator.control import FakeApiServer, run_virtual


def seed(server: FakeApiServer, *names: str) -> None:
    for name in names:
        server.seed(PODS, {"metadata": {"name": name, "namespace": "d"}})


def play(pods: Reflector[Raw], check: Callable[[], Awaitable[Any]]) -> None:
    async def main() -> None:
        running = asyncio.create_task(pods.run())
        await check()
        running.cancel()
        await asyncio.wait([running])

    run_virtual(main())


def test_what_a_list_does_not_show_is_reported_after_each_list(server: FakeApiServer) -> None:
    seed(server, "a")
    pods = Reflector(server.client(), PODS)
    written = {"metadata": {"name": "short-lived", "namespace": "d"}}
    seen: list[str] = []
    pods.subscribe(lambda change: seen.append(f"{change.type} {change.key.name}"))

    def gone_since() -> list[Change[Raw]]:
        seen.append(f"list of {len(pods.store)} at {pods.resource_version}, {pods.synced}")
        return [Change(DELETED, written)]

    pods.subscribe_to_lists(gone_since)

    async def check() -> None:
        await expect_count(seen, 3)
        version = server.storage.version
        assert seen == ["ADDED a", f"list of 1 at {version}, False", "DELETED short-lived"]
        server.expire_watches()
        await expect_value(lambda: seen[3:], [f"list of 1 at {version}, True", seen[2]])

    play(pods, check)


def test_an_older_state_of_the_server_is_reported_before_it_is_listed(
    server: FakeApiServer,
) -> None:
    seed(server, "a")
    pods = Reflector(server.client(), PODS)
    names: list[set[str]] = []
    pods.subscribe_to_restores(lambda: names.append({key.name for key in pods.store.snapshot()}))

    async def check() -> None:
        await expect_value(lambda: pods.synced, wanted=True)
        snapshot = server.storage.snapshot()
        seed(server, "b")
        await expect_count(pods.store, 2)
        server.restore(snapshot)
        await expect_count(pods.store, 1)
        assert names == [{"a", "b"}]

    play(pods, check)


def test_others_run_while_a_long_list_is_stored_and_it_takes_no_longer(
    server: FakeApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reflector, "OBJECTS_AT_ONCE", 10)
    seed(server, *(f"p{number}" for number in range(35)))
    pods = Reflector(server.client(), PODS)
    stored: list[str] = []
    seen: set[int] = set()
    beside: list[asyncio.Task[None]] = []

    async def look() -> None:
        while not pods.synced:
            seen.add(len(stored))
            await asyncio.sleep(0)

    def store(change: Change[Raw]) -> None:
        if not stored:
            beside.append(asyncio.create_task(look()))
        stored.append(change.key.name)

    pods.subscribe(store)

    async def check() -> None:
        await expect_value(lambda: pods.synced, wanted=True)
        steps = sorted({0, len(stored), *seen})
        assert max(later - earlier for earlier, later in pairwise(steps)) <= 10
        assert asyncio.get_running_loop().time() < 1

    play(pods, check)


def test_it_lists_and_watches_what_it_is_asked_for(server: FakeApiServer) -> None:
    async def main() -> None:
        reflector = Reflector(
            server.client(),
            PODS,
            namespace="default",
            labels="app=a",
            fields="spec.nodeName=n1",
            page=7,
        )
        running = asyncio.create_task(reflector.run())
        await expect_true(lambda: len(server.requests) > 1, "a list and a watch")
        running.cancel()
        await asyncio.wait([running])
        listed, watched = server.requests[:2]
        selectors = {"labelSelector": "app=a", "fieldSelector": "spec.nodeName=n1"}
        assert listed.query == selectors | {"limit": "7"}
        assert watched.query.items() >= selectors.items()
        assert [each.path.namespace for each in (listed, watched)] == ["default"] * 2

    run_virtual(main())
