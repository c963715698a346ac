"""A cluster of gpushare, and what ``kubeshare migrate`` does in it."""

import json
from typing import Any

from fakes.cluster import FakeCluster
from fakes.cluster.legacy import gpushare_pod, serve, stop
from fakes.cluster.state import the_pod
from kubeshare.cli.migrate.command import formatted, perform
from kubeshare.device_manager.owned.controller import SETTLED_SECONDS
from kubeshare.kube.resources import NODES

Raw = dict[str, Any]
LONG = 5 * SETTLED_SECONDS


class Outcome:
    """What a command prints, and its exit code."""

    def __init__(self, text: str, fields: Raw, code: int, said: list[str]) -> None:
        self.text, self.fields, self.code, self.said = text, fields, code, said

    @property
    def states(self) -> dict[str, str]:
        return {node["name"]: node["state"] for node in self.fields["nodes"]}

    def pods(self, state: str) -> list[str]:
        return [
            pod["name"]
            for node in self.fields["nodes"]
            for pod in node["pods"]
            if pod["state"] == state
        ]

    def problem(self, name: str) -> str:
        [found] = [
            pod["problem"]
            for node in self.fields["nodes"]
            for pod in node["pods"]
            if pod["name"] == name
        ]
        return str(found)


async def migrate(
    cluster: FakeCluster, mode: str, *nodes: str, system: str = "gpushare"
) -> Outcome:
    """What ``kubeshare migrate`` does, and prints."""
    said: list[str] = []
    async with cluster.server.client("administrator") as client:
        answer = await perform(client, system, mode, nodes, said.append)
    text, fields, code = formatted(system, answer)
    return Outcome(text, json.loads(json.dumps(fields)), code, said)


def published(node: Raw) -> None:
    node["metadata"]["labels"]["gpushare"] = "true"


def isolating(node: Raw) -> None:
    del node["metadata"]["labels"]["gpushare"]
    node["metadata"]["labels"]["cgpu"] = "true"


def legacy(cluster: FakeCluster) -> None:
    """Two nodes of gpushare with pods, as KubeShare finds them."""
    cluster.deadline = LONG
    for node in ("n1", "n2"):
        serve(cluster, node, gpu_mem="32", gpu_count="2")
        cluster.server.change(NODES, node, "", published)
    gpushare_pod(cluster, "a", 12, 0)
    gpushare_pod(cluster, "b", 3, 0)
    gpushare_pod(
        cluster,
        "two",
        5,
        None,
        **{"scheduler.framework.gpushare.allocation": '{"0": {"0": 1, "1": 4}}'},
    )
    gpushare_pod(cluster, "c", 16, 1, node="n2")
    gpushare_pod(cluster, "over", 9, 1, phase="Succeeded")
    cluster.invariants.doubles = True  # a pod with an allocation has several GPUs


LEGACY = ("a", "b", "c", "two")


def pods_of(cluster: FakeCluster) -> list[Raw]:
    return [the_pod(cluster, name) for name in LEGACY]


def stop_plugin(cluster: FakeCluster, node: str) -> None:
    """Alibaba's plugin leaves with its label."""
    cluster.server.change(NODES, node, "", lambda obj: obj["metadata"]["labels"].pop("gpushare"))
    stop(cluster, node)
