"""Accounts of grants, over restarts of every part that writes them."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from fakes.node import NODE, Cluster, Running, claim_reference, write_daemon_status
from kubeshare.api.configuration import KEY, NAME
from kubeshare.api.types.constants import NAMESPACE
from kubeshare.api.types.share_usage import SHARE_USAGES, time_ns
from kubeshare.core.token import Tally
from kubeshare.kube.client.client import Client
from kubeshare.kube.client.errors import ApiError, ForbiddenError, InvalidError, NotFoundError
from kubeshare.kube.resources import CONFIG_MAPS, PODS, Raw
from kubeshare.node import agent as agent_module
from kubeshare.node.agent import Agent
from kubeshare.node.dra.driver import ClaimRefusedError
from kubeshare.node.paths import NodePaths
from kubeshare.node.usage import accounts
from kubeshare.node.usage.accounts import NodeClock
from kubeshare.simulator.control import FakeApiServer, Fault, run_virtual
from kubeshare.tokens.files.run_folder import Paths
from kubeshare.tokens.files.tallies import Tallies

CLAIM = claim_reference("a")
SECOND = 10**9


class Clock:
    """What the test sets the clocks to, for agents that start later too."""

    now = 1000 * SECOND
    current_boot = "first"


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> type[Clock]:
    """The clock of every agent of the test."""
    base = 1_700_000_000 * SECOND
    Clock.now, Clock.current_boot = 1000 * SECOND, "first"
    made = NodeClock(lambda: base + Clock.now, lambda: Clock.now, lambda: Clock.current_boot)
    monkeypatch.setattr(agent_module, "NodeClock", lambda: made)
    return Clock


@pytest.fixture(autouse=True)
def pod_a(cluster: Cluster, paths: NodePaths) -> None:
    """Pod ``a`` may have its share of vGPU ``red``."""
    cluster.add_pod("a")
    cluster.add_vgpu("red", cluster.holder("a") | {"group": "team", "exclusion": "mine"})
    write_daemon_status(paths, CLAIM.uid, "ACTIVE")


def charge(paths: NodePaths, seconds: float, gaps: int = 0) -> None:
    """What the token daemon saves."""
    tallies = Tallies(Paths(paths.run_folder).tally(CLAIM.uid), 1)
    tallies.write(0, Tally(charged_ns=int(seconds * SECOND), gaps=gaps))


def run(agent: Running, *steps: Callable[[Agent], Any]) -> None:
    """One life of an agent."""

    async def main() -> None:
        async with agent() as running:
            running.usage.recover()
            for step in steps:
                result = step(running)
                if asyncio.iscoroutine(result):
                    await result

    run_virtual(main())


async def prepare(running: Agent) -> None:
    await running.prepare(CLAIM)


async def unprepare(running: Agent) -> None:
    await running.unprepare(CLAIM)


async def publish(running: Agent) -> None:
    for name in list(running.usage._records):
        await running.usage_publisher.publish(name)


def stored(server: FakeApiServer) -> Raw:
    (found,) = server.all(SHARE_USAGES)
    status: Raw = found["status"]
    return status


def on_disk(paths: NodePaths) -> list[Path]:
    return sorted(paths.usage_folder.glob("*.json"))


def test_the_account_of_a_pod_is_one_write_after_its_end(
    server: FakeApiServer, agent: Running, paths: NodePaths, clock: type[Clock]
) -> None:
    def work(_: Agent) -> None:
        clock.now += 20 * SECOND
        charge(paths, 5.5)

    run(agent, prepare, work, unprepare, publish)
    (found,) = server.all(SHARE_USAGES)
    assert found["metadata"]["namespace"] == "default"
    assert found["metadata"]["name"].startswith("a-")
    status = found["status"]
    assert (status["nodeName"], status["pod"], status["podUid"]) == (NODE, "a", "a-uid")
    assert (status["owner"], status["group"]) == ("Pod/a", "team")
    assert (status["ended"], status["complete"]) == (True, True)
    assert status["durationNs"] == 20 * SECOND
    assert time_ns(status["observedAt"]) - time_ns(status["startedAt"]) == 20 * SECOND
    (share,) = status["shares"]
    assert (share["requestMicros"], share["memoryBytes"]) == (300_000, 1 << 30)
    assert (share["model"], share["exclusive"]) == ("V100", True)
    assert share["usedNs"] == 5_500_000_000
    assert "priceMicros" not in share
    assert on_disk(paths) == []


def test_a_start_writes_to_the_disk_only(
    server: FakeApiServer, agent: Running, paths: NodePaths, clock: type[Clock]
) -> None:
    run(agent, prepare)
    assert len(on_disk(paths)) == 1
    assert server.all(SHARE_USAGES) == []


def test_an_account_goes_on_over_a_restart_of_the_agent(
    server: FakeApiServer, agent: Running, paths: NodePaths, clock: type[Clock]
) -> None:
    run(agent, prepare)
    clock.now += 30 * SECOND
    charge(paths, 9)
    run(agent, publish)
    status = stored(server)
    assert (status["durationNs"], status["complete"]) == (30 * SECOND, True)
    assert not status.get("ended")
    clock.now += 30 * SECOND
    charge(paths, 18)
    run(agent, prepare, unprepare, publish)
    status = stored(server)
    assert (status["durationNs"], status["ended"], status["complete"]) == (60 * SECOND, True, True)
    assert status["shares"][0]["usedNs"] == 18 * SECOND


def test_the_end_is_not_lost_when_the_agent_dies_before_it_is_written(
    server: FakeApiServer, agent: Running, paths: NodePaths, clock: type[Clock]
) -> None:
    run(agent, prepare)
    clock.now += 10 * SECOND
    charge(paths, 3)
    run(agent, unprepare)
    assert server.all(SHARE_USAGES) == []
    clock.now += 50 * SECOND
    run(agent, publish)
    status = stored(server)
    assert (status["durationNs"], status["ended"]) == (10 * SECOND, True)
    assert status["shares"][0]["usedNs"] == 3 * SECOND
    assert on_disk(paths) == []


def test_the_end_waits_for_the_api_server(
    server: FakeApiServer, agent: Running, paths: NodePaths, clock: type[Clock]
) -> None:
    async def fail(running: Agent) -> None:
        server.inject(Fault.answer(503), verb="patch", resource="shareusages")
        with pytest.raises(ApiError):
            await publish(running)

    run(agent, prepare, unprepare, fail)
    assert len(on_disk(paths)) == 1
    run(agent, publish)
    assert stored(server)["ended"]
    assert on_disk(paths) == []


def test_a_grant_that_is_released_again_has_one_account(
    server: FakeApiServer, agent: Running, paths: NodePaths, clock: type[Clock]
) -> None:
    """The agent dies between the account and the removal of the grant."""
    grant = Paths(paths.run_folder).grant(CLAIM.uid)
    run(agent, prepare)
    content = grant.read_bytes()
    clock.now += 10 * SECOND
    run(agent, unprepare)
    grant.write_bytes(content)
    clock.now += 10 * SECOND
    run(agent, unprepare, publish)
    status = stored(server)
    assert (status["durationNs"], status["ended"]) == (20 * SECOND, True)


def test_a_reboot_loses_what_came_after_the_last_checkpoint_and_says_so(
    server: FakeApiServer, agent: Running, paths: NodePaths, clock: type[Clock]
) -> None:
    def checkpoint(running: Agent) -> None:
        clock.now += 60 * SECOND
        charge(paths, 20)
        running.usage.checkpoint([CLAIM.uid])
        clock.now += 30 * SECOND
        charge(paths, 30)

    run(agent, prepare, checkpoint)
    for folder in (Paths(paths.run_folder).grants, Paths(paths.run_folder).tallies):
        for file in folder.iterdir():
            file.unlink()
    clock.now, clock.current_boot = 5 * SECOND, "second"
    run(agent, publish)
    status = stored(server)
    assert (status["durationNs"], status["ended"]) == (60 * SECOND, True)
    assert not status.get("complete")
    assert status["shares"][0]["usedNs"] == 20 * SECOND


def test_an_account_of_a_time_without_a_token_daemon_is_incomplete(
    server: FakeApiServer, agent: Running, paths: NodePaths, clock: type[Clock]
) -> None:
    def work(running: Agent) -> None:
        charge(paths, 20, gaps=1)
        running.usage.checkpoint([CLAIM.uid])
        clock.now += 30 * SECOND
        charge(paths, 30, gaps=1)

    run(agent, prepare, work, unprepare, publish)
    status = stored(server)
    assert status["ended"]
    assert not status.get("complete")
    assert status["shares"][0]["usedNs"] == 30 * SECOND


def test_a_grant_from_before_there_were_accounts_gets_one(
    server: FakeApiServer, agent: Running, paths: NodePaths, clock: type[Clock]
) -> None:
    run(agent, prepare)
    for file in on_disk(paths):
        file.write_text("{")
    run(agent, unprepare, publish)
    assert stored(server)["ended"]


def test_an_account_without_counts_is_incomplete(
    server: FakeApiServer, agent: Running, clock: type[Clock]
) -> None:
    run(agent, prepare, unprepare, publish)
    assert not stored(server).get("complete")


def test_a_claim_that_is_refused_has_no_account(
    server: FakeApiServer, agent: Running, paths: NodePaths, clock: type[Clock]
) -> None:
    async def refuse(running: Agent) -> None:
        write_daemon_status(paths, CLAIM.uid, "REFUSED", "no")
        with pytest.raises(ClaimRefusedError):
            await running.prepare(CLAIM)

    run(agent, refuse, publish)
    assert (on_disk(paths), server.all(SHARE_USAGES)) == ([], [])


@pytest.mark.parametrize(
    ("controller", "owner"),
    [
        ({"kind": "ReplicaSet", "name": "web-77"}, "Deployment/web"),
        ({"kind": "Job", "name": "train"}, "Job/train"),
    ],
)
def test_the_owner_is_the_controller_of_the_pod(
    server: FakeApiServer,
    agent: Running,
    clock: type[Clock],
    controller: dict[str, str],
    owner: str,
) -> None:
    reference = {"apiVersion": "apps/v1", "uid": "u", "controller": True, **controller}

    def own(pod: Raw) -> None:
        pod["metadata"]["ownerReferences"] = [reference]
        pod["metadata"]["labels"] = {"pod-template-hash": "77"}

    server.change(PODS, "a", "default", own)
    run(agent, prepare, unprepare, publish)
    assert stored(server)["owner"] == owner


def test_the_price_is_that_of_the_model(
    server: FakeApiServer, agent: Running, clock: type[Clock]
) -> None:
    text = "usage: {currency: EUR, prices: {V100: 2.5}}"
    metadata = {"name": NAME, "namespace": NAMESPACE}
    server.seed(CONFIG_MAPS, {"metadata": metadata, "data": {KEY: text}})
    run(agent, prepare, unprepare, publish)
    status = stored(server)
    assert (status["currency"], status["shares"][0]["priceMicros"]) == ("EUR", 2_500_000)


TERMINATING = {"causes": [{"reason": "NamespaceTerminating"}]}


@pytest.mark.usefixtures("clock")
@pytest.mark.parametrize(
    ("error", "lost"),
    [
        (NotFoundError("gone", status=404, details={"kind": "namespaces"}), 0),
        (ForbiddenError("terminating", status=403, details=TERMINATING), 0),
        (InvalidError("broken", status=422), 1),
    ],
)
def test_an_account_that_is_never_accepted_is_dropped(
    agent: Running,
    paths: NodePaths,
    monkeypatch: pytest.MonkeyPatch,
    error: ApiError,
    lost: int,
) -> None:
    async def refuse(*_: object, **__: object) -> None:
        raise error

    registry = CollectorRegistry()
    monkeypatch.setattr(Client, "apply", refuse)
    run(agent, lambda it: it.usage.register(registry), prepare, unprepare, publish)
    assert on_disk(paths) == []
    assert registry.get_sample_value("kubeshare_node_usage_records_lost_total") == lost


def test_a_kind_that_is_not_installed_yet_is_waited_for(
    agent: Running, paths: NodePaths, clock: type[Clock], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*_: object, **__: object) -> None:
        raise NotFoundError("no such kind", status=404)

    async def fail(running: Agent) -> None:
        with pytest.raises(NotFoundError):
            await publish(running)

    monkeypatch.setattr(Client, "apply", refuse)
    run(agent, prepare, unprepare, fail)
    assert len(on_disk(paths)) == 1


def test_accounts_that_wait_are_bounded(
    agent: Running,
    paths: NodePaths,
    clock: type[Clock],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(accounts, "MOST_RECORDS", 2)

    def revoke(running: Agent) -> None:
        clock.now += SECOND
        running.releaser.detach(CLAIM.uid)

    run(agent, *[step for _ in range(4) for step in (prepare, revoke)])
    assert len(on_disk(paths)) == 2
