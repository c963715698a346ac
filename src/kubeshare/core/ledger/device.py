"""GPUs as a placement policy sees them: nodes, vGPUs, and who holds them."""

from bisect import bisect
from functools import cached_property

import msgspec

from kubeshare.core.ledger.holder import DEMAND_UID, Holder
from kubeshare.core.ledger.totals import Totals
from kubeshare.core.natural_sort import natural
from kubeshare.core.units import MICROS


class Device(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """A shareable GPU (vGPU) and its present holders. Its labels are those of its holders.

    Attributes:
        id: the GPUID, unique in the cluster.
        node: the node that it is on.
        index: the GPU's number on its node, by which gpushare's and Gaia's manifests
            name it; None where the id is the only name.
        row: of its GPU in the node's ``links``; None where that is its index, if any.
        model: of the GPU, "" when unknown.
        memory_bytes: of the GPU, in bytes.
        holders: who has a part of it; none makes it idle.
        healthy: False once the GPU has failed.
        fenced: True while nobody may be added, for example while it is being deleted.
    """

    id: str
    node: str
    index: int | None = None
    row: int | None = None
    model: str = ""
    memory_bytes: int
    holders: tuple[Holder, ...] = ()
    healthy: bool = True
    fenced: bool = False

    @property
    def idle(self) -> bool:
        """Nobody holds a part of it, however small."""
        return not self.holders

    @property
    def name(self) -> str:
        """What people call it on its node: its number there, else its id."""
        return self.id if self.index is None else str(self.index)

    @property
    def number(self) -> int | None:
        """Its GPU's row of the node's ``links``, None where that is not known."""
        return self.index if self.row is None else self.row

    @property
    def path(self) -> str:
        """``node/name``, as people see it."""
        return f"{self.node}/{self.name}"

    @cached_property
    def order(self) -> str:
        """By what ids sort naturally."""
        return natural(self.id)

    @cached_property
    def totals(self) -> Totals:
        """What its holders add up to."""
        return Totals.of(self.holders)

    @property
    def compute_left(self) -> int:
        """Micros that are not reserved; negative only in a record from elsewhere."""
        return MICROS - self.totals.compute

    @property
    def memory_left(self) -> int:
        """Bytes that are not reserved; negative only in a record from elsewhere."""
        return self.memory_bytes - self.totals.memory_bytes

    @property
    def affinities(self) -> frozenset[str]:
        """The affinity labels of its holders."""
        return self.totals.affinities

    @property
    def anti_affinities(self) -> frozenset[str]:
        """The anti-affinity labels of its holders."""
        return self.totals.anti_affinities

    @property
    def exclusions(self) -> frozenset[str]:
        """The exclusion labels of its holders, "" for those that have none."""
        return self.totals.exclusions

    def joined_by(self, holder: Holder) -> "Device":
        """The device with one holder more; its holders stay in the order of their demands."""
        at = bisect(self.holders, holder.demand, key=DEMAND_UID)
        holders = (*self.holders[:at], holder, *self.holders[at:])
        return self._with(holders, self.totals.plus(holder))

    def left_by(self, demand: str) -> "Device":
        """The device without the holder whose demand has this uid, which it has."""
        at = bisect(self.holders, demand, key=DEMAND_UID) - 1
        rest = self.holders[:at] + self.holders[at + 1 :]
        return self._with(rest, self.totals.minus(self.holders[at], rest))

    def _with(self, holders: tuple[Holder, ...], totals: Totals) -> "Device":
        device = Device(
            id=self.id,
            node=self.node,
            index=self.index,
            row=self.row,
            model=self.model,
            memory_bytes=self.memory_bytes,
            holders=holders,
            healthy=self.healthy,
            fenced=self.fenced,
        )
        # Where cached_property keeps them: making them anew would cost more than all the rest.
        device.__dict__["order"] = self.order
        device.__dict__["totals"] = totals
        return device


class FreeGpu(msgspec.Struct, frozen=True, order=True, gc=False):
    """A kind of physical GPU: its model ("" when unknown) and its memory in bytes."""

    model: str
    memory_bytes: int


class Node(msgspec.Struct, frozen=True, gc=False):
    """A node and its physical GPUs.

    Attributes:
        name: of the node.
        free: one entry for each GPU that is in nobody's use and not yet in the pool.
        kinds: the kinds of all GPUs it has, in use or not; what is free or in the
            pool need not be repeated. They tell "not now" from "never".
        total: how many GPUs it has, in use or not; 0 where only what is free or in the
            pool counts.
        pool: the pool that quotas know it by, "" for none.
        links: how far its GPUs are from each other: ``links[i][j]`` is the cost level
            between the GPUs of index i and j (:mod:`kubeshare.core.topology`); empty
            where that is not known.
    """

    name: str
    free: tuple[FreeGpu, ...] = ()
    kinds: frozenset[FreeGpu] = frozenset()
    total: int = 0
    pool: str = ""
    links: tuple[tuple[int, ...], ...] = ()
