"""Writes docs/metrics.md from the registries of the programs.

Each program is put together as for a cluster, but not run. A label that is not described here is
an error, so that nobody adds one without saying what bounds its values.
"""

import asyncio
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from prometheus_client import CollectorRegistry
from prometheus_client.metrics import MetricWrapperBase

from kubeshare.core.policies import policy
from kubeshare.device_manager.program import device_manager_program
from kubeshare.extender import metrics as extender_metrics
from kubeshare.extender.program import extender_program
from kubeshare.kube.client.client import Client
from kubeshare.kube.controller.runtime import Program
from kubeshare.node import run_mount
from kubeshare.node.agent import Agent
from kubeshare.node.escapes.detection import REASONS
from kubeshare.node.gpus.discovery import NvmlGpus
from kubeshare.node.library import InstalledLibrary
from kubeshare.node.paths import NodePaths
from kubeshare.scheduler import metrics as scheduler_metrics
from kubeshare.scheduler.program import scheduler_program
from kubeshare.simulator.control import FakeApiServer
from kubeshare.tokens.metrics import TokenCollector
from kubeshare.tokens.snapshot import Totals

PAGE: Final = Path(__file__).parents[1] / "docs" / "metrics.md"

_UNITS: Final = ("seconds", "bytes", "ratio", "gpus", "cpus")


class Metric(NamedTuple):
    """What a program says of one metric.

    Attributes:
        name: as in queries; of a histogram without ``_bucket``, ``_sum``, ``_count``.
        type: counter, gauge or histogram.
        labels: their names.
        meaning: its help.
        keeps_series: whether a series stays until the program ends. Others are those of the
            objects that are there when it is scraped.
    """

    name: str
    type: str
    labels: tuple[str, ...]
    meaning: str
    keeps_series: bool

    @property
    def unit(self) -> str:
        """The base unit that the name ends with; "" for a plain number."""
        last = self.name.removesuffix("_total").rpartition("_")[2]
        return last if last in _UNITS else ""


class Label(NamedTuple):
    """What bounds the values of a label.

    Attributes:
        metrics: the beginning of the names of its metrics.
        name: its name.
        values: what they are.
        bound: how many there can be.
        fixed: whether the programs' code has all values.
    """

    metrics: str
    name: str
    values: str
    bound: str
    fixed: bool


def _one_of(metrics: str, name: str, values: tuple[str, ...]) -> Label:
    return Label(metrics, name, ", ".join(f"`{each}`" for each in values), f"{len(values)}", True)


_OF_POD: Final = "of the pod that has the grant; empty for `kubeshare run`"
_GRANTS: Final = "the grants of the node: at most 128 shares a GPU"
LABELS: Final = (
    Label("kubeshare_build_info", "version", "the version of the program", "1", True),
    Label("kube_runtime_", "verb", "verbs of the Kubernetes API", "9", True),
    Label(
        "kube_runtime_",
        "resource",
        "kinds and subresources that the program reads or writes",
        "its code",
        True,
    ),
    Label(
        "kube_runtime_",
        "reason",
        "`ended`, `expired`, `silent`, `empty`, `restored`, or the API server's reason",
        "the reasons and statuses of Kubernetes' API",
        False,
    ),
    Label("kube_runtime_", "controller", "the program's controllers", "its code", True),
    _one_of(
        "kube_runtime_",
        "result",
        ("success", "requeue_after", "conflict", "error", "terminal", "timeout"),
    ),
    Label("workqueue_", "name", "the program's controllers", "its code", True),
    Label("leader_election_", "name", "the program's Lease", "1", True),
    _one_of("kubeshare_scheduler_", "outcome", scheduler_metrics.OUTCOMES),
    Label("kubeshare_devices_", "node", "nodes that have vGPUs", "the nodes of the cluster", False),
    _one_of("kubeshare_devices_", "state", ("used", "idle")),
    Label(
        "kubeshare_devices_",
        "reason",
        "reasons of the condition [`Degraded`](conditions.md#degraded)",
        "its reasons",
        True,
    ),
    _one_of("kubeshare_extender_", "outcome", extender_metrics.OUTCOMES),
    Label(
        "kubeshare_extender_",
        "verb",
        "the last part of the path; `other` for unknown paths",
        "its code",
        True,
    ),
    Label("kubeshare_extender_", "code", "HTTP status of the answer", "its code", True),
    Label("kubeshare_node_", "gpu", "UUID of a GPU", "the GPUs of the node", False),
    Label("kubeshare_node_", "model", "its model", "one a GPU", False),
    _one_of("kubeshare_node_", "reason", REASONS),
    Label(
        "kubeshare_node_",
        "namespace",
        "of a pod of the node",
        "findings of one sample: at most 4096 processes; containers that are bound now",
        False,
    ),
    Label("kubeshare_node_", "pod", "a pod of the node", "the same", False),
    Label("kubeshare_node_", "container", "a container of that pod", "the same", False),
    Label("kubeshare_node_", "cpus", "list of CPUs, such as `0-7,16-23`", "one a container", False),
    Label("kubeshare_token_", "gpu", "UUID of a GPU", "the GPUs of the node", False),
    Label("kubeshare_token_", "claim", "name of a grant", _GRANTS, False),
    Label("kubeshare_token_", "namespace", _OF_POD, "one a grant", False),
    Label("kubeshare_token_", "pod", _OF_POD, "one a grant", False),
    Label(
        "kubeshare_token_", "container", "empty where containers share the grant", _GRANTS, False
    ),
    Label(
        "kubeshare_token_", "share", "name of the share in its demand, often empty", _GRANTS, False
    ),
)


