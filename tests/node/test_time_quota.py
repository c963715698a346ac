"""The time quota of a grant is the node's, or what a pod chooses within its bounds."""

import asyncio
import errno
import json
import os
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import yaml
from structlog.testing import capture_logs

from deadlines import DEADLINE_S
from fakes.node import NODE, Cluster, Running, claim_reference, write_daemon_status
from kubeshare.api import configuration
from kubeshare.api.types.constants import LABEL_TIME_QUOTA, NAMESPACE
from kubeshare.kube.resources import CONFIG_MAPS, EVENTS, NODES, PODS
from kubeshare.node import time_quota
from kubeshare.node.agent import Agent
from kubeshare.node.dra.grants import Grants
from kubeshare.node.paths import NodePaths
from kubeshare.node.time_quota import ANNOTATION
from kubeshare.simulator.control import FakeApiServer, until

CLAIM = claim_reference("a")
BOUNDS = {"timeQuota": {"pods": {"minimum": 50, "maximum": 200}}}


class Node:
    """A node whose pod ``a`` is prepared."""

    def __init__(
        self, server: FakeApiServer, cluster: Cluster, running: Running, paths: NodePaths
    ) -> None:
        self.server, self.cluster, self.paths = server, cluster, paths
        self._running = running

    def add_pod(self, quota: str = "") -> None:
        self.cluster.add_pod("a", annotations={ANNOTATION: quota} if quota else {})
        self.cluster.add_vgpu("red", self.cluster.holder("a"))
        write_daemon_status(self.paths, CLAIM.uid, "ACTIVE")

    def configure(self, **values: Any) -> None:
        name = {"name": configuration.NAME, "namespace": NAMESPACE}
        data = {configuration.KEY: yaml.safe_dump(values)}
        self.server.seed(CONFIG_MAPS, {"metadata": name, "data": data})

    def label(self, text: str) -> None:
        labels = {LABEL_TIME_QUOTA: text}
        self.server.change(NODES, NODE, "", lambda node: node["metadata"].update(labels=labels))

    def annotate(self, text: str) -> None:
        annotations = {ANNOTATION: text}
        self.server.change(
            PODS, "a", "default", lambda pod: pod["metadata"].update(annotations=annotations)
        )

    def milliseconds(self) -> float:
        """Of the grant on disk; 0 for none of its own."""
        written = json.loads((self.paths.run_folder / "grants" / f"{CLAIM.uid}.json").read_text())
        return float(written.get("quotaNs", 0) / 1e6)

    def events(self) -> list[tuple[str, str]]:
        return [(each["reason"], each["note"]) for each in self.server.all(EVENTS)]

    async def reported(self, count: int) -> None:
        """Wait until there are so many events."""
        async with asyncio.timeout(DEADLINE_S):
            while len(self.events()) < count:
                await self.agent.events.flush()
                await asyncio.sleep(0.001)

    def run(self, act: Callable[[], Awaitable[None]]) -> None:
        """Act once the pod is prepared."""

        async def main() -> None:
            async with self._running() as agent:
                self.agent = agent
                await self._synced(agent)
                await agent.prepare(CLAIM)
                await act()
                await agent.events.flush()

        asyncio.run(main())

    async def _synced(self, agent: Agent) -> None:
        await agent.gpushare.nodes.wait_for_sync()
        await agent.gpushare.configmaps.wait_for_sync()
        await until(lambda: agent.view.pods.store.by_uid("a-uid") is not None)
        agent.time_quotas.follow(agent.gpushare.nodes, agent.gpushare.configuration)


@pytest.fixture
def node(server: FakeApiServer, cluster: Cluster, agent: Running, paths: NodePaths) -> Node:
    return Node(server, cluster, agent, paths)


async def nothing() -> None:
    pass


def test_without_a_setting_the_token_daemon_decides(node: Node) -> None:
    node.add_pod()
    node.run(nothing)
    assert node.milliseconds() == 0


def test_the_configuration_is_for_all_nodes_and_a_label_for_one(node: Node) -> None:
    node.add_pod()
    node.configure(timeQuota={"milliseconds": 60})
    node.run(nothing)
    assert node.milliseconds() == 60
    node.label("40")
    node.run(nothing)
    assert node.milliseconds() == 40


