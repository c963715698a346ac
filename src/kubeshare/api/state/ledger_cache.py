"""Keeps the core's ledger up to date with the cluster's objects.

Events may arrive late, twice, or in a different order for each kind, so only names are taken
from them. When the ledger is read, the entries of those names are built again from the stores,
by the functions that build a whole ledger. So the ledger always equals a new one, and a decision
costs only what has changed since the one before.

A large ledger takes a second to build. So it is built before the controllers start, in steps
between which other tasks run, and is brought up to date in the same way when nobody reads it for
long.
"""

import asyncio
import sys
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from typing import Final, NamedTuple

import structlog

from kubeshare.api.state import ledger_builder
from kubeshare.api.state.vgpu_store import VGPUStore
from kubeshare.api.types import core_v1
from kubeshare.api.types.constants import LABEL_ZONE
from kubeshare.api.types.v1 import VGPU, GPUNode
from kubeshare.core.demand import LabelScope
from kubeshare.core.errors import LedgerError
from kubeshare.core.gpuid import hashed_name
from kubeshare.core.ledger.growth import device_grew, node_grew
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.kube.cache.reflector import Reflector
from kubeshare.kube.cache.store import Change

log = structlog.get_logger(__name__)

MIN_MARKS: Final = 1000
"""Changed names that are kept, besides two for each entry, before the ledger is rebuilt."""

ENTRIES_AT_ONCE: Final = 100
"""Entries that are built before other tasks run."""
MARKS_AT_ONCE: Final = 200
"""Changed names after which the ledger is brought up to date though nobody reads it."""

_BY_NODE = "whole GPUs by node"
_BY_VGPU = "placeholders by vGPU"


class Upkeep(NamedTuple):
    """How a program keeps the indexes of the ledger that it needs.

    Attributes:
        attach: called with the empty ledger, to build the indexes.
        refresh: called with the ledger after each step, for indexes that catch up when read.
        seconds: how long a change may wait for the next reader; None for as long as there are few.
    """

    attach: Callable[[Ledger], None]
    refresh: Callable[[Ledger], None] = lambda _: None
    seconds: float | None = None


