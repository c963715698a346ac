"""Keeps the rows that the page shows, and publishes those that change."""

import asyncio
from collections.abc import Callable
from typing import Any, Final

import msgspec
import structlog

from kubeshare.api.configuration import Configuration
from kubeshare.api.demands import Demands
from kubeshare.api.types.core_v1 import Pod
from kubeshare.kube.cache.store import Change
from kubeshare.kube.meta import Key, key_of
from kubeshare.kube.resources import Raw
from kubeshare.web.feed import REFRESH, Feed
from kubeshare.web.sources import Sources
from kubeshare.web.views import pods, quotas
from kubeshare.web.views.nodes import Gpu, NodeRow, gpus_of, node_row
from kubeshare.web.views.own_shares import own_gpus
from kubeshare.web.views.pods import is_plain

INTERVAL: Final = 0.25
"""Seconds in which changes are collected."""
ROWS_AT_ONCE: Final = 100
"""Rows that are computed before other tasks run."""
LARGEST_DELTA: Final = 1000
"""Rows in one message; of more changes at once the page reads everything."""

_NODE: Final = "of node"

Dirty = tuple[str, str, str, str]
"""A row to compute: its table, and kind, namespace and name of its object."""


log = structlog.get_logger(__name__)


class Tables:
    """The rows of nodes, of pods that ask for shares, and of quotas.

    Args:
        sources: what the user may see.
        feed: publishes changes.

    Attributes:
        revision: counts the changes.
    """

    def __init__(self, sources: Sources, feed: Feed) -> None:
        self.revision = 0
        self._sources = sources
        self._feed = feed
        self._demands = Demands()
        self._rows: dict[str, dict[str, Any]] = {"nodes": {}, "pods": {}, "quotas": {}}
        self._dirty: dict[Dirty, None] = {}
        self._news = asyncio.Event()
        self._encoded: tuple[int, bytes] = (-1, b"")
        self._partly = not sources.vgpus.reflectors
        self._unit = self._configured_unit()
        sources.vgpus.add_index(_NODE, lambda vgpu: [vgpu.spec.node_name])
        sources.sharepods.add_index(_NODE, lambda raw: [_node_of(raw)])
        if self._partly:
            sources.pods.add_index(_NODE, lambda pod: [pod.spec.node_name] if is_plain(pod) else [])
        self._subscribe()

    def encoded(self) -> bytes:
        """All rows as the fields of a JSON object."""
        if self._encoded[0] != self.revision:
            fields = {name: list(rows.values()) for name, rows in self._rows.items()}
            self._encoded = self.revision, msgspec.json.encode(fields)
        return self._encoded[1]

    def row(self, table: str, row_id: str) -> Any:
        """A row, or None."""
        return self._rows[table].get(row_id)

    def gpus(self, node: str) -> list[Gpu]:
        """The GPUs of a node, as far as the user may see them."""
        sources = self._sources
        if self._partly:
            plain = sources.pods.by_index(_NODE, node)
            found = sources.sharepods.by_index(_NODE, node)
            return own_gpus(node, found, plain, self._demands, self._unit)
        return gpus_of(sources.gpunodes.get(node), sources.vgpus.by_index(_NODE, node))

    async def run(self) -> None:
        """Compute and publish what changes, until cancelled."""
        while True:
            await self._news.wait()
            self._news.clear()
            await self.flush()
            await asyncio.sleep(INTERVAL)

    async def flush(self) -> None:
        """Compute the rows that may have changed, and publish those that have."""
        dirty, self._dirty = self._dirty, {}
        changed: dict[str, dict[str, list[Any]]] = {}
        count = 0
        for number, each in enumerate(dirty, start=1):
            try:
                table, row_id, row = self._compute(each)
            except msgspec.ValidationError as error:  # it passed the schema of another version
                log.warning("an object cannot be shown", object=each, error=str(error))
                continue
            if self._replace(table, row_id, row):
                delta = changed.setdefault(table, {"rows": [], "gone": []})
                delta["gone" if row is None else "rows"].append(row_id if row is None else row)
                count += 1
            if not number % ROWS_AT_ONCE:
                await asyncio.sleep(0)
        if not count:
            return
        self.revision += 1
        if count > LARGEST_DELTA:
            self._feed.publish(REFRESH)
            return
        data = msgspec.json.encode({"revision": self.revision, "tables": changed})
        self._feed.publish(b"event: change\ndata: " + data + b"\n\n")

    def _replace(self, table: str, row_id: str, row: Any) -> bool:
        """Whether a row is another one than before."""
        rows = self._rows[table]
        if row is None:
            return rows.pop(row_id, None) is not None
        if rows.get(row_id) == row:
            return False
        rows[row_id] = row
        return True

    def _compute(self, dirty: Dirty) -> tuple[str, str, Any]:
        table, kind, namespace, name = dirty
        if table == "nodes":
            return table, name, self._node(name)
        sources = self._sources
        row: Any = None
        if kind == pods.SHAREPOD:
            raw = sources.sharepods.get(name, namespace)
            row = pods.sharepod_row(raw, self._demands) if raw else None
        elif kind == pods.POD:
            pod = sources.pods.get(name, namespace)
            row = pods.pod_row(pod, self._demands, self._unit) if pod else None
        elif kind == "GPUQuota":
            quota = sources.gpuquotas.get(name, namespace)
            row = quotas.gpuquota_row(quota) if quota else None
        else:
            found = sources.resourcequotas.get(name, namespace)
            row = quotas.resourcequota_row(found) if found else None
        return table, f"{kind}/{namespace}/{name}", row

    def _node(self, name: str) -> NodeRow | None:
        """The row of a node; None for one without GPUs."""
        gpus = self.gpus(name)
        node = self._sources.nodes.get(name)
        return node_row(name, node, gpus, self._sources.names) if gpus else None

    def _subscribe(self) -> None:
        sources = self._sources
        sources.vgpus.subscribe(lambda change: self._mark_node(change.object.spec.node_name))
        sources.gpunodes.subscribe(lambda change: self._mark_node(change.key.name))
        sources.nodes.subscribe(lambda change: self._mark_node(change.key.name))
        sources.gpuquotas.subscribe(self._marker("quotas", "GPUQuota"))
        sources.resourcequotas.subscribe(self._marker("quotas", "ResourceQuota"))
        sources.pods.subscribe(self._on_pod)
        sources.sharepods.subscribe(self._on_sharepod)
        sources.configurations.subscribe(self._on_configuration)

    def _configured_unit(self) -> int:
        found = self._sources.configuration() or Configuration()
        return found.gpushare.unit_bytes

    def _on_configuration(self, _: Change[Any]) -> None:
        unit, self._unit = self._unit, self._configured_unit()
        if unit != self._unit:
            for pod in filter(is_plain, self._sources.pods.all()):
                self._mark_pod(pod)

    def _on_pod(self, change: Change[Any]) -> None:
        self._mark_pod(change.object)

    def _mark_pod(self, pod: Pod) -> None:
        key = key_of(pod)
        if self._sources.names(key.namespace):
            self._mark("pods", pods.POD, key)
            if self._partly and is_plain(pod) and pod.spec.node_name:
                self._mark_node(pod.spec.node_name)

    def _on_sharepod(self, change: Change[Any]) -> None:
        self._mark("pods", pods.SHAREPOD, change.key)
        if self._partly:
            for raw in (change.object, change.old):
                if raw and (node := _node_of(raw)):
                    self._mark_node(node)

    def _marker(self, table: str, kind: str) -> Callable[[Change[Any]], None]:
        return lambda change: self._mark(table, kind, key_of(change.object))

    def _mark_node(self, name: str) -> None:
        self._mark("nodes", "Node", Key("", name))

    def _mark(self, table: str, kind: str, key: Key) -> None:
        self._dirty[table, kind, key.namespace, key.name] = None
        self._news.set()


def _node_of(raw: Raw) -> str:
    """The node of a SharePod, "" before it has one."""
    return str((raw.get("spec") or {}).get("nodeName") or "")
