"""GPUs of grants that cannot be read when the agent starts give no shares to others."""

from collections.abc import Iterable

import pytest

from fakes.node import (
    A_GPU,
    NODE,
    OTHER_GPU,
    Cluster,
    Running,
    claim_reference,
    write_daemon_status,
)
from kubeshare.api.types.v1 import GPUNODES, GPUNodeSpec
from kubeshare.node.agent import Agent
from kubeshare.node.dra import cdi
from kubeshare.node.dra.driver import ClaimRefusedError
from kubeshare.node.paths import NodePaths
from kubeshare.simulator.control import FakeApiServer, run_virtual
from kubeshare.tokens.files.grants import read_grant
from kubeshare.tokens.files.run_folder import Paths
from kubeshare.tokens.wire.page import PageWriter

CLAIM = claim_reference("a")
Fenced = dict[str, tuple[str, ...]]


@pytest.fixture
def broken(cluster: Cluster, paths: NodePaths, agent: Running) -> Cluster:
    """Pod ``a`` is prepared and runs on vGPU ``red``; then its grant is broken, its page is not."""
    cluster.add_pod("a", phase="Running")
    cluster.add_vgpu("red", cluster.holder("a"))
    write_daemon_status(paths, CLAIM.uid, "ACTIVE")

    async def prepare() -> None:
        async with agent() as running:
            await running.prepare(CLAIM)

    run_virtual(prepare())
    run = Paths(paths.run_folder)
    run.claim(CLAIM.uid).mkdir(exist_ok=True)
    PageWriter(run.claim(CLAIM.uid) / "page", read_grant(run.grant(CLAIM.uid)))
    run.grant(CLAIM.uid).write_text("{")
    return cluster


def fenced(agent: Running, *mounted: str, in_use: Iterable[str] = (), reconcile: int = 0) -> Fenced:
    """What an agent fences that starts now, and then reconciles the grant so often.

    Args:
        agent: starts it.
        mounted: the pods with processes that have the claim mounted.
        in_use: the claims that the kubelet has.
        reconcile: how often; the claim is used by nothing any more then.
    """

    async def act(running: Agent) -> Fenced:
        users, kept = set(mounted), set(in_use)
        running.unreadable._users = lambda: {
            **dict.fromkeys(kept, frozenset[str]()),
            **({CLAIM.uid: frozenset(users)} if users else {}),
        }
        await running.reconciler.find_unrecorded()
        for _ in range(reconcile):
            users.clear()
            kept.clear()
            assert await running.reconciler.reconcile_grant(CLAIM.uid) is None
        return running.unrecorded.report([A_GPU.uuid, OTHER_GPU.uuid])

    async def main() -> Fenced:
        async with agent() as running:
            return await act(running)

    return run_virtual(main())


def test_its_gpu_is_fenced_where_the_record_lacks_its_pod(broken: Cluster, agent: Running) -> None:
    broken.add_vgpu("red")
    assert fenced(agent, "a-uid") == {A_GPU.uuid: ("default/a",)}


def test_a_pod_that_is_gone_from_the_api_server_is_named_by_its_uid(
    broken: Cluster, agent: Running
) -> None:
    assert fenced(agent, "gone-uid") == {A_GPU.uuid: ("unknown/gone-uid",)}


def test_without_its_page_all_gpus_are_fenced(
    broken: Cluster, agent: Running, paths: NodePaths
) -> None:
    (Paths(paths.run_folder).claim(CLAIM.uid) / "page").write_bytes(b"?")
    assert fenced(agent, "a-uid") == dict.fromkeys((A_GPU.uuid, OTHER_GPU.uuid), ("default/a",))


def test_a_pod_that_is_recorded_fences_nothing(broken: Cluster, agent: Running) -> None:
    assert fenced(agent, "a-uid") == {}


def test_a_claim_that_only_the_kubelet_has_is_fenced(broken: Cluster, agent: Running) -> None:
    assert fenced(agent, in_use=[CLAIM.uid]) == {A_GPU.uuid: (f"unknown/claim-{CLAIM.uid}",)}


def test_a_claim_that_nothing_uses_fences_nothing(broken: Cluster, agent: Running) -> None:
    assert fenced(agent) == {}


