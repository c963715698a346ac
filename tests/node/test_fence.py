"""A vGPU without its placeholder: its grants are revoked."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from fakes.node import (
    A_GPU,
    OTHER_GPU,
    Cluster,
    FakeKubelet,
    Running,
    claim_reference,
    write_daemon_status,
)
from kubeshare.api.types.constants import NAMESPACE, placeholder_name
from kubeshare.api.types.v1 import VGPUS
from kubeshare.kube.controller.controller import TerminalError
from kubeshare.kube.resources import EVENTS, PODS
from kubeshare.node.agent import Agent
from kubeshare.node.dra.driver import ClaimRefusedError
from kubeshare.node.paths import NodePaths
from kubeshare.simulator.control import FakeApiServer, run_virtual

CLAIM = claim_reference("a")
PLACEHOLDER = placeholder_name("red")
WHOLE = "nvidia.com/gpu"


@pytest.fixture
def shared(cluster: Cluster, paths: NodePaths, agent: Running) -> Cluster:
    """Pod ``a`` runs here by its grant, on vGPU ``red``, whose placeholder is known."""
    cluster.add_pod("a", phase="Running")
    cluster.add_vgpu("red", cluster.holder("a"))
    note(cluster.server, placeholder_uid(cluster.server))
    write_daemon_status(paths, CLAIM.uid, "ACTIVE")
    start(agent, lambda running: running.prepare(CLAIM))
    return cluster


def placeholder_uid(server: FakeApiServer) -> str:
    pod = server.stored(PODS, PLACEHOLDER, NAMESPACE)
    assert pod is not None
    uid: str = pod["metadata"]["uid"]
    return uid


def note(server: FakeApiServer, uid: str) -> None:
    server.change(VGPUS, "red", "", lambda vgpu: vgpu["spec"].update(placeholderUid=uid))


def noted(server: FakeApiServer) -> str:
    vgpu = server.stored(VGPUS, "red")
    assert vgpu is not None
    uid: str = vgpu["spec"].get("placeholderUid", "")
    return uid


def start(running: Running, act: Callable[[Agent], Awaitable[object]]) -> None:
    async def main() -> None:
        async with running() as agent:
            await act(agent)
            await agent.events.flush()

    run_virtual(main())


def look(agent: Agent) -> Awaitable[object]:
    return agent.reconciler.reconcile_vgpu("red")


def grants(agent: Running) -> list[str]:
    found: list[str] = []

    async def read(running: Agent) -> None:
        found.extend(grant.claim for grant in running.grants.all())

    start(agent, read)
    return found


def test_the_grants_of_a_gpu_with_its_placeholder_are_kept(shared: Cluster, agent: Running) -> None:
    start(agent, look)
    assert grants(agent) == [CLAIM.uid]
    assert shared.holders("red") == ["a"]


def remove(server: FakeApiServer) -> None:
    server.remove(PODS, PLACEHOLDER, NAMESPACE)


def evict(server: FakeApiServer) -> None:
    ended = {"phase": "Failed", "reason": "Evicted"}
    server.change(PODS, PLACEHOLDER, NAMESPACE, lambda pod: pod["status"].update(ended))


def delete(server: FakeApiServer) -> None:
    mark = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
    server.change(PODS, PLACEHOLDER, NAMESPACE, lambda pod: pod["metadata"].update(mark))


def replace(server: FakeApiServer) -> None:
    server.remove(PODS, PLACEHOLDER, NAMESPACE)
    Cluster(server).add_placeholder("red")


@pytest.mark.parametrize("lose", [remove, evict, delete, replace])
def test_a_lost_placeholder_takes_the_gpu_from_those_who_share_it_and_tells_them(
    shared: Cluster, agent: Running, lose: Callable[[FakeApiServer], None]
) -> None:
    lose(shared.server)
    start(agent, look)
    assert grants(agent) == []
    assert shared.holders("red") == ["a"], "its containers may still run"
    revoked = [event for event in shared.server.all(EVENTS) if event["reason"] == "GrantRevoked"]
    assert [event["regarding"]["name"] for event in revoked] == ["a"]
    assert "the placeholder of vGPU red is gone" in revoked[0]["note"]


def test_a_placeholder_that_only_the_watch_has_lost_is_there(
    shared: Cluster, agent: Running
) -> None:
    async def act(running: Agent) -> None:
        stored = shared.server.stored(PODS, PLACEHOLDER, NAMESPACE)
        shared.server.remove(PODS, PLACEHOLDER, NAMESPACE)
        await asyncio.sleep(1)
        shared.server.freeze_watches()
        assert stored is not None
        shared.server.seed(PODS, stored)
        await look(running)

    start(agent, act)
    assert grants(agent) == [CLAIM.uid]


def make_static(server: FakeApiServer) -> None:
    server.change(VGPUS, "red", "", lambda vgpu: vgpu["spec"].update(pool="static"))


def test_a_vgpu_that_has_become_static_needs_no_placeholder(
    shared: Cluster, agent: Running, paths: NodePaths
) -> None:
    make_static(shared.server)
    remove(shared.server)
    shared.add_pod("b")
    shared.add_vgpu_holder("red", shared.holder("b"))
    write_daemon_status(paths, claim_reference("b").uid, "ACTIVE")

    async def act(running: Agent) -> None:
        await look(running)
        await running.prepare(claim_reference("b"))

    start(agent, act)
    assert sorted(grants(agent)) == sorted([CLAIM.uid, claim_reference("b").uid])


def test_the_watch_may_report_a_static_vgpu_after_its_placeholder_has_gone(
    shared: Cluster, agent: Running
) -> None:
    async def act(running: Agent) -> None:
        remove(shared.server)
        await asyncio.sleep(1)
        shared.server.freeze_watches()
        make_static(shared.server)
        await look(running)

    start(agent, act)
    assert grants(agent) == [CLAIM.uid]


def test_nobody_is_prepared_on_a_gpu_that_nothing_keeps(shared: Cluster, agent: Running) -> None:
    remove(shared.server)
    shared.add_pod("b")
    shared.add_vgpu_holder("red", shared.holder("b"))

    async def act(running: Agent) -> None:
        with pytest.raises(ClaimRefusedError, match="another pod may have its GPU"):
            await running.prepare(claim_reference("b"))

    start(agent, act)
    assert grants(agent) == [CLAIM.uid]


def resolve(
    cluster: Cluster, agent: Running, paths: NodePaths, devices: list[str]
) -> list[type[Exception]]:
    """Reconcile the vGPU while its new placeholder has these; returns what was raised."""
    kubelet = FakeKubelet()
    kubelet.devices[NAMESPACE, PLACEHOLDER] = {WHOLE: devices}
    raised: list[type[Exception]] = []

    async def main() -> None:
        async with kubelet.serve_pod_resources(paths.pod_resources_socket), agent() as running:
            try:
                await look(running)
            except TerminalError as error:
                raised.append(type(error))
            await running.events.flush()

    asyncio.run(main())
    return raised


def test_a_new_placeholder_with_the_same_gpu_is_noted_after_the_old_grants_have_gone(
    shared: Cluster, agent: Running, paths: NodePaths
) -> None:
    replace(shared.server)
    assert resolve(shared, agent, paths, [A_GPU.uuid]) == []
    assert noted(shared.server) == placeholder_uid(shared.server)
    assert grants(agent) == [], "another pod may have had the GPU meanwhile"


def test_a_new_placeholder_with_another_gpu_is_not_noted_and_told(
    shared: Cluster, agent: Running, paths: NodePaths
) -> None:
    replace(shared.server)
    assert resolve(shared, agent, paths, [OTHER_GPU.uuid]) == [TerminalError]
    assert noted(shared.server) != placeholder_uid(shared.server)
    notes = [event["note"] for event in shared.server.all(EVENTS)]
    assert any(f"given GPU {OTHER_GPU.uuid}, not its own {A_GPU.uuid}" in note for note in notes)


def test_a_new_placeholder_is_not_noted_before_its_kubelet_has_taken_it_on(
    shared: Cluster, agent: Running, paths: NodePaths
) -> None:
    """Until then the kubelet may answer for the lost one, which had the same name."""
    shared.server.remove(PODS, PLACEHOLDER, NAMESPACE)
    shared.add_placeholder("red", "Pending", admitted=False)
    assert resolve(shared, agent, paths, [A_GPU.uuid]) == []
    assert noted(shared.server) != placeholder_uid(shared.server)
