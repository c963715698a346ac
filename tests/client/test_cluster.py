"""The typed client, with the programs of a cluster."""

import asyncio
from contextlib import aclosing
from typing import Any

import pytest

from expectations.pods import expect_running
from fakes.cluster import FakeCluster, run_scenario, scenario
from kubeshare.api.types.v1 import SHAREPODS
from kubeshare.client import (
    GPU,
    AlreadyExistsError,
    Change,
    Cluster,
    DeletedError,
    FailedError,
    ForbiddenError,
    InvalidValueError,
    NotFoundError,
    SharePod,
    UnreachableError,
    UnschedulableError,
    WaitTimeoutError,
)
from kubeshare.client.watching import RETRY_SECONDS
from kubeshare.explain.finding import NothingToExplainError
from kubeshare.simulator.control import Fault

SPEC = {"containers": [{"name": "main", "image": "i"}]}


def client(cluster: FakeCluster, namespace: str = "") -> Cluster:
    return Cluster(cluster.server.client("user"), namespace)


def a_sharepod(name: str = "a", **gpu: Any) -> SharePod:
    share = GPU(**({"request": 0.5} | gpu))
    return SharePod(name=name, spec=SPEC, gpu=share, labels={"app": name})


@scenario(n1=1)
async def test_a_sharepod_is_created_waited_for_explained_and_deleted(cluster: FakeCluster) -> None:
    cluster.start()
    async with client(cluster) as mine:
        created = await mine.create(a_sharepod(limit=0.75, memory="2Gi"))
        assert (created.name, created.namespace, created.phase) == ("a", "default", "")
        assert (created.blocker, created.ready) == (None, False)
        stored = cluster.sharepod("a")
        assert stored["spec"]["gpu"] == {"request": "0.5", "limit": "0.75", "memory": "2Gi"}
        assert stored["metadata"]["labels"] == {"app": "a"}
        ready = await mine.wait("a", timeout=60)
        assert (ready.ready, ready.phase, ready.node) == (True, "Running", "n1")
        assert (ready.request, ready.limit, ready.memory) == ("0.5", "0.75", "2Gi")
        [gpu] = ready.gpus
        finding = await mine.explain("a")
        assert finding.held == (f"n1/{gpu.id}",)
        assert [each.uid for each in await mine.list(labels="app=a")] == [created.uid]
        assert await mine.list(labels="app=b") == ()
        assert await mine.get("a") == ready
        await mine.delete("a")
        await cluster.until(lambda: not cluster.vgpus())
        with pytest.raises(NotFoundError):
            await mine.get("a")


@scenario(n1=1)
async def test_waiting_ends_when_the_pod_has_succeeded_or_failed(cluster: FakeCluster) -> None:
    cluster.start()
    async with client(cluster) as mine:
        for name, phase in (("a", "Succeeded"), ("b", "Failed")):
            await mine.create(a_sharepod(name, request=0.3))
            waiting = asyncio.create_task(mine.wait(name, until="Succeeded"))
            await expect_running(cluster, name)
            assert not waiting.done()
            cluster.end(name, phase)
            if phase == "Succeeded":
                assert (await waiting).phase == "Succeeded"
                assert (await mine.wait(name)).phase == "Succeeded"
                continue
            words = "SharePod default/b has failed; PodFailed: "
            with pytest.raises(FailedError, match=words) as found:
                await waiting
            assert (found.value.reason, found.value.sharepod.name) == ("PodFailed", "b")


@scenario(n1=1)
async def test_what_waits_for_room_says_so(cluster: FakeCluster) -> None:
    cluster.start()
    async with client(cluster) as mine:
        await cluster.run("other", "0.7")
        await mine.create(a_sharepod("b", request="0.6"))
        with pytest.raises(UnschedulableError, match=r"is not scheduled; NoRoom: n1/.*0\.3 left"):
            await mine.wait("b", no_room="raise")
        words = "SharePod default/b is not Ready after 5 s; NoRoom: n1/"
        with pytest.raises(WaitTimeoutError, match=words) as found:
            await mine.wait("b", timeout=5)
        assert isinstance(found.value, TimeoutError)
        finding = await mine.explain("b")
        assert "other leaves n1/" in str(finding.change)
        waiting = asyncio.create_task(mine.wait("b", timeout=60))
        await cluster.quiet(1)
        cluster.delete("other")
        assert (await waiting).ready


@scenario(n1=1)
async def test_what_never_fits_is_not_waited_for(cluster: FakeCluster) -> None:
    cluster.start()
    async with client(cluster) as mine:
        await mine.create(a_sharepod(model="H100"))
        words = "cannot be scheduled; NeverFits: model: no GPU"
        with pytest.raises(UnschedulableError, match=words):
            await mine.wait("a")


@scenario(n1=1)
async def test_what_is_deleted_meanwhile_is_not_waited_for(cluster: FakeCluster) -> None:
    async with client(cluster) as mine:
        await mine.create(a_sharepod())
        waiting = asyncio.create_task(mine.wait("a"))
        await cluster.quiet(1)
        cluster.server.freeze_watches()
        cluster.delete("a")
        await mine.create(a_sharepod())
        cluster.server.freeze_watches(frozen=False)
        with pytest.raises(DeletedError, match="SharePod default/a was deleted"):
            await waiting
        with pytest.raises(NotFoundError):
            await mine.wait("b")