def label_of(metric: str, name: str) -> Label:
    """What bounds a label of a metric.

    Raises:
        LookupError: it is not described.
    """
    for label in LABELS:
        if label.name == name and metric.startswith(label.metrics):
            return label
    raise LookupError(f"{metric} has the label {name}: describe it in {Path(__file__).name}")


def metrics_of(registry: CollectorRegistry) -> Iterator[Metric]:
    """The metrics of a registry, with those that have no sample yet."""
    collectors: Any = registry._collector_to_names  # noqa: SLF001 - what it collects has no labels
    for collector in collectors:
        is_kept = isinstance(collector, MetricWrapperBase)
        for family in collector.collect():
            labels = (collector if is_kept else family)._labelnames  # noqa: SLF001 - likewise
            name = f"{family.name}_total" if family.type == "counter" else family.name
            yield Metric(name, family.type, tuple(labels), family.documentation, is_kept)


def programs(client: Client) -> dict[str, Program]:
    """The controllers and the node agent, put together but not run; within an event loop."""
    locality = policy("locality")
    agent = Agent(
        client,
        "node",
        NodePaths(Path("/")),
        NvmlGpus(Path("/")),
        InstalledLibrary(Path("/lib.so"), Path("/preload")),
    )
    of_node = Program("kubeshare-node-agent", client, recorder=agent.events)
    agent.add_to(of_node)
    run_mount.register(of_node.registry, is_bounded=True)
    return {
        "scheduler": scheduler_program(client, locality, instance="", elect=True),
        "device-manager": device_manager_program(
            client, locality, placeholder_image="", instance="", elect=True
        ),
        "extender": extender_program(client, instance="").program,
        "node-agent": of_node,
    }


async def described() -> dict[str, list[Metric]]:
    """Program → its metrics."""
    found = {}
    async with FakeApiServer().client() as client:
        for name, program in programs(client).items():
            program.register_metrics()
            found[name] = list(metrics_of(program.registry))
    registry = CollectorRegistry()
    registry.register(TokenCollector(list, Totals))
    found["token-daemon"] = list(metrics_of(registry))
    return found


_HEAD: Final = (
    "# Metrics\n\n"
    "<!-- Written by tools/metrics_page.py; run it when a metric changes. -->\n\n"
    "Each program serves its metrics for Prometheus at `/metrics` on port 8080 of its pods. "
    "[Monitoring](monitoring.md) has the set-up, with rules, alerts and dashboards. Values "
    "are in base units: seconds, bytes, GPUs, and ratios from 0 to 1. A histogram has the series "
    "`_bucket`, `_sum` and `_count`.\n"
)
_LABELS_HEAD: Final = (
    "\n## Labels\n\n"
    "A series whose labels have fixed values stays until its program ends. Labels that name nodes, "
    "GPUs or pods are only on series that are made anew from what is there at each scrape: they "
    "end with their object, so no pod leaves a series behind.\n\n"
    "| label | of | values | bounded by |\n|---|---|---|---|\n"
)
_TABLE_HEAD: Final = "| metric | type | unit | labels | meaning |\n|---|---|---|---|---|\n"
_TITLES: Final[dict[str, str]] = {
    "scheduler": "Scheduler",
    "device-manager": "Device manager",
    "extender": "Extender",
    "node-agent": "Node agent",
    "token-daemon": "Token daemon",
}
_RUNTIME: Final = ("kube_runtime_", "workqueue_", "leader_election_")


def page(found: dict[str, list[Metric]]) -> str:
    """The page's text.

    Args:
        found: program → its metrics.

    Raises:
        LookupError: a label is not described.
    """

    def is_of_runtime(metric: Metric) -> bool:
        return metric.name.startswith(_RUNTIME)

    def is_of_all(metric: Metric) -> bool:
        return metric.name == "kubeshare_build_info"

    def is_own(metric: Metric) -> bool:
        return not (is_of_runtime(metric) or is_of_all(metric))

    parts = [_HEAD, _section("All programs", found["scheduler"], is_of_all)]
    for program, title in _TITLES.items():
        parts.append(_section(title, found[program], is_own))
    runtime = "All programs but the token daemon"
    parts.append(_section(runtime, found["scheduler"], is_of_runtime))
    used = {
        label_of(metric.name, name)
        for metrics in found.values()
        for metric in metrics
        for name in metric.labels
    }
    rows = [
        f"| `{label.name}` | `{label.metrics}*` | {label.values} | {label.bound} |\n"
        for label in LABELS
        if label in used
    ]
    return "".join([*parts, _LABELS_HEAD, *rows])


def _section(title: str, metrics: list[Metric], wanted: Callable[[Metric], bool]) -> str:
    return "".join([f"\n## {title}\n\n", _TABLE_HEAD, *map(_row, filter(wanted, metrics))])


def _row(metric: Metric) -> str:
    labels = " ".join(f"`{each}`" for each in metric.labels)
    return f"| `{metric.name}` | {metric.type} | {metric.unit} | {labels} | {metric.meaning} |\n"


def main() -> int:
    """Write the page; returns the exit code."""
    PAGE.write_text(page(asyncio.run(described())), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
