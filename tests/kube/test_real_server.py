"""Reflector, leader election and events against a real API server.

Requests themselves are in the contract suite, ``test_contract.py``.
"""

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from deadlines import DEADLINE_S
from kube.expectations import expect_count
from kubeshare.kube.cache.reflector import Reflector
from kubeshare.kube.client.client import Client
from kubeshare.kube.client.errors import (
    ConfigError,
    ForbiddenError,
    UnreachableError,
)
from kubeshare.kube.controller.events import EventRecorder, reference
from kubeshare.kube.controller.leader_election import LeaderElector
from kubeshare.kube.resources import (
    CONFIG_MAPS,
    EVENTS,
    LEASES,
    NAMESPACES,
    Raw,
)
from kubeshare.lab.control_plane.api_server import ApiServer

pytestmark = pytest.mark.apiserver

NAMESPACE = "kube-runtime"


def run(main: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(DEADLINE_S):
            await main

    asyncio.run(bounded())


@pytest.fixture(scope="module")
def kubeconfig(apiserver: ApiServer) -> Path:
    """A kubeconfig of the administrator, and a namespace of our own."""

    async def main() -> None:
        async with Client.connect(apiserver.kubeconfig) as client:
            await client.create(NAMESPACES, {"metadata": {"name": NAMESPACE}})

    run(main())
    return apiserver.kubeconfig


def config_map(name: str, **data: str) -> Raw:
    return {"metadata": {"name": name, "namespace": NAMESPACE, "labels": {"x": "y"}}, "data": data}


def test_a_reflector_follows_over_several_pages_and_a_change_of_each_kind(
    kubeconfig: Path,
) -> None:
    async def main() -> None:
        async with Client.connect(kubeconfig) as client:
            for number in range(7):
                await client.create(CONFIG_MAPS, config_map(f"p{number}"))
            reflector = Reflector(client, CONFIG_MAPS, namespace=NAMESPACE, labels="x=y", page=3)
            changes: list[str] = []
            before = client.requests["list", "configmaps"]
            running = asyncio.create_task(reflector.run())
            await reflector.wait_for_sync()
            assert client.requests["list", "configmaps"] - before >= 3
            reflector.subscribe(lambda change: changes.append(f"{change.type} {change.key.name}"))
            await client.create(CONFIG_MAPS, config_map("late"))
            await client.merge_patch(CONFIG_MAPS, "late", {"data": {"k": "v"}}, NAMESPACE)
            await client.delete(CONFIG_MAPS, "late", NAMESPACE)
            await expect_count(changes, 3)
            assert changes == ["ADDED late", "MODIFIED late", "DELETED late"]
            running.cancel()
            assert reflector.restarts.total() == 0

    run(main())


def test_a_lease_is_taken_renewed_and_released(kubeconfig: Path) -> None:
    async def main() -> None:
        async with Client.connect(kubeconfig) as client:
            elector = LeaderElector(
                client, NAMESPACE, "program", "me", duration=61, renew_deadline=60, retry=30
            )

            async def work() -> None:
                taken = await client.get(LEASES, "program", NAMESPACE)
                assert taken["spec"]["holderIdentity"] == "me"
                version = taken["metadata"]["resourceVersion"]
                while taken["metadata"]["resourceVersion"] == version:
                    taken = await client.get(LEASES, "program", NAMESPACE)
                    await asyncio.sleep(0.5)

            await elector.run(work)
            released = await client.get(LEASES, "program", NAMESPACE)
            assert released["spec"]["holderIdentity"] == ""

    run(main())


def test_the_server_takes_our_events_and_their_series(kubeconfig: Path) -> None:
    async def main() -> None:
        async with Client.connect(kubeconfig) as client:
            about = reference(CONFIG_MAPS, await client.create(CONFIG_MAPS, config_map("told")))
            recorder = EventRecorder(client, "example.test/program", "program-0")
            running = asyncio.create_task(recorder.run())

            async def stored() -> list[Any]:
                events = await client.list(EVENTS, NAMESPACE)
                return [item for item in events.items if item["reason"] == "Waits"]

            recorder.emit(about, "Waits", "Schedule", "It waits for room: free some.")
            while not await stored():
                pass
            recorder.emit(about, "Waits", "Schedule", "It waits for room: free some.")
            while "series" not in (await stored())[0]:
                pass
            running.cancel()
            (event,) = await stored()
            assert event["series"]["count"] == 2
            assert recorder.dropped == 0

    run(main())


def test_a_forbidden_request_names_the_user(apiserver: ApiServer, kubeconfig: Path) -> None:
    async def main() -> None:
        async with Client.connect(apiserver.kubeconfig_for("nobody")) as client:
            with pytest.raises(ForbiddenError, match="nobody"):
                await client.list(CONFIG_MAPS, NAMESPACE)

    run(main())


def test_the_error_of_a_wrong_context_or_address_says_what_to_do(
    kubeconfig: Path, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match="elsewhere"):
        Client.connect(kubeconfig, context="elsewhere")
    nowhere = tmp_path / "nowhere"
    nowhere.write_text(kubeconfig.read_text().replace("https://", "https://127.0.0.1:1/?"))

    async def main() -> None:
        async with Client.connect(nowhere) as client:
            with pytest.raises(UnreachableError, match="kubeconfig"):
                await client.list(CONFIG_MAPS, NAMESPACE)

    run(main())
