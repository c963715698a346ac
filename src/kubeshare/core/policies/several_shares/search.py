"""Places several different shares on one node, by a search with backtracking.

The shares are placed one after the other, the largest first. For each share the policy orders
the sets of GPUs that it prefers; the search takes the first set beside which all further shares
fit. So a small share does not take the only GPU that a later one could use.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from heapq import merge
from itertools import combinations
from operator import itemgetter
from typing import Any, Final, Protocol, TypeAlias

import msgspec

from kubeshare.core import reasons
from kubeshare.core.demand import Demand, Share, groups_of
from kubeshare.core.ledger.device import Device
from kubeshare.core.ledger.holder import Holder

STEPS: Final = 1000
"""The most sets of GPUs that are tried on one node, to bound the time of a decision."""

Key: TypeAlias = tuple[Any, ...]
"""What a policy sorts by; keys of one share compare."""


class Gpu(msgspec.Struct, frozen=True):
    """A GPU that a demand may use.

    Attributes:
        device: the device with the shares that were placed so far.
        before: the device without them, as the ledger has it.
        new: whether it is a free GPU, which would become a vGPU.
        groups: the groups of the shares that were placed on it.
    """

    device: Device
    before: Device
    new: bool = False
    groups: frozenset[str] = frozenset()

    @classmethod
    def of(cls, device: Device, *, new: bool = False) -> "Gpu":
        """A GPU before any share is placed on it."""
        return cls(device, device, new)

    def admits(self, group: str, wanted: Demand) -> bool:
        """Whether a share of a group fits beside the other holders, and none of it is here."""
        return group not in self.groups and not reasons.room(self.device, wanted)

    def with_share(self, share: Share, group: str, demand: Demand) -> "Gpu":
        """The GPU with one more share, which is of a group."""
        holder = Holder.of_share(demand, share, self.device.memory_bytes)
        return Gpu(self.device.with_holder(holder), self.before, self.new, self.groups | {group})


class Preference(Protocol):
    """The order in which a policy prefers the GPUs of one node."""

    def __call__(
        self, wanted: Demand, fitting: Sequence[Gpu], taken: Sequence[Gpu]
    ) -> Iterator[tuple[Key, tuple[Gpu, ...]]]:
        """The sets of ``wanted.count`` GPUs, each with its sort key, in ascending order.

        Args:
            wanted: the demand, reduced to the share that is placed now.
            fitting: the GPUs of one model that admit it.
            taken: the GPUs of the shares that were placed before it.
        """


def one_by_one(order: Callable[[Gpu], Any]) -> Preference:
    """The preference of a policy that orders single GPUs."""

    def prefer(
        wanted: Demand, fitting: Sequence[Gpu], taken: Sequence[Gpu]
    ) -> Iterator[tuple[Key, tuple[Gpu, ...]]]:
        del taken  # it does not matter to such a policy
        ordered = sorted(((order(gpu), gpu) for gpu in fitting), key=itemgetter(0))
        for chosen in combinations(ordered, wanted.count):
            yield tuple(key for key, _ in chosen), tuple(gpu for _, gpu in chosen)

    return prefer


def largest_first(shares: Sequence[Share]) -> list[Share]:
    """The order in which shares are placed: whole GPUs first; equal ones keep their order."""
    return sorted(
        shares,
        key=lambda share: (
            -share.request_micros,
            -share.count,
            -(share.memory.micros or 0),
            -(share.memory.bytes or 0),
        ),
    )


def place(demand: Demand, gpus: Sequence[Gpu], prefer: Preference) -> dict[str, list[Gpu]] | None:
    """Name of each share → its GPUs, all of one model; None if not all shares fit."""
    search = _Search(demand, prefer)
    return search.place(0, {gpu.device.id: gpu for gpu in gpus})


class _Search:
    def __init__(self, demand: Demand, prefer: Preference) -> None:
        self._demand = demand
        self._prefer = prefer
        self._shares = [(share, demand.reduced_to(share)) for share in largest_first(demand.shares)]
        self._group = groups_of(demand.shares)
        self._steps = STEPS

    def place(self, at: int, gpus: dict[str, Gpu]) -> dict[str, list[Gpu]] | None:
        """Place the shares from a position on."""
        if at == len(self._shares):
            return {}
        share, wanted = self._shares[at]
        group = self._group[share.name]
        fitting = [gpu for gpu in gpus.values() if gpu.admits(group, wanted)]
        taken = [gpu for gpu in gpus.values() if gpu.groups]
        for _, chosen in self._choices(wanted, fitting, taken):
            if not self._steps:
                return None
            self._steps -= 1
            joined = {gpu.device.id: gpu.with_share(share, group, self._demand) for gpu in chosen}
            rest = self.place(at + 1, gpus | joined)
            if rest is not None:
                return {share.name: list(chosen), **rest}
        return None

    def _choices(
        self, wanted: Demand, fitting: Sequence[Gpu], taken: Sequence[Gpu]
    ) -> Iterator[tuple[Key, tuple[Gpu, ...]]]:
        """The sets of GPUs, the preferred ones first, all of the model of those taken."""
        models: dict[str, list[Gpu]] = defaultdict(list)
        for gpu in fitting:
            models[gpu.device.model].append(gpu)
        if taken:
            return self._prefer(wanted, models[taken[0].device.model], taken)
        return merge(
            *(self._prefer(wanted, alike, taken) for alike in models.values()), key=itemgetter(0)
        )
