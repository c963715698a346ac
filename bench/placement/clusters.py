"""Clusters to place on: half full, with labels on 30 % of the GPUs, from a seed."""

import random
from collections.abc import Iterator
from itertools import count

from kubeshare.core.demand import Demand, Memory
from kubeshare.core.ledger.device import Device, FreeGpu, Node
from kubeshare.core.ledger.holder import Holder
from kubeshare.core.units import GI

CASES = ("mixed", "memory-bound", "anti-affinity-bound")
GPU = FreeGpu("V100", 16 * GI)
GPUS_ON_A_NODE = 8
COMMON = "everybody"

_KINDS = ("affinity", "anti_affinity", "exclusion")
_LABELS = [f"label-{number}" for number in range(100)]


class Cluster:
    """A cluster in one of three cases, and the demands that come to it.

    Args:
        case: ``mixed``; ``memory-bound``: most GPUs have compute left and hardly any
            memory; ``anti-affinity-bound``: nine in ten GPUs carry the label that
            every demand wants to be away from.
        gpus: how many.
        seed: what all randomness follows from.
    """

    def __init__(self, case: str, gpus: int, seed: int = 1) -> None:
        self._source = random.Random(seed)
        self._case = case
        self._names = count()
        names = [f"node-{number}" for number in range(-(-gpus // GPUS_ON_A_NODE))]
        self.nodes = [Node(name, (GPU,)) for name in names]
        self.devices = [self._device(names[number // GPUS_ON_A_NODE]) for number in range(gpus)]
        self.holders = sum(len(device.holders) for device in self.devices)

    def demands(self) -> Iterator[Demand]:
        """Demands without end."""
        pick = self._source.choice
        for number in count():
            labels = dict.fromkeys(_KINDS, "")
            if self._case == "anti-affinity-bound":
                labels["anti_affinity"] = COMMON
            elif self._source.random() < 0.3:
                labels[pick(_KINDS)] = pick(_LABELS)
            quarters = 8 if self._case == "memory-bound" else self._source.randint(1, 16)
            yield Demand(
                uid=f"uid-of-demand-{number}",
                name=f"demand-{number}",
                request_micros=self._source.randint(5, 30) * 10_000,
                memory=Memory(bytes=quarters * GI // 4),
                affinity=labels["affinity"],
                anti_affinity=labels["anti_affinity"],
                exclusion=labels["exclusion"],
            )

    def _device(self, node: str) -> Device:
        label = dict.fromkeys(_KINDS, "")
        if self._case == "anti-affinity-bound":
            if self._source.random() < 0.9:
                label["anti_affinity"] = COMMON
        elif self._source.random() < 0.3:
            label[self._source.choice(_KINDS)] = self._source.choice(_LABELS)
        return Device(
            id=f"vgpu-{self._source.getrandbits(40):010x}",
            node=node,
            model=GPU.model,
            memory_bytes=GPU.memory_bytes,
            holders=tuple(self._holders(label)),
        )

    def _holders(self, label: dict[str, str]) -> Iterator[Holder]:
        """Until a random part of the GPU, half of it on average, is taken."""
        full = self._source.random()
        request_left, memory_left = 100, 64  # hundredths of a GPU, quarters of a GiB
        scarce = self._case == "memory-bound" and self._source.random() < 0.9
        while request_left > 100 * (1 - full):
            request = min(self._source.randint(5, 40), request_left)
            memory = min(self._source.randint(1, 20), memory_left)
            if scarce:
                memory = max(memory, memory_left - self._source.randint(0, 7))
            request_left, memory_left = request_left - request, memory_left - memory
            name = f"pod-{next(self._names)}"
            yield Holder(
                demand=f"uid-of-{name}",
                name=name,
                request_micros=request * 10_000,
                memory_bytes=memory * GI // 4,
                affinity=label["affinity"],
                anti_affinity=label["anti_affinity"],
                exclusion=label["exclusion"],
            )
