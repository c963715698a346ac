"""Holders and grants that crashes leave behind are removed."""

import asyncio
import errno
import json
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest
from structlog.testing import capture_logs

from fakes.node import Cluster, Running, claim_reference, write_daemon_status
from kubeshare.api.types.v1 import VGPUS
from kubeshare.kube.controller.controller import RequeueAfter
from kubeshare.kube.resources import EVENTS, PODS
from kubeshare.node.agent import Agent
from kubeshare.node.dra import cdi
from kubeshare.node.dra.grants import Grants
from kubeshare.node.paths import NodePaths
from kubeshare.simulator.control import FakeApiServer, run_virtual
from kubeshare.tokens.files.grants import GRANT_VERSION
from kubeshare.tokens.files.run_folder import Paths

T = TypeVar("T")
CLAIM = claim_reference("a")
Act = Callable[[Agent], Awaitable[T]]


@pytest.fixture
def held(cluster: Cluster) -> Cluster:
    """Pod ``a`` runs here and holds a share of vGPU ``red``; nothing is prepared."""
    cluster.add_pod("a", phase="Running")
    cluster.add_vgpu("red", cluster.holder("a"))
    return cluster


@pytest.fixture
def prepared(held: Cluster, paths: NodePaths, agent: Running) -> Cluster:
    """The same, and prepared by an agent that has ended."""
    write_daemon_status(paths, CLAIM.uid, "ACTIVE")
    start(agent, lambda running: running.prepare(CLAIM))
    return held


def start(running: Running, act: Act[T]) -> T:
    async def main() -> T:
        async with running() as agent:
            return await act(agent)

    return run_virtual(main())


def look_at_vgpu(agent: Agent) -> Awaitable[RequeueAfter | None]:
    return agent.reconciler.reconcile_vgpu("red")


def look_at_grant(agent: Agent) -> Awaitable[RequeueAfter | None]:
    return agent.reconciler.reconcile_grant(CLAIM.uid)


def test_a_holder_whose_pod_is_gone_and_not_prepared_is_released(
    held: Cluster, server: FakeApiServer, agent: Running
) -> None:
    server.remove(PODS, "a", "default")
    assert start(agent, look_at_vgpu) is None
    assert held.holders("red") == []


def test_a_holder_whose_pod_is_gone_and_still_runs_is_kept_and_looked_at_again(
    held: Cluster, server: FakeApiServer, agent: Running
) -> None:
    server.remove(PODS, "a", "default")

    async def act(running: Agent) -> RequeueAfter | None:
        running.reconciler._has_processes = lambda uid: uid == "a-uid"
        return await look_at_vgpu(running)

    assert isinstance(start(agent, act), RequeueAfter)
    assert held.holders("red") == ["a"]


def test_a_holder_whose_pod_was_replaced_by_a_namesake_is_released(
    held: Cluster, server: FakeApiServer, agent: Running
) -> None:
    server.remove(PODS, "a", "default")
    server.seed(PODS, {"metadata": {"name": "a", "namespace": "default", "uid": "new"}})
    start(agent, look_at_vgpu)
    assert held.holders("red") == []


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_holder_whose_pod_has_ended_and_is_not_prepared_is_released(
    held: Cluster, agent: Running, phase: str
) -> None:
    held.add_pod("a", phase=phase)
    start(agent, look_at_vgpu)
    assert held.holders("red") == []


def test_a_holder_whose_pod_runs_is_kept_without_asking(
    held: Cluster, server: FakeApiServer, agent: Running
) -> None:
    assert start(agent, look_at_vgpu) is None
    assert held.holders("red") == ["a"]
    assert not [asked for asked in server.requests if asked.verb == "get"]


def test_a_holder_whose_pod_is_not_bound_yet_is_kept_and_looked_at_again(
    held: Cluster, server: FakeApiServer, agent: Running
) -> None:
    server.change(PODS, "a", "default", lambda pod: pod["spec"].pop("nodeName"))
    assert isinstance(start(agent, look_at_vgpu), RequeueAfter)
    assert held.holders("red") == ["a"]


def test_a_holder_without_a_pod_yet_is_kept(held: Cluster, agent: Running) -> None:
    held.add_vgpu("red", held.holder("a", pod_uid=""))
    assert start(agent, look_at_vgpu) is None
    assert held.holders("red") == ["a"]


def test_a_force_deleted_pod_keeps_its_part_until_the_kubelet_calls(
    prepared: Cluster, server: FakeApiServer, agent: Running
) -> None:
    server.remove(PODS, "a", "default")
    start(agent, look_at_vgpu)
    assert prepared.holders("red") == ["a"]
    start(agent, lambda running: running.unprepare(CLAIM))
    assert prepared.holders("red") == []