def test_pods_that_run_follow_configuration_and_label(node: Node) -> None:
    node.add_pod()

    async def act() -> None:
        node.configure(timeQuota={"milliseconds": 60})
        await until(lambda: node.milliseconds() == 60)
        node.label("40")
        await until(lambda: node.milliseconds() == 40)
        node.label("")
        await until(lambda: node.milliseconds() == 60)
        node.configure()
        await until(lambda: node.milliseconds() == 0)

    node.run(act)


@pytest.mark.parametrize(
    ("asked", "given"), [("50", 50), ("120", 120), ("200", 200), ("10", 50), ("5000", 200)]
)
def test_a_pod_chooses_within_the_bounds(node: Node, asked: str, given: int) -> None:
    node.add_pod(asked)
    node.configure(**BOUNDS)
    node.run(nothing)
    assert node.milliseconds() == given


def test_without_bounds_a_pod_does_not_choose(node: Node) -> None:
    node.add_pod("5")

    async def act() -> None:
        # A running pod's annotation is read anew.
        node.configure(**BOUNDS)
        await until(lambda: node.milliseconds() == 50)
        node.annotate("150")
        await until(lambda: node.milliseconds() == 150)

    node.run(nothing)
    assert node.milliseconds() == 0
    node.run(act)


@pytest.mark.parametrize("text", ["4", "10001", "-50", "1e2", "soon", "50 "])
def test_an_annotation_that_is_no_quota_has_no_effect_and_is_reported(
    node: Node, text: str
) -> None:
    node.add_pod()
    node.configure(**BOUNDS)

    async def act() -> None:
        node.annotate(text)
        await node.reported(1)

    node.run(act)
    assert node.milliseconds() == 0
    [(reason, note)] = node.events()
    assert reason == "TimeQuotaLimited"
    assert "100 is in force: it is no number from 5 to 10000" in note


def test_what_a_pod_asks_for_beyond_its_bounds_is_reported_once(node: Node) -> None:
    node.add_pod()
    node.configure(**BOUNDS)

    async def act() -> None:
        node.annotate("1000")
        await until(lambda: node.milliseconds() == 200)
        node.configure(**BOUNDS, gangMembers=7)
        node.annotate("1001")
        await node.reported(2)

    node.run(act)
    assert [reason for reason, _ in node.events()] == ["TimeQuotaLimited"] * 2
    assert "200 is in force: the configuration allows 50 to 200" in node.events()[0][1]


def test_a_label_that_is_no_quota_has_no_effect_and_is_reported(node: Node) -> None:
    node.add_pod()
    node.label("fast")

    async def act() -> None:
        await node.reported(1)

    node.run(act)
    assert node.milliseconds() == 0
    [(reason, note)] = node.events()
    assert (reason, "'fast'" in note) == ("InvalidLabel", True)


def test_a_grant_that_cannot_be_written_is_tried_again(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time_quota, "RETRY_SECONDS", 0.01)
    node.add_pod()
    failed: list[int | None] = []

    def fail(_grants: Grants, _claim: str, quota_ns: int | None) -> None:
        failed.append(quota_ns)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    async def act() -> None:
        retries = asyncio.create_task(node.agent.time_quotas.controller.run())
        with monkeypatch.context() as patched, capture_logs() as logs:
            patched.setattr(Grants, "set_quota", fail)
            node.configure(timeQuota={"milliseconds": 60})
            await until(lambda: len(failed) > 2)  # the change, and what is tried again
        said = [each for each in logs if each["event"].startswith("a grant keeps its time quota")]
        assert said
        assert "No space left on device" in said[0]["error"]
        await until(lambda: node.milliseconds() == 60)
        retries.cancel()
        await asyncio.gather(retries, return_exceptions=True)

    node.run(act)


def test_a_restart_changes_and_reports_nothing(node: Node) -> None:
    node.add_pod("120")
    node.configure(**BOUNDS)
    node.run(nothing)
    assert node.milliseconds() == 120
    node.run(nothing)
    assert node.milliseconds() == 120
    assert node.events() == []
