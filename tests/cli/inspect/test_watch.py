"""`kubeshare inspect --watch` prints the usage again when it changes, and formats of a program."""

import asyncio
import csv
import io
import json
from contextlib import aclosing
from typing import Any

import pytest

from cli.inspect.test_usage import INDEX, annotated, held, offer
from fakes.cluster import FakeCluster, run_scenario, scenario
from kubeshare.cli.inspect.command import FORMATS
from kubeshare.cli.inspect.objects import INTERVAL_SECONDS, NoNodeError, follow, read
from kubeshare.cli.inspect.usage import NodeUsage
from kubeshare.cli.main import main
from kubeshare.kube.client.errors import UnreachableError
from kubeshare.kube.resources import NODES, PODS
from kubeshare.simulator.control import Fault


class Watch:
    """What a watch has found so far."""

    def __init__(self, cluster: FakeCluster, node: str | None = None) -> None:
        self.found: list[list[NodeUsage]] = []
        self.task = asyncio.create_task(self._run(cluster, node))

    async def _run(self, cluster: FakeCluster, node: str | None) -> None:
        async with cluster.server.client() as client, aclosing(follow(client, node)) as usages:
            async for each in usages:
                self.found.append(each)


@scenario(n1=2)
async def test_it_goes_on_with_each_change_of_the_usage(cluster: FakeCluster) -> None:
    offer(cluster, "n1", "32", "2")
    annotated(cluster, "a", "3", **{INDEX: "0"})
    watch = Watch(cluster)
    await cluster.until(lambda: len(watch.found) == 1)
    for name in "bcd":
        annotated(cluster, name, "2", **{INDEX: "1"})
    await cluster.until(lambda: len(watch.found) == 2)
    assert [held(each) for [each] in watch.found] == [
        {"a": {0: 3}},
        {"a": {0: 3}, "b": {1: 2}, "c": {1: 2}, "d": {1: 2}},
    ]
    cluster.native_pod("of-somebody-else")
    await cluster.quiet(10 * INTERVAL_SECONDS)
    assert len(watch.found) == 2
    cluster.server.remove(PODS, "a", "default")
    await cluster.until(lambda: len(watch.found) == 3)
    assert list(held(watch.found[-1][0])) == ["b", "c", "d"]
    watch.task.cancel()


@scenario(n1=2, n2=2)
async def test_of_one_node_it_sees_that_alone_until_it_goes(cluster: FakeCluster) -> None:
    for name in ("n1", "n2"):
        offer(cluster, name, "32", "2")
    watch = Watch(cluster, "n1")
    await cluster.until(lambda: len(watch.found) == 1)
    offer(cluster, "n2", "16", "2")
    await cluster.quiet(10 * INTERVAL_SECONDS)
    assert [[each.name for each in nodes] for nodes in watch.found] == [["n1"]]
    cluster.server.remove(NODES, "n1")
    with pytest.raises(NoNodeError, match="there is no node n1"):
        await watch.task


@scenario(n1=1)
async def test_a_cluster_that_stays_away_ends_it_and_one_without_kubeshare_does_not(
    cluster: FakeCluster,
) -> None:
    offer(cluster, "n1", "16", "1")
    for resource in ("vgpus", "gpunodes"):
        cluster.server.inject(Fault.answer(404), verb="list", resource=resource)
    watch = Watch(cluster)
    await cluster.until(lambda: len(watch.found) == 1)
    annotated(cluster, "a", "3", **{INDEX: "0"})
    await cluster.until(lambda: len(watch.found) == 2)
    cluster.server.down = True
    cluster.server.reset_watches()
    with pytest.raises(UnreachableError):
        await watch.task


def test_each_format_has_the_same_numbers() -> None:
    nodes: list[NodeUsage] = []

    async def play(cluster: FakeCluster) -> None:
        offer(cluster, "n1", "32", "2")
        annotated(cluster, "a", "3", **{INDEX: "1"})
        async with cluster.server.client() as client:
            nodes.extend(await read(client))

    run_scenario(play, n1=2)
    rows = list(csv.DictReader(io.StringIO(FORMATS["csv"](nodes))))
    assert [(row["node"], row["gpu"], row["allocated"], row["total"]) for row in rows] == [
        ("n1", "0", "0", "16"),
        ("n1", "1", "3", "16"),
    ]
    assert "allocated: 3" in FORMATS["yaml"](nodes)
    [line] = FORMATS["json"](nodes).splitlines()
    assert json.loads(line)["allocated"] == 3
    assert "3/16" in FORMATS["table"](nodes)


def test_wrong_use_says_what_is_right(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", "-w", "-o", "csv"]) == 2
    assert "--watch prints table, wide, json, not csv" in capsys.readouterr().err


def test_ctrl_c_is_the_end_of_a_watch_only(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(doing: Any) -> None:
        doing.close()
        raise KeyboardInterrupt

    monkeypatch.setattr(asyncio, "run", interrupted)
    assert main(["inspect", "--watch"]) == 0
    assert main(["inspect"]) == 130