def test_a_grant_is_revoked_when_its_holder_is_taken_away(
    prepared: Cluster, agent: Running, paths: NodePaths
) -> None:
    prepared.add_vgpu("red")

    async def act(running: Agent) -> None:
        await look_at_grant(running)
        await running.events.flush()

    start(agent, act)
    assert not list((paths.run_folder / "grants").iterdir())
    assert not cdi.claims(paths.dynamic_cdi_folder)
    (event,) = prepared.server.all(EVENTS)
    assert event["reason"] == "GrantRevoked"
    assert (event["regarding"]["kind"], event["regarding"]["uid"]) == ("Pod", "a-uid")


@pytest.mark.usefixtures("prepared")
def test_at_the_start_every_grant_on_disk_is_looked_at(agent: Running) -> None:
    async def act(running: Agent) -> object:
        running.reconciler.start()
        return await running.reconciler.grants.queue.get()

    assert start(agent, act) == CLAIM.uid


def test_a_grant_is_kept_where_only_the_store_has_lost_its_holder(
    prepared: Cluster, server: FakeApiServer, agent: Running
) -> None:
    async def act(running: Agent) -> bool:
        server.freeze_watches()
        running.view.vgpus.store.replace([])
        await look_at_grant(running)
        return running.grants.read(CLAIM.uid) is not None

    assert start(agent, act)


def test_a_grant_of_a_running_pod_is_kept(prepared: Cluster, agent: Running) -> None:
    async def act(running: Agent) -> bool:
        return await look_at_grant(running) is None and bool(running.grants.all())

    assert start(agent, act)


def test_a_grant_that_the_kubelet_has_forgotten_is_dropped_after_three_minutes(
    prepared: Cluster, server: FakeApiServer, agent: Running, paths: NodePaths
) -> None:
    server.remove(PODS, "a", "default")

    async def act(running: Agent) -> float:
        loop = asyncio.get_running_loop()
        controller = asyncio.create_task(running.reconciler.grants.run())
        running.reconciler.start()
        while running.grants.all():
            assert loop.time() < 1000
            await asyncio.sleep(1)
        controller.cancel()
        return loop.time()

    assert 179 < start(agent, act) < 185
    assert prepared.holders("red") == []


def test_a_grant_whose_claim_another_pod_uses_is_kept_until_that_pod_has_ended(
    prepared: Cluster, server: FakeApiServer, agent: Running
) -> None:
    server.remove(PODS, "a", "default")
    users = {CLAIM.uid}

    async def act(running: Agent) -> tuple[list[str], float]:
        running.reconciler._claim_in_use = users.__contains__
        loop = asyncio.get_running_loop()
        controller = asyncio.create_task(running.reconciler.grants.run())
        running.reconciler.start()
        await asyncio.sleep(1000)
        held = prepared.holders("red") if running.grants.all() else []
        users.clear()
        while running.grants.all():
            assert loop.time() < 2000
            await asyncio.sleep(1)
        controller.cancel()
        return held, loop.time()

    held, until = start(agent, act)
    assert held == ["a"]
    assert until < 1035
    assert prepared.holders("red") == []


def test_specs_without_a_grant_are_removed_at_the_start(
    agent: Running, paths: NodePaths, cluster: Cluster
) -> None:
    mounts = cdi.ClaimMounts(*(paths.root for _ in range(4)))
    folder = paths.dynamic_cdi_folder
    folder.mkdir(parents=True, exist_ok=True)
    before = {file.name for file in folder.iterdir()}
    cdi.write_claim(folder, "left-by-a-crash", {"left-by-a-crash": mounts})
    draft = folder / "kubeshare.nthu-claim_half-written.tmp"
    of_another = folder / "kubeshare.nthu-claim_of another.json"
    draft.touch()
    of_another.touch()

    async def act(running: Agent) -> None:
        running.reconciler.start()

    start(agent, act)
    assert {file.name for file in folder.iterdir()} == before | {of_another.name}


def test_grants_of_commands_without_a_cluster_are_none_of_ours(
    agent: Running, paths: NodePaths, cluster: Cluster
) -> None:
    grants = paths.run_folder / "grants"
    grants.mkdir(parents=True)
    gpu = {"uuid": "GPU-00000000-0000-0000-0000-00000000000a", "memoryTotalBytes": 2}
    gpu |= {"requestMicros": 1, "limitMicros": 1, "memoryBytes": 1}
    document = {"version": GRANT_VERSION, "claim": "run-1", "gpus": [gpu]}
    (grants / "run-1.json").write_text(json.dumps(document))
    (grants / "broken.json").write_text("{")

    async def act(running: Agent) -> int:
        return len(running.grants.all())

    assert start(agent, act) == 0
    assert len(list(grants.iterdir())) == 2


