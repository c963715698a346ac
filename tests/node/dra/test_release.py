"""Unprepare removes everything of a pod, and its holder exactly once."""

import asyncio

import pytest
from structlog.testing import capture_logs

from fakes.node import A_GPU, OTHER_GPU, Cluster, Running, claim_reference, write_daemon_status
from kubeshare.api.types.v1 import VGPUS
from kubeshare.core.token import Tally
from kubeshare.node.dra import cdi
from kubeshare.node.dra.account import Account
from kubeshare.node.dra.driver import ClaimReference, ClaimRefusedError
from kubeshare.node.dra.release import Releaser
from kubeshare.node.paths import NodePaths
from kubeshare.simulator.control import FakeApiServer, Fault, run_virtual
from kubeshare.tokens.files.run_folder import Paths
from kubeshare.tokens.files.tallies import Tallies

CLAIM = claim_reference("a")


@pytest.fixture
def prepared(cluster: Cluster, paths: NodePaths, agent: Running) -> Cluster:
    """Pods ``a`` and ``b`` share vGPU ``red``, and ``a`` is prepared."""
    cluster.add_pod("a")
    cluster.add_vgpu("red", cluster.holder("b"), cluster.holder("a"))
    write_daemon_status(paths, CLAIM.uid, "ACTIVE")

    async def main() -> None:
        async with agent() as running:
            await running.prepare(CLAIM)

    run_virtual(main())
    return cluster


def unprepare(running: Running, claim: ClaimReference = CLAIM) -> None:
    async def main() -> None:
        async with running() as agent:
            await agent.unprepare(claim)

    run_virtual(main())


def is_detached(paths: NodePaths) -> bool:
    grants = list((paths.run_folder / "grants").iterdir())
    return not grants and not cdi.claims(paths.dynamic_cdi_folder)


def test_the_spec_the_grant_and_the_pods_own_holder_go(
    prepared: Cluster, agent: Running, paths: NodePaths
) -> None:
    unprepare(agent)
    assert is_detached(paths)
    assert prepared.holders("red") == ["b"]


def test_all_vgpus_of_the_pod_are_released(prepared: Cluster, agent: Running) -> None:
    prepared.add_vgpu("blue", prepared.holder("a"), uuid=OTHER_GPU.uuid)
    unprepare(agent)
    assert prepared.holders("red") == ["b"]
    assert prepared.holders("blue") == []


def test_undoing_twice_or_without_a_preparation_is_fine(prepared: Cluster, agent: Running) -> None:
    unprepare(agent)
    unprepare(agent)
    unprepare(agent, claim_reference("never-seen"))
    unprepare(agent, ClaimReference("default", "hostile", "../../etc/passwd"))
    assert prepared.holders("red") == ["b"]


def test_a_holder_added_meanwhile_survives_the_release(prepared: Cluster, agent: Running) -> None:
    late = [prepared.holder("b"), prepared.holder("c"), prepared.holder("a")]

    async def main() -> None:
        async with agent() as running:
            # Another writer is quicker, and the agent's watch has not delivered it yet.
            prepared.add_vgpu("red", *late)
            await running.unprepare(CLAIM)

    run_virtual(main())
    assert prepared.holders("red") == ["b", "c"]


def test_the_kubelet_is_told_to_ask_again_when_the_part_cannot_be_given_back(
    prepared: Cluster, server: FakeApiServer, agent: Running, paths: NodePaths
) -> None:
    server.inject(Fault.answer(500), verb="patch", resource="vgpus/status")

    async def main() -> None:
        async with agent() as running:
            with pytest.raises(ClaimRefusedError, match="not released"):
                await running.unprepare(CLAIM)
            assert is_detached(paths)
            assert prepared.holders("red") == ["b", "a"]
            await running.unprepare(CLAIM)

    run_virtual(main())
    assert prepared.holders("red") == ["b"]


def test_the_part_of_a_newer_pod_of_the_same_demand_stays(
    prepared: Cluster, server: FakeApiServer, agent: Running
) -> None:
    async def main() -> None:
        async with agent() as running:
            newer = prepared.holder("a", pod_uid="newer-uid")
            prepared.add_vgpu("red", prepared.holder("b"), newer)
            await running.unprepare(CLAIM)

    run_virtual(main())
    assert prepared.holders("red") == ["b", "a"]


def test_a_vgpu_that_is_gone_is_released_already(
    prepared: Cluster, server: FakeApiServer, agent: Running, paths: NodePaths
) -> None:
    async def main() -> None:
        async with agent() as running:
            server.remove(VGPUS, "red")
            await running.unprepare(CLAIM)

    run_virtual(main())
    assert is_detached(paths)


def test_a_vgpu_that_always_changes_ends_in_an_error_not_in_a_loop(
    prepared: Cluster, server: FakeApiServer, agent: Running
) -> None:
    counter = iter(range(1000))

    def touch() -> None:
        server.change(
            VGPUS, "red", "", lambda obj: obj["metadata"].update(labels={"n": str(next(counter))})
        )

    async def main() -> None:
        async with agent() as running:

            async def interfere() -> None:
                while True:
                    touch()
                    await asyncio.sleep(0)

            task = asyncio.create_task(interfere())
            with pytest.raises(ClaimRefusedError, match="changed at each of 20 attempts"):
                await running.unprepare(CLAIM)
            task.cancel()

    run_virtual(main())


@pytest.mark.usefixtures("prepared")
@pytest.mark.parametrize("counted", [True, False])
def test_the_end_of_a_grant_is_accounted_for_once(
    server: FakeApiServer, agent: Running, paths: NodePaths, *, counted: bool
) -> None:
    if counted:
        tallies = Tallies(Paths(paths.run_folder).tally(CLAIM.uid), 1)
        tallies.write(0, Tally(charged_ns=5_000_000))
    accounts: list[Account] = []

    async def main() -> None:
        async with agent() as running, server.client("node-agent") as client:
            folder = paths.dynamic_cdi_folder
            releaser = Releaser(client, running.view, running.grants, folder, accounts.append)
            await releaser.unprepare(CLAIM)
            await releaser.unprepare(CLAIM)

    with capture_logs() as logs:
        run_virtual(main())
    (account,) = accounts
    assert (account.grant, account.pod.name, account.pod.uid) == (CLAIM.uid, "a", "a-uid")
    (share,) = account.shares
    assert (share.uuid, share.request_micros, share.memory_bytes) == (A_GPU.uuid, 300_000, 1 << 30)
    assert share.used_ns == (5_000_000 if counted else None)
    (line,) = [entry for entry in logs if entry["event"] == "grant ends"]
    assert (line["pod"], line["gpus"][0]["used_ns"]) == ("default/a", share.used_ns)
