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
from kubeshare.kube.controller.gc_tuning import collections_postponed

log = structlog.get_logger(__name__)

MIN_MARKS: Final = 1000
"""Changed names that are kept, besides two for each entry, before the ledger is rebuilt."""

ENTRIES_AT_ONCE: Final = 100
"""Entries that are built, or freed, before other tasks run."""
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


class _State:
    """A ledger, the settings that it was built with, and the names that changed since.

    Args:
        ledger: the ledger.
        domain_label: the label of nodes of which it has the domains.
        nodes: the nodes whose entries are not up to date.
        vgpus: the same of vGPUs.
    """

    def __init__(
        self,
        ledger: Ledger,
        domain_label: str,
        nodes: Iterable[str] = (),
        vgpus: Iterable[str] = (),
    ) -> None:
        self.ledger = ledger
        self.domain_label = domain_label
        self.nodes = set(nodes)
        self.vgpus = set(vgpus)
        self._expected = self.marks  # entries that the ledger has when it is built

    @property
    def marks(self) -> int:
        """How many entries are not up to date."""
        return len(self.nodes) + len(self.vgpus)

    @property
    def entries(self) -> int:
        """How many entries the ledger has, or will have."""
        return max(len(self.ledger.nodes) + len(self.ledger.devices), self._expected)


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
        self._pool = pool
        self._gpunodes = gpunodes.store
        self._nodes = nodes.store
        self._pods = pods.store
        self._on_built = built
        self.growths = 0
        self._on_growth: list[Callable[[], None]] = []
        self._state: _State | None = None
        self._next: _State | None = None  # is built with other settings, and then replaces it
        self._kept = False  # `keep_up` runs
        self._behind = asyncio.Event()  # there is something to do for `keep_up`
        self._pods.add_index(_BY_NODE, _node)
        self._pods.add_index(_BY_VGPU, _placeholder_of)
        pool.subscribe(lambda name: self._mark(vgpus=[name]))
        gpunodes.subscribe(self._gpunode_changed)
        nodes.subscribe(lambda change: self._mark(nodes=[change.object.metadata.name]))
        pods.subscribe(self._pod_changed)

    def now(self) -> Ledger:
        """The ledger, up to date; callers must not change it.

        While :meth:`keep_up` runs, one with other settings comes somewhat after they are changed.
        """
        self._pool.expire()
        state = self._state
        if state is None:
            return self._build()
        if self._has_other_settings(state):
            if not self._kept:
                return self._build()
            self._behind.set()
        try:
            self._catch_up(state)
        except LedgerError as error:
            log.warning("the ledger is built anew", error=str(error))
            return self._build()
        return state.ledger

    async def prepare(self, upkeep: Upkeep) -> None:
        """Build the ledger, unless there is one, in steps between which other tasks run."""
        if self._state is not None:
            return
        with collections_postponed():
            state = self._state = self._begun(upkeep)
            await self._catch_up_in_steps(upkeep)
            if self._state is state:
                self._on_built()

    async def keep_up(self, upkeep: Upkeep) -> None:
        """Bring the ledger up to date whenever much has changed, until cancelled."""
        self._kept = True
        try:
            while True:
                with suppress(TimeoutError):
                    async with asyncio.timeout(upkeep.seconds):
                        await self._behind.wait()
                self._behind.clear()
                await self.prepare(upkeep)
                if self._state is not None and self._has_other_settings(self._state):
                    with collections_postponed():
                        await self._replace(upkeep)
                await self._catch_up_in_steps(upkeep)
        finally:
            self._kept = False

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
        names = tuple(nodes), tuple(vgpus)
        for each in filter(None, (self._state, self._next)):
            each.nodes.update(names[0])
            each.vgpus.update(names[1])
        state = self._state
        if state is None:
            return  # it will be built
        if state.marks > MARKS_AT_ONCE:
            self._behind.set()
        if state.marks > MIN_MARKS + 2 * state.entries:
            # Nobody keeps it up: to rebuild it is cheaper than to catch up.
            self._state = None

    def _has_other_settings(self, state: _State) -> bool:
        settings = state.ledger.label_scope, state.domain_label
        return settings != (self._label_scope(), self._domain_label())

    def _build(self) -> Ledger:
        nodes = self._nodes.snapshot().values()
        label = self._domain_label()
        built = Ledger(
            (ledger_builder.node_entry(node, self, label) for node in nodes),
            label_scope=self._label_scope(),
        )
        for vgpu in self._pool.all():
            ledger_builder.set_device(built, ledger_builder.device_entry(vgpu, self))
        self._state = _State(built, label)
        self._on_built()
        self._report_growth()
        return built

    def _begun(self, upkeep: Upkeep) -> _State:
        """An empty ledger with its indexes, of which all entries are to be built."""
        ledger = Ledger(label_scope=self._label_scope())
        upkeep.attach(ledger)
        return _State(
            ledger,
            self._domain_label(),
            (key.name for key in self._nodes.snapshot()),
            (vgpu.metadata.name for vgpu in self._pool.all()),
        )

    async def _replace(self, upkeep: Upkeep) -> None:
        """Build a ledger with the present settings in steps, while others use the former one."""
        state = self._next = self._begun(upkeep)
        try:
            # The next reader builds the rest: under many changes there is always some.
            while state.marks > ENTRIES_AT_ONCE:
                self._catch_up_some(state, ENTRIES_AT_ONCE)
                upkeep.refresh(state.ledger)
                await asyncio.sleep(0)
        except LedgerError as error:
            log.warning("the ledger is built anew", error=str(error))
            self._state = None  # by the next reader
            return
        finally:
            self._next = None
        former = [] if self._state is None else self._state.ledger.parts()
        self._state = state
        self._on_built()
        self._report_growth()
        if self._has_other_settings(state):
            self._behind.set()
        await _free_in_steps(former)

    def _report_growth(self) -> None:
        self.growths += 1
        for handler in self._on_growth:
            handler()

    async def _catch_up_in_steps(self, upkeep: Upkeep) -> None:
        while (state := self._state) is not None and state.marks:
            try:
                self._catch_up(state, ENTRIES_AT_ONCE)
                upkeep.refresh(state.ledger)
            except LedgerError as error:
                log.warning("the ledger is built anew", error=str(error))
                self._state = None  # by the next reader
                return
            await asyncio.sleep(0)

    def _catch_up(self, state: _State, most: int = sys.maxsize) -> None:
        """Build the marked entries again, at most so many, and report that there is more room."""
        if self._catch_up_some(state, most):
            self._report_growth()

    def _catch_up_some(self, state: _State, most: int) -> bool:
        """Build the marked entries again, at most so many; whether there is more room."""
        grown = False
        for _ in range(most):
            # First the vGPUs: each changes the entry of its node too, since its GPU is not free.
            if state.vgpus:
                grown = self._update_vgpu(state, state.vgpus.pop()) or grown
            elif state.nodes:
                grown = self._update_node(state, state.nodes.pop()) or grown
            else:
                break
        return grown

    def _update_vgpu(self, state: _State, name: str) -> bool:
        """Build an entry again; whether a demand may fit that did not before."""
        ledger = state.ledger
        vgpu = self._pool.get(name)
        before = ledger.devices.get(name)
        nodes = {before.node} if before is not None else set()
        if vgpu is not None:
            nodes.add(vgpu.spec.node_name)
        state.nodes |= nodes
        # A vGPU of the same GPUID takes holders only while this one does not exist.
        duplicates = (hashed_name(node, name) for node in nodes)
        state.vgpus.update(each for each in duplicates if each in ledger.devices)
        if vgpu is not None:
            device = ledger_builder.device_entry(vgpu, self)
            if device != before:
                ledger_builder.set_device(ledger, device)
        elif before is not None:
            ledger_builder.remove_device(ledger, name)
        return device_grew(before, ledger.devices.get(name))

    def _update_node(self, state: _State, name: str) -> bool:
        """Build an entry again; whether a demand may fit that did not before."""
        ledger = state.ledger
        node = self._nodes.get(name)
        before = ledger.nodes.get(name)
        if node is not None:
            entry = ledger_builder.node_entry(node, self, state.domain_label)
            if entry != before:
                ledger.set_node(entry)
        elif before is not None:
            ledger.remove_node(name)
        return node_grew(before, ledger.nodes.get(name))


async def _free_in_steps(parts: list[object]) -> None:
    """Drop what may have no other reference; all at once, 40 000 GPUs take 0.09 s."""
    while parts:
        del parts[-ENTRIES_AT_ONCE:]
        await asyncio.sleep(0)


def _node(pod: core_v1.Pod) -> list[str]:
    return [pod.spec.node_name] if ledger_builder.uses_whole_gpus(pod) else []


def _placeholder_of(pod: core_v1.Pod) -> list[str]:
    return (
        [pod.placeholder_of] if pod.placeholder_of and ledger_builder.uses_whole_gpus(pod) else []
    )