def test_the_fence_is_lifted_when_nothing_uses_the_claim_any_more(
    broken: Cluster, agent: Running
) -> None:
    broken.add_vgpu("red")
    assert fenced(agent, "a-uid", reconcile=2) == {}


def test_a_claim_that_is_prepared_anew_has_a_grant_again(broken: Cluster, agent: Running) -> None:
    async def main() -> tuple[int, Fenced]:
        async with agent() as running:
            running.unreadable._users = lambda: {CLAIM.uid: frozenset({"gone-uid"})}
            await running.reconciler.find_unrecorded()
            assert running.unrecorded.pods()
            await running.prepare(CLAIM)
            await running.reconciler.reconcile_grant(CLAIM.uid)
            return len(running.grants.all()), running.unrecorded.pods()

    assert run_virtual(main()) == (1, {})


def test_a_failed_repetition_leaves_the_running_containers_their_grant(
    broken: Cluster, agent: Running, paths: NodePaths
) -> None:
    for file in paths.static_cdi_folder.iterdir():
        file.unlink()

    async def main() -> None:
        async with agent() as running:
            with pytest.raises(ClaimRefusedError, match="no CDI spec"):
                await running.prepare(CLAIM)

    run_virtual(main())
    assert Paths(paths.run_folder).grant(CLAIM.uid).exists()
    assert cdi.claims(paths.dynamic_cdi_folder) == {CLAIM.uid}


def test_its_containers_may_start_again_while_it_is_in_use(
    broken: Cluster, agent: Running, paths: NodePaths
) -> None:
    async def start(*users: str) -> set[str]:
        async with agent() as running:
            running.unreadable._users = lambda: {CLAIM.uid: frozenset(users)} if users else {}
            await running.reconciler.find_unrecorded()
            running.reconciler.start()
            return cdi.claims(paths.dynamic_cdi_folder)

    assert run_virtual(start("a-uid")) == {CLAIM.uid}
    assert run_virtual(start()) == set()


def test_the_first_report_of_an_agent_fences_all_gpus_where_one_may_use_any(
    broken: Cluster, agent: Running, paths: NodePaths, server: FakeApiServer
) -> None:
    """It does not know the GPUs before it has read them, and publishes them with what it reads."""
    (Paths(paths.run_folder).claim(CLAIM.uid) / "page").write_bytes(b"?")

    async def main() -> None:
        async with agent() as running:
            running.inventory.found = GPUNodeSpec()
            running.unreadable._users = lambda: {CLAIM.uid: frozenset({"a-uid"})}
            await running.reconciler.find_unrecorded()
            await running.inventory.refresh()

    run_virtual(main())
    published = server.stored(GPUNODES, NODE)
    assert published is not None
    devices = published["spec"]["devices"]
    assert [device.get("unrecordedPods") for device in devices] == [["default/a"]] * 2


def test_the_processes_are_looked_at_once_for_all_claims(
    broken: Cluster, agent: Running, paths: NodePaths
) -> None:
    claims = [CLAIM.uid, "b-claim-uid", "c-claim-uid"]
    for claim in claims:
        Paths(paths.run_folder).grant(claim).write_text("{")
    looks: list[set[str]] = []
    used = {claim: frozenset({"a-uid"}) for claim in claims}

    async def main() -> None:
        async with agent() as running:

            def look() -> dict[str, frozenset[str]]:
                looks.append(set(running.grants.unreadable))
                return dict(used)

            async def reconcile_each() -> list[bool]:
                found = [await running.reconciler.reconcile_grant(claim) for claim in claims]
                return [again is not None for again in found]

            running.unreadable._users = look
            await running.reconciler.find_unrecorded()
            assert await reconcile_each() == [True, True, True]
            del used[CLAIM.uid]  # it looked after all, and is the first to go
            assert await reconcile_each() == [False, True, True]
            used.clear()
            assert await reconcile_each() == [False, False, False]

    run_virtual(main())
    # When it starts, twice in the round in which another one becomes the first, and then once.
    assert looks == [set(claims)] * 3 + [set(claims[1:])] * 2