class LedgerCache:
    """One ledger for as long as the program runs.

    Args:
        pool: the vGPUs.
        gpunodes: watches the GPUNodes.
        nodes: watches the nodes.
        pods: watches all pods.
        label_scope: the scope of labels that is configured now.
        domain_label: the label of nodes that names their domain, as configured now.
        built: called after the whole ledger has been built: at the start, when the scope of
            labels, the label of domains or an entry cannot be replaced, and when more has changed
            than there are entries.

    Attributes:
        growths: how often a demand that did not fit before might fit.
    """

    def __init__(  # noqa: PLR0913 - what it is built from
        self,
        pool: VGPUStore,
        *,
        gpunodes: Reflector[GPUNode],
        nodes: Reflector[core_v1.Node],
        pods: Reflector[core_v1.Pod],
        label_scope: Callable[[], LabelScope] = lambda: "cluster",
        domain_label: Callable[[], str] = lambda: LABEL_ZONE,
        built: Callable[[], None] = lambda: None,
    ) -> None:
        self._label_scope = label_scope
        self._domain_label = domain_label
        self._domains_of = domain_label()  # the label of which the ledger has the domains
        self._pool = pool
        self._gpunodes = gpunodes.store
        self._nodes = nodes.store
        self._pods = pods.store
        self._on_built = built
        self.growths = 0
        self._on_growth: list[Callable[[], None]] = []
        self._ledger: Ledger | None = None
        self._changed_nodes: set[str] = set()
        self._changed_vgpus: set[str] = set()
        self._expected = 0  # entries that the ledger has when it is built
        self._behind = asyncio.Event()  # there is something to do for `keep_up`
        self._pods.add_index(_BY_NODE, _node)
        self._pods.add_index(_BY_VGPU, _placeholder_of)
        pool.subscribe(lambda name: self._mark(vgpus=[name]))
        gpunodes.subscribe(self._gpunode_changed)
        nodes.subscribe(lambda change: self._mark(nodes=[change.object.metadata.name]))
        pods.subscribe(self._pod_changed)

    def now(self) -> Ledger:
        """The ledger, up to date; callers must not change it."""
        self._pool.expire()
        ledger = self._ledger
        if ledger is None or ledger.label_scope != self._label_scope():
            return self._build()
        if self._domains_of != self._domain_label():
            return self._build()
        try:
            self._catch_up(ledger)
        except LedgerError as error:
            log.warning("the ledger is built anew", error=str(error))
            return self._build()
        return ledger

    async def prepare(self, upkeep: Upkeep) -> None:
        """Build the ledger, unless there is one, in steps between which other tasks run."""
        if self._ledger is not None:
            return
        ledger = self._ledger = Ledger(label_scope=self._label_scope())
        self._domains_of = self._domain_label()
        upkeep.attach(ledger)
        self._changed_vgpus = {vgpu.metadata.name for vgpu in self._pool.all()}
        self._changed_nodes = {key.name for key in self._nodes.snapshot()}
        self._expected = len(self._changed_vgpus) + len(self._changed_nodes)
        await self._catch_up_in_steps(upkeep)
        if self._ledger is ledger:
            self._on_built()

    async def keep_up(self, upkeep: Upkeep) -> None:
        """Bring the ledger up to date whenever much has changed, until cancelled."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(upkeep.seconds):
                    await self._behind.wait()
            self._behind.clear()
            await self.prepare(upkeep)
            await self._catch_up_in_steps(upkeep)

    def subscribe_to_growth(self, handler: Callable[[], None]) -> None:
        """Call ``handler`` in :meth:`now` when a demand that did not fit before may fit.

        It must return at once and not raise.
        """
        self._on_growth.append(handler)

    # ledger_builder.ClusterObjects

    def gpunode(self, node: str) -> GPUNode | None:
        """The GPUNode of a node."""
        return self._gpunodes.get(node)

    def vgpus_on(self, node: str) -> Collection[VGPU]:
        """The vGPUs of a node."""
        return self._pool.on_node(node)

    def users_of_whole_gpus(self, node: str) -> Iterable[core_v1.Pod]:
        """The bound pods with whole GPUs of a node."""
        return self._pods.by_index(_BY_NODE, node)

    def placeholders_of(self, vgpu: str) -> Iterable[core_v1.Pod]:
        """The bound placeholders of the vGPU of this name."""
        return self._pods.by_index(_BY_VGPU, vgpu)

    def has_placeholder(self, vgpu: str) -> bool:
        """Whether the vGPU of this name has a bound placeholder."""
        return bool(self._pods.keys_by_index(_BY_VGPU, vgpu))

    # Event handlers

    def _gpunode_changed(self, change: Change[GPUNode]) -> None:
        node = change.object.metadata.name
        self._mark([node], [vgpu.metadata.name for vgpu in self._pool.on_node(node)])

    def _pod_changed(self, change: Change[core_v1.Pod]) -> None:
        for pod in (change.old, change.object):
            if pod is not None:
                self._mark(_node(pod), _placeholder_of(pod))

    def _mark(self, nodes: Iterable[str] = (), vgpus: Iterable[str] = ()) -> None:
        if self._ledger is None:
            return  # it will be built
        self._changed_nodes.update(nodes)
        self._changed_vgpus.update(vgpus)
        marks = len(self._changed_nodes) + len(self._changed_vgpus)
        if marks > MARKS_AT_ONCE:
            self._behind.set()
        entries = max(len(self._ledger.nodes) + len(self._ledger.devices), self._expected)
        if marks > MIN_MARKS + 2 * entries:
            # Nobody keeps it up: to rebuild it is cheaper than to catch up.
            self._ledger = None
            self._changed_nodes.clear()
            self._changed_vgpus.clear()

    def _build(self) -> Ledger:
        self._changed_nodes.clear()
        self._changed_vgpus.clear()
        nodes = self._nodes.snapshot().values()
        self._domains_of = self._domain_label()
        built = self._ledger = Ledger(
            (ledger_builder.node_entry(node, self, self._domains_of) for node in nodes),
            label_scope=self._label_scope(),
        )
        for vgpu in self._pool.all():
            ledger_builder.set_device(built, ledger_builder.device_entry(vgpu, self))
        self._on_built()
        self._report_growth()
        return built

    def _report_growth(self) -> None:
        self.growths += 1
        for handler in self._on_growth:
            handler()

    async def _catch_up_in_steps(self, upkeep: Upkeep) -> None:
        while self._ledger is not None and (self._changed_vgpus or self._changed_nodes):
            try:
                self._catch_up(self._ledger, ENTRIES_AT_ONCE)
                upkeep.refresh(self._ledger)
            except LedgerError as error:
                log.warning("the ledger is built anew", error=str(error))
                self._ledger = None  # by the next reader
                return
            await asyncio.sleep(0)

    def _catch_up(self, ledger: Ledger, most: int = sys.maxsize) -> None:
        """Build the marked entries again, at most so many."""
        grown = False
        for _ in range(most):
            # First the vGPUs: each changes the entry of its node too, since its GPU is not free.
            if self._changed_vgpus:
                grown = self._update_vgpu(ledger, self._changed_vgpus.pop()) or grown
            elif self._changed_nodes:
                grown = self._update_node(ledger, self._changed_nodes.pop()) or grown
            else:
                break
        if grown:
            self._report_growth()

    def _update_vgpu(self, ledger: Ledger, name: str) -> bool:
        """Build an entry again; whether a demand may fit that did not before."""
        vgpu = self._pool.get(name)
        before = ledger.devices.get(name)
        nodes = {before.node} if before is not None else set()
        if vgpu is not None:
            nodes.add(vgpu.spec.node_name)
        self._changed_nodes |= nodes
        # A vGPU of the same GPUID takes holders only while this one does not exist.
        duplicates = (hashed_name(node, name) for node in nodes)
        self._changed_vgpus.update(each for each in duplicates if each in ledger.devices)
        if vgpu is not None:
            device = ledger_builder.device_entry(vgpu, self)
            if device != before:
                ledger_builder.set_device(ledger, device)
        elif before is not None:
            ledger_builder.remove_device(ledger, name)
        return device_grew(before, ledger.devices.get(name))

    def _update_node(self, ledger: Ledger, name: str) -> bool:
        """Build an entry again; whether a demand may fit that did not before."""
        node = self._nodes.get(name)
        before = ledger.nodes.get(name)
        if node is not None:
            entry = ledger_builder.node_entry(node, self, self._domains_of)
            if entry != before:
                ledger.set_node(entry)
        elif before is not None:
            ledger.remove_node(name)
        return node_grew(before, ledger.nodes.get(name))


def _node(pod: core_v1.Pod) -> list[str]:
    return [pod.spec.node_name] if ledger_builder.uses_whole_gpus(pod) else []


def _placeholder_of(pod: core_v1.Pod) -> list[str]:
    return (
        [pod.placeholder_of] if pod.placeholder_of and ledger_builder.uses_whole_gpus(pod) else []
    )