def test_waiting_ends_if_it_was_deleted_before_the_watch_began(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def play(cluster: FakeCluster) -> None:
        async with client(cluster) as mine:
            await mine.create(a_sharepod())
            requests = cluster.server.client("user")
            listing = requests.list

            async def after_its_end(*arguments: Any, **selection: Any) -> Any:
                cluster.delete("a")
                return await listing(*arguments, **selection)

            monkeypatch.setattr(requests, "list", after_its_end)
            with pytest.raises(DeletedError, match="SharePod default/a was deleted"):
                await Cluster(requests).wait("a", timeout=60)

    run_scenario(play)


@pytest.mark.parametrize(
    ("gpu", "field"),
    [
        ({"request": 1.5, "limit": 1}, "spec.gpu.request"),
        ({"request": "many"}, "spec.gpu.request"),
        ({"memory": "-1"}, "spec.gpu.memory"),
    ],
)
def test_what_is_not_acceptable_is_not_sent(gpu: dict[str, Any], field: str) -> None:
    async def play(cluster: FakeCluster) -> None:
        async with client(cluster) as mine:
            with pytest.raises(InvalidValueError) as found:
                await mine.create(a_sharepod(**gpu))
            assert found.value.field == field
        assert not cluster.server.requests

    run_scenario(play)


@scenario(n1=1)
async def test_refusals_are_those_of_the_api_server(cluster: FakeCluster) -> None:
    async with client(cluster) as mine:
        await mine.create(a_sharepod())
        with pytest.raises(AlreadyExistsError):
            await mine.create(a_sharepod())
        with pytest.raises(NothingToExplainError, match="no SharePod or pod b in namespace"):
            await mine.explain("b")
        cluster.server.inject(Fault.answer(403, "Forbidden"), verb="list")
        with pytest.raises(ForbiddenError):
            await mine.list()
        with pytest.raises(InvalidValueError, match=r'^by: "colour" is none of namespace, '):
            await mine.usage(by=["colour"])
        with pytest.raises(InvalidValueError, match=r"^since: "):
            await mine.usage(since="yesterday")
        assert (await mine.usage()).rows == ()


async def follow(found: list[str], mine: Cluster) -> None:
    async with aclosing(mine.watch()) as changes:
        async for change in changes:
            found.append(words(change))  # noqa: PERF401 - there is no end


def words(change: Change) -> str:
    state = change.sharepod
    return f"{change.type} {state.namespace}/{state.name} {state.labels.get('app', '-')}"


@scenario(n1=1)
async def test_a_watch_starts_with_what_is_there_and_misses_nothing(cluster: FakeCluster) -> None:
    async with client(cluster) as mine:
        await mine.create(a_sharepod("a"))
        await mine.create(a_sharepod("b"))
        found: list[str] = []
        cluster.beside(follow(found, mine))
        await cluster.until(lambda: len(found) == 2)
        relabel(cluster, "a", "z")
        await cluster.until(lambda: "MODIFIED default/a z" in found)
        # What a new list shows: one is gone, one is another, one is changed, one is the same.
        await mine.create(a_sharepod("c"))
        await mine.create(a_sharepod("d"))
        await cluster.until(lambda: len(found) == 5)
        cluster.server.freeze_watches()
        for name in "ab":
            cluster.delete(name)
        await mine.create(a_sharepod("b"))
        relabel(cluster, "c", "y")
        cluster.server.expire_watches()
        cluster.server.freeze_watches(frozen=False)
        await cluster.until(lambda: len(found) == 9)
        assert sorted(found[5:]) == [
            "ADDED default/b b",
            "DELETED default/a z",
            "DELETED default/b b",
            "MODIFIED default/c y",
        ]
        relabel(cluster, "d", "x")
        await cluster.until(lambda: found[9:] == ["MODIFIED default/d x"])


def relabel(cluster: FakeCluster, name: str, app: str) -> None:
    def change(obj: dict[str, object]) -> None:
        obj["metadata"]["labels"]["app"] = app  # type: ignore[index]

    cluster.server.change(SHAREPODS, name, "default", change)


@scenario(n1=1)
async def test_a_watch_survives_an_api_server_that_is_away_for_a_while(
    cluster: FakeCluster,
) -> None:
    async with client(cluster) as mine:
        await mine.create(a_sharepod("a"))
        waiting = asyncio.create_task(mine.wait("a", timeout=3600))
        await cluster.quiet(1)
        cluster.server.down = True
        cluster.server.end_watches()
        await cluster.quiet(RETRY_SECONDS / 2)
        cluster.server.down = False
        await cluster.quiet(30)
        cluster.start()
        assert (await waiting).ready
        await mine.create(a_sharepod("b", request=0.9))
        waiting = asyncio.create_task(mine.wait("b", timeout=3600))
        await cluster.quiet(1)
        cluster.server.down = True
        cluster.server.end_watches()
        with pytest.raises(UnreachableError):
            await asyncio.wait_for(waiting, RETRY_SECONDS * 2)
        cluster.server.down = False
