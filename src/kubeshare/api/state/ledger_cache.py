"""The ledger of a cluster, kept: each event changes the entries that it concerns.

Events may come late, twice, or of one kind before another: nothing is taken from them
but names. When the ledger is asked for, the entries of those names are made anew from
what is known then, by the functions that build a whole ledger. So it always equals one
that is built, and a decision costs what has changed since the one before.
"""

from collections.abc import Callable, Collection, Iterable
from typing import Final

import structlog

from kubeshare.api.state import ledger_builder
from kubeshare.api.state.vgpu_store import VGPUStore
from kubeshare.api.types import core_v1
from kubeshare.api.types.v1 import VGPU, GPUNode
from kubeshare.core.errors import LedgerError
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.kube.cache.reflector import Reflector
from kubeshare.kube.cache.store import Change

log = structlog.get_logger(__name__)

FEW: Final = 1000
"""Names of changed entries that are remembered besides two for each entry."""

_BY_NODE = "takes GPUs of"
_BY_GPUID = "keeps the GPU of"


class LedgerCache:
    """One ledger for as long as the program runs.

    Args:
        pool: the vGPUs.
        gpunodes: watches what the node agents found.
        nodes: watches the nodes.
        pods: watches all pods.
        built: called after the whole ledger has been made, which is done at the start, when an
            entry cannot be replaced, and when more has changed than there is.
    """

    def __init__(
        self,
        pool: VGPUStore,
        *,
        gpunodes: Reflector[GPUNode],
        nodes: Reflector[core_v1.Node],
        pods: Reflector[core_v1.Pod],
        built: Callable[[], None] = lambda: None,
    ) -> None:
        self._pool = pool
        self._gpunodes = gpunodes.store
        self._nodes = nodes.store
        self._pods = pods.store
        self._built = built
        self._ledger: Ledger | None = None
        self._changed_nodes: set[str] = set()
        self._changed_vgpus: set[str] = set()
        self._pods.add_index(_BY_NODE, _node)
        self._pods.add_index(_BY_GPUID, _gpuid)
        pool.subscribe(lambda gpuid: self._mark(gpuids=[gpuid]))
        gpunodes.subscribe(self._gpunode_changed)
        nodes.subscribe(lambda change: self._mark(nodes=[change.object.metadata.name]))
        pods.subscribe(self._pod_changed)

    def now(self) -> Ledger:
        """The ledger of what is known now: always the same one, which nobody else may change."""
        self._pool.expire()
        kept = self._ledger
        if kept is None:
            return self._build()
        try:
            self._catch_up(kept)
        except LedgerError as error:
            log.warning("the ledger is built anew", error=str(error))
            return self._build()
        return kept

    # What is known (ledger.Surroundings).

    def gpunode(self, node: str) -> GPUNode | None:
        """What the agent of a node has found."""
        return self._gpunodes.get(node)

    def vgpus_on(self, node: str) -> Collection[VGPU]:
        """The vGPUs of a node."""
        return self._pool.on_node(node)

    def takers_on(self, node: str) -> Iterable[core_v1.Pod]:
        """The pods that have whole GPUs of a node."""
        return self._pods.by_index(_BY_NODE, node)

    def placeholders_of(self, gpuid: str) -> Iterable[core_v1.Pod]:
        """The pods that keep the GPU of a vGPU."""
        return self._pods.by_index(_BY_GPUID, gpuid)

    def has_placeholder(self, gpuid: str) -> bool:
        """Some pod keeps the GPU of a vGPU."""
        return bool(self._pods.keys_by_index(_BY_GPUID, gpuid))

    # What has changed.

    def _gpunode_changed(self, change: Change[GPUNode]) -> None:
        node = change.object.metadata.name
        self._mark([node], [vgpu.metadata.name for vgpu in self._pool.on_node(node)])

    def _pod_changed(self, change: Change[core_v1.Pod]) -> None:
        for pod in (change.old, change.object):
            if pod is not None:
                self._mark(_node(pod), _gpuid(pod))

    def _mark(self, nodes: Iterable[str] = (), gpuids: Iterable[str] = ()) -> None:
        if self._ledger is None:
            return  # it will be made whole
        self._changed_nodes.update(nodes)
        self._changed_vgpus.update(gpuids)
        marks = len(self._changed_nodes) + len(self._changed_vgpus)
        if marks > FEW + 2 * (len(self._ledger.nodes) + len(self._ledger.devices)):
            # Nobody has asked for a long time: to make it whole costs less than to catch up.
            self._ledger = None
            self._changed_nodes.clear()
            self._changed_vgpus.clear()

    def _build(self) -> Ledger:
        self._changed_nodes.clear()
        self._changed_vgpus.clear()
        nodes = self._nodes.snapshot().values()
        built = self._ledger = Ledger(ledger_builder.node_entry(node, self) for node in nodes)
        for vgpu in self._pool.all():
            ledger_builder.set_device(built, ledger_builder.device_entry(vgpu, self))
        self._built()
        return built

    def _catch_up(self, kept: Ledger) -> None:
        # A vGPU changes its node's entry too: the GPU that it takes is not free.
        while self._changed_vgpus:
            gpuid = self._changed_vgpus.pop()
            vgpu = self._pool.get(gpuid)
            before = kept.devices.get(gpuid)
            if before is not None:
                self._changed_nodes.add(before.node)
            if vgpu is not None:
                self._changed_nodes.add(vgpu.spec.node_name)
                device = ledger_builder.device_entry(vgpu, self)
                if device != before:
                    ledger_builder.set_device(kept, device)
            elif before is not None:
                ledger_builder.remove_device(kept, gpuid)
        while self._changed_nodes:
            name = self._changed_nodes.pop()
            node = self._nodes.get(name)
            before_node = kept.nodes.get(name)
            if node is not None:
                entry = ledger_builder.node_entry(node, self)
                if entry != before_node:
                    kept.set_node(entry)
            elif before_node is not None:
                kept.remove_node(name)


def _node(pod: core_v1.Pod) -> list[str]:
    return [pod.spec.node_name] if ledger_builder.uses_whole_gpus(pod) else []


def _gpuid(pod: core_v1.Pod) -> list[str]:
    return (
        [pod.placeholder_of] if pod.placeholder_of and ledger_builder.uses_whole_gpus(pod) else []
    )
