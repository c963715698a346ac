"""The same client, reflector, lease and events against a real API server.

What the fake server only imitates is settled here: pages, patches that fail their
test, server-side apply, preconditions, and what the server accepts as an event.
"""

import asyncio
from collections.abc import Coroutine
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from kubeshare.kube.cache.reflector import Reflector
from kubeshare.kube.client.client import Client
from kubeshare.kube.client.connection import ConfigError
from kubeshare.kube.client.errors import (
    AlreadyExistsError,
    ConflictError,
    ForbiddenError,
    InvalidError,
    NotFoundError,
    UnreachableError,
)
from kubeshare.kube.conditions import set_condition, to_raw
from kubeshare.kube.controller.events import EventRecorder, reference
from kubeshare.kube.controller.leader_election import LeaderElector
from kubeshare.kube.meta import Condition
from kubeshare.kube.resources import (
    CONFIG_MAPS,
    EVENTS,
    LEASES,
    NAMESPACES,
    NODES,
    PODS,
    SERVICE_ACCOUNTS,
    Raw,
)
from kubeshare.lab.control_plane.api_server import ApiServer
from kubeshare.simulator.control import until

pytestmark = pytest.mark.apiserver

NAMESPACE = "kube-runtime"


def run(main: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(60):
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


def node(name: str) -> Raw:
    return {"metadata": {"name": name}}


def test_objects_make_the_round_trip_through_every_verb(kubeconfig: Path) -> None:
    async def main() -> None:
        async with Client.connect(kubeconfig) as client:
            created = await client.create(CONFIG_MAPS, config_map("a", k="1"), field_manager="test")
            with pytest.raises(AlreadyExistsError):
                await client.create(CONFIG_MAPS, config_map("a"))
            version = created["metadata"]["resourceVersion"]
            test = {"op": "test", "path": "/metadata/resourceVersion", "value": version}
            change = {"op": "add", "path": "/data/k", "value": "2"}
            patched = await client.json_patch(CONFIG_MAPS, "a", [test, change], NAMESPACE)
            assert patched["data"] == {"k": "2"}
            with pytest.raises(ConflictError, match="changed meanwhile") as stale:
                await client.json_patch(CONFIG_MAPS, "a", [test, change], NAMESPACE)
            assert stale.value.status == 422
            with pytest.raises(ConflictError):
                await client.merge_patch(
                    CONFIG_MAPS, "a", {"metadata": {"resourceVersion": version}}, NAMESPACE
                )
            merged = await client.merge_patch(CONFIG_MAPS, "a", {"data": {"k": None}}, NAMESPACE)
            assert "data" not in merged
            with pytest.raises(ConflictError):
                await client.delete(CONFIG_MAPS, "a", NAMESPACE, uid="another")
            uid = created["metadata"]["uid"]
            await client.delete(CONFIG_MAPS, "a", NAMESPACE, uid=uid)
            with pytest.raises(NotFoundError):
                await client.get(CONFIG_MAPS, "a", NAMESPACE)

    run(main())


def test_a_missing_path_or_list_in_a_json_patch_is_invalid_and_no_conflict(
    kubeconfig: Path,
) -> None:
    async def main() -> None:
        async with Client.connect(kubeconfig) as client:
            await client.create(CONFIG_MAPS, config_map("paths"))
            with pytest.raises(InvalidError):
                await client.json_patch(
                    CONFIG_MAPS, "paths", [{"op": "remove", "path": "/data/none"}], NAMESPACE
                )

    run(main())


def test_apply_states_takes_back_and_conflicts(kubeconfig: Path) -> None:
    async def main() -> None:
        async with Client.connect(kubeconfig) as client:
            await client.apply(CONFIG_MAPS, config_map("s", a="1", b="1"), field_manager="one")
            after = await client.apply(CONFIG_MAPS, config_map("s", a="1"), field_manager="one")
            assert after["data"] == {"a": "1"}
            with pytest.raises(ConflictError, match="one"):
                await client.apply(CONFIG_MAPS, config_map("s", a="2"), field_manager="two")
            forced = await client.apply(
                CONFIG_MAPS, config_map("s", a="2"), field_manager="two", force=True
            )
            assert forced["data"] == {"a": "2"}

    run(main())


def test_two_managers_own_a_condition_each_of_one_status(kubeconfig: Path) -> None:
    def status(kind: str) -> Raw:
        observed = Condition(type=kind, status="True", reason="Test", message="said by a test")
        conditions, _ = set_condition((), observed, datetime.now(UTC))
        return node("conditions") | {"status": {"conditions": to_raw(conditions)}}

    async def main() -> None:
        async with Client.connect(kubeconfig) as client:
            await client.create(NODES, node("conditions"))
            for manager, kind in (("one", "Warm"), ("two", "Dry")):
                after = await client.apply(
                    NODES, status(kind), field_manager=manager, subresource="status"
                )
            assert {item["type"] for item in after["status"]["conditions"]} == {"Warm", "Dry"}

    run(main())


def test_a_reflector_follows_over_several_pages_and_a_change_of_each_kind(
    kubeconfig: Path,
) -> None:
    async def main() -> None:
        async with Client.connect(kubeconfig) as client:
            for number in range(7):
                await client.create(CONFIG_MAPS, config_map(f"p{number}"))
            reflector = Reflector(client, CONFIG_MAPS, namespace=NAMESPACE, labels="x=y", page=3)
            told: list[str] = []
            before = client.requests["list", "configmaps"]
            running = asyncio.create_task(reflector.run())
            await reflector.wait_for_sync()
            assert client.requests["list", "configmaps"] - before >= 3
            reflector.subscribe(lambda change: told.append(f"{change.type} {change.key.name}"))
            await client.create(CONFIG_MAPS, config_map("late"))
            await client.merge_patch(CONFIG_MAPS, "late", {"data": {"k": "v"}}, NAMESPACE)
            await client.delete(CONFIG_MAPS, "late", NAMESPACE)
            await until(lambda: len(told) == 3)
            assert told == ["ADDED late", "MODIFIED late", "DELETED late"]
            running.cancel()
            assert reflector.restarts.total() == 0

    run(main())


def test_a_lease_is_taken_renewed_and_released(kubeconfig: Path) -> None:
    async def main() -> None:
        async with Client.connect(kubeconfig) as client:
            elector = LeaderElector(
                client, NAMESPACE, "program", "me", duration=6, renew_deadline=5, retry=0.2
            )

            async def work() -> None:
                taken = await client.get(LEASES, "program", NAMESPACE)
                assert taken["spec"]["holderIdentity"] == "me"
                version = taken["metadata"]["resourceVersion"]
                while taken["metadata"]["resourceVersion"] == version:
                    taken = await client.get(LEASES, "program", NAMESPACE)
                    await asyncio.sleep(0.02)

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
            for _ in range(2):
                recorder.emit(about, "Waits", "Schedule", "It waits for room: free some.")
                await until(lambda: client.requests.total() > 0)
                await asyncio.sleep(0.2)
            await recorder.flush()
            running.cancel()
            events = await client.list(EVENTS, NAMESPACE)
            (event,) = (item for item in events.items if item["reason"] == "Waits")
            assert event["series"]["count"] == 2
            assert recorder.dropped == 0

    run(main())


def test_a_pod_is_bound_and_evicted(kubeconfig: Path) -> None:
    async def main() -> None:
        async with Client.connect(kubeconfig) as client:
            account = {"metadata": {"name": "default", "namespace": NAMESPACE}}
            await client.create(SERVICE_ACCOUNTS, account)
            container = {"name": "c", "image": "example.test/none"}
            body = {"metadata": {"name": "p", "namespace": NAMESPACE}}
            await client.create(PODS, body | {"spec": {"containers": [container]}})
            target = {"target": {"apiVersion": "v1", "kind": "Node", "name": "n1"}}
            binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p"}} | target
            await client.post(PODS, "p", "binding", binding, NAMESPACE)
            with pytest.raises(ConflictError):
                await client.post(PODS, "p", "binding", binding, NAMESPACE)
            eviction = {"apiVersion": "policy/v1", "kind": "Eviction"} | body
            await client.post(PODS, "p", "eviction", eviction, NAMESPACE)
            leaving = await client.get(PODS, "p", NAMESPACE)
            assert leaving["metadata"]["deletionTimestamp"]
            await client.delete(PODS, "p", NAMESPACE, grace=0)
            with pytest.raises(NotFoundError):
                await client.get(PODS, "p", NAMESPACE)

    run(main())


def test_who_may_not_is_told_so(apiserver: ApiServer, kubeconfig: Path) -> None:
    async def main() -> None:
        async with Client.connect(apiserver.kubeconfig_for("nobody")) as client:
            with pytest.raises(ForbiddenError, match="nobody"):
                await client.list(CONFIG_MAPS, NAMESPACE)

    run(main())


def test_a_wrong_context_or_address_is_told_with_what_to_do(
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
