"""How much of what is left of GPUs demands cannot use.

Fragmentation as in Weng et al., "Beware of Fragmentation: Scheduling GPU-Sharing Workloads with
Fragmentation Gradient Descent", USENIX ATC '23. What is left of a node's GPUs is a fragment for a
kind of demand if that kind cannot use it: all of it where too few of the GPUs have room for one
such demand, otherwise what is left of the GPUs without room. The fragmentation of a node is the
mean over the kinds, by how often each occurs. A kind that asks for no GPU can use none of it.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from kubeshare.core.demand import NOTHING, Demand
from kubeshare.core.units import MICROS, Memory


class DemandClass(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Demands that fit on the same GPUs.

    Attributes:
        micros: of each GPU; 0 where ``proportional``.
        count: of how many GPUs of one node and model; 0 for none.
        models: the models that may be used; empty is any.
        memory: of each GPU.
        proportional: as in :class:`kubeshare.core.demand.Demand`.
        cpu_millis: thousandths of the node's CPUs.
    """

    micros: int
    count: int = 1
    models: frozenset[str] = frozenset()
    memory: Memory = NOTHING
    proportional: bool = False
    cpu_millis: int = 0

    @classmethod
    def of(
        cls, demand: Demand, models: frozenset[str] = frozenset(), cpu_millis: int = 0
    ) -> "DemandClass":
        """The kind of a demand in the short form.

        Args:
            demand: it.
            models: that it may have, if it names none; empty for any.
            cpu_millis: of its host.
        """
        return cls(
            micros=demand.request_micros,
            count=demand.count,
            models=frozenset([demand.model]) if demand.model else models,
            memory=demand.memory,
            proportional=demand.proportional,
            cpu_millis=cpu_millis,
        )

    def micros_on(self, memory_bytes: int) -> int:
        """The micros that it reserves on a GPU with so much memory."""
        if self.proportional and memory_bytes:
            return self.memory.on(memory_bytes) * MICROS // memory_bytes
        return self.micros


class GpuLeft(NamedTuple):
    """What is left of a GPU: micros and bytes; and its memory in all."""

    micros: int
    memory_left: int
    memory_bytes: int

    def has_room(self, kind: DemandClass) -> bool:
        """Whether a demand of a kind fits, but for the model."""
        total = self.memory_bytes
        return self.micros >= kind.micros_on(total) and self.memory_left >= kind.memory.on(total)


class NodeLeft(NamedTuple):
    """What is left of a node's GPUs of one model, sorted, and of its CPUs if they count."""

    gpus: tuple[GpuLeft, ...]
    model: str
    cpu_millis: int | None = None

    @property
    def micros(self) -> int:
        """What is left of all of the GPUs."""
        return sum(gpu.micros for gpu in self.gpus)


def usable_micros(rooms: Sequence[int], kind: DemandClass, model: str) -> int:
    """How much of what is left of GPUs a kind of demand can use.

    Args:
        rooms: the micros that are left of each GPU of a node that has room for it.
        kind: the kind.
        model: the model of these GPUs.
    """
    if kind.models and model not in kind.models:
        return 0
    return sum(rooms) if len(rooms) >= kind.count > 0 else 0


def fragmented_micros(node: NodeLeft, kinds: Mapping[DemandClass, int]) -> float:
    """The fragmentation of a node.

    Args:
        node: what is left of it.
        kinds: how often each kind occurs; of none, nothing is a fragment.

    Returns:
        micros, at most what is left of the GPUs.
    """
    total, usable = sum(kinds.values()), 0
    if not total:
        return 0.0
    for kind, times in kinds.items():
        if node.cpu_millis is None or node.cpu_millis >= kind.cpu_millis:
            rooms = [gpu.micros for gpu in node.gpus if gpu.has_room(kind)]
            usable += times * usable_micros(rooms, kind, node.model)
    return node.micros - usable / total


def fragmented_in_all(nodes: Iterable[NodeLeft], kinds: Mapping[DemandClass, int]) -> float:
    """The fragmentation of nodes together, in micros; those that are alike are computed once."""
    alike = Counter(node for node in nodes if node.micros)
    return sum(times * fragmented_micros(node, kinds) for node, times in alike.items())
