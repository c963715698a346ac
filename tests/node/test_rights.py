"""The rights that the agent needs only after a failure.

The others are used wherever a pod shares a GPU: ``tests/e2e`` proves it of all of them
with the audit of a real API server.
"""

from collections.abc import Awaitable, Callable

from fakes.node import Cluster, Running, claim_reference, write_daemon_status
from kubeshare.kube.resources import EVENTS, PODS
from kubeshare.node.agent import Agent
from kubeshare.node.paths import NodePaths
from kubeshare.simulator.control import Authorizer, FakeApiServer, Permission, run_virtual

CLAIM = claim_reference("a")


def _used_by(agent: Running, act: Callable[[Agent], Awaitable[object]]) -> None:
    async def main() -> None:
        async with agent() as running:
            await act(running)

    run_virtual(main())


def test_it_reads_a_vgpu_that_others_have_changed_before_it_gives_a_part_back(
    cluster: Cluster, paths: NodePaths, agent: Running, rights: Authorizer
) -> None:
    cluster.add_pod("a")
    cluster.add_vgpu("red", cluster.holder("a"))
    write_daemon_status(paths, CLAIM.uid, "ACTIVE")

    async def act(running: Agent) -> None:
        await running.prepare(CLAIM)
        cluster.add_vgpu("red", cluster.holder("b"), cluster.holder("a"))
        await running.unprepare(CLAIM)

    _used_by(agent, act)
    assert Permission("get", "kubeshare.nthu", "vgpus") in rights.used


def test_it_reads_a_pod_that_its_watch_has_lost_before_it_gives_its_part_back(
    cluster: Cluster, server: FakeApiServer, agent: Running, rights: Authorizer
) -> None:
    cluster.add_pod("a", phase="Running")
    cluster.add_vgpu("red", cluster.holder("a"))
    server.remove(PODS, "a", "default")
    _used_by(agent, lambda running: running.reconciler.reconcile_vgpu("red"))
    assert Permission("get", "", "pods") in rights.used


def test_it_tells_of_a_revoked_grant_and_counts_how_often(
    cluster: Cluster, paths: NodePaths, agent: Running, rights: Authorizer
) -> None:
    cluster.add_pod("a", phase="Running")
    cluster.add_vgpu("red", cluster.holder("a"))
    write_daemon_status(paths, CLAIM.uid, "ACTIVE")
    _used_by(agent, lambda running: running.prepare(CLAIM))
    cluster.add_vgpu("red")

    async def act(running: Agent) -> None:
        grant = running.grants.read(CLAIM.uid)
        assert grant is not None
        await running.reconciler.reconcile_grant(CLAIM.uid)
        await running.events.flush()
        # As after it was prepared and lost its holder once more.
        running.grants._known[CLAIM.uid] = grant
        await running.reconciler.reconcile_grant(CLAIM.uid)
        await running.events.flush()

    _used_by(agent, act)
    used = {grant.verb for grant in rights.used if grant.resource == "events"}
    assert used == {"create", "patch"}
    (event,) = cluster.server.all(EVENTS)
    assert event["series"]["count"] == 2