def test_a_deleted_pod_makes_the_controllers_look_at_its_vgpu(
    held: Cluster, server: FakeApiServer, agent: Running
) -> None:
    async def act(running: Agent) -> None:
        controller = asyncio.create_task(running.reconciler.vgpus.run())
        await asyncio.sleep(1)
        assert held.holders("red") == ["a"]
        server.remove(PODS, "a", "default")
        await asyncio.sleep(1)
        controller.cancel()

    start(agent, act)
    assert held.holders("red") == []


def test_a_holder_taken_away_makes_the_controllers_look_at_the_grant(
    prepared: Cluster, server: FakeApiServer, agent: Running
) -> None:
    async def act(running: Agent) -> int:
        controller = asyncio.create_task(running.reconciler.grants.run())
        await asyncio.sleep(1)
        assert running.grants.all()
        server.remove(VGPUS, "red")
        await asyncio.sleep(1)
        controller.cancel()
        return len(running.grants.all())

    assert start(agent, act) == 0


def test_the_grants_of_a_former_boot_are_void_and_those_of_this_one_are_not(
    prepared: Cluster, agent: Running
) -> None:
    left: list[int] = []

    def boot(name: str) -> Act[None]:
        async def begin(running: Agent) -> None:
            running.void_former_boot(name)
            left.append(len(running.grants.all()))

        return begin

    for name in ("first", "first", "second"):
        start(agent, boot(name))
    assert left == [1, 1, 0]
    assert prepared.holders("red") == ["a"], "it may be started again"


def test_an_unreadable_grant_of_a_former_boot_is_void_too(
    prepared: Cluster, agent: Running, paths: NodePaths
) -> None:
    async def boot(running: Agent) -> None:
        running.void_former_boot("first")

    async def next_boot(running: Agent) -> None:
        running.void_former_boot("second")

    start(agent, boot)
    (grant,) = Paths(paths.run_folder).grants.iterdir()
    grant.write_text("{")
    start(agent, next_boot)
    assert not grant.exists()


def test_a_stray_file_keeps_no_grant_of_a_former_boot_and_no_agent_from_starting(
    prepared: Cluster, agent: Running, paths: NodePaths
) -> None:
    async def boot(running: Agent) -> None:
        running.void_former_boot("first")

    async def next_boot(running: Agent) -> list[str]:
        running.void_former_boot("second")
        running.reconciler.start()
        return [grant.claim for grant in running.grants.all()]

    start(agent, boot)
    folder = Paths(paths.run_folder).grants
    for stray in ("a b.json", "zz z.json"):
        (folder / stray).write_text("{}")
    with capture_logs() as logs:
        assert start(agent, next_boot) == []
    stayed = [each["claim"] for each in logs if each["event"] == "grant of a former boot stays"]
    assert sorted(stayed) == ["a b", "zz z"]
    with capture_logs() as logs:
        assert start(agent, next_boot) == []
    assert "grant of a former boot stays" not in {each["event"] for each in logs}, "it is done"


def test_an_agent_that_ends_while_it_saves_the_boot_voids_no_grant_of_it(
    prepared: Cluster, agent: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut_off(self: Path, data: str | bytes) -> int:
        with self.open("wb"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self))

    async def boot(running: Agent) -> int:
        running.void_former_boot("first")
        return len(running.grants.all())

    with monkeypatch.context() as patched:
        for name in ("write_text", "write_bytes"):
            patched.setattr(Path, name, cut_off)
        with pytest.raises(OSError, match="No space left"):
            start(agent, boot)
    assert start(agent, boot) == 1


def test_an_agent_that_ends_before_it_has_voided_a_former_boot_begins_again(
    prepared: Cluster, agent: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def boot(running: Agent) -> None:
        running.void_former_boot("first")

    async def next_boot(running: Agent) -> int:
        running.void_former_boot("second")
        return len(running.grants.all())

    def fail(*_: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    start(agent, boot)
    with monkeypatch.context() as patched:
        patched.setattr(Grants, "remove", fail)
        with pytest.raises(OSError, match="Input/output"):
            start(agent, next_boot)
    assert start(agent, next_boot) == 0


def test_the_cdi_specs_of_a_former_boot_are_removed_where_run_survives_it(
    prepared: Cluster, agent: Running, paths: NodePaths
) -> None:
    folder = paths.dynamic_cdi_folder
    theirs = folder / "nvidia.yaml"
    theirs.write_text("kind: nvidia.com/gpu")
    left: list[set[str]] = []

    def boot(name: str) -> Act[None]:
        async def begin(running: Agent) -> None:
            running.void_former_boot(name)
            running.reconciler.start()
            left.append(cdi.claims(folder))

        return begin

    (claim,) = cdi.claims(folder)
    start(agent, boot("first"))
    for stale in ("without-a-grant", "begun"):
        cdi.write_claim(folder, stale, {})
    start(agent, boot("first"))
    start(agent, boot("second"))

    assert left == [{claim}, {claim}, set()]
    assert theirs.exists()
