"""GPUs and nodes as placement policies see them."""

from bisect import bisect, bisect_left
from functools import cached_property

import msgspec

from kubeshare.core.ledger.holder import DEMAND_UID, HOLDER_KEY, Holder
from kubeshare.core.ledger.totals import Totals
from kubeshare.core.natural_sort import natural, natural_name
from kubeshare.core.units import MICROS


class Device(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """A shareable GPU (vGPU) and its holders. Its labels are those of its holders.

    Attributes:
        id: the name of its object, unique in the cluster.
        node: the name of its node.
        gpuid: the GPUID, unique on its node; "" if that is the id.
        index: the GPU's number on its node, which gpushare and Gaia name it by; None if it has
            a GPUID.
        row: its row in the node's ``links``; None if that is the index.
        uuid: the UUID of its physical GPU, "" where that is not known or not chosen.
        model: the GPU model, "" when unknown.
        memory_bytes: the memory of the GPU.
        holders: the shares of the GPU, sorted by demand uid and share; an idle device has none.
        healthy: False once the GPU has failed.
        fenced: True while no holder may be added, for example during deletion.
    """

    id: str
    node: str
    gpuid: str = ""
    index: int | None = None
    row: int | None = None
    uuid: str = ""
    model: str = ""
    memory_bytes: int
    holders: tuple[Holder, ...] = ()
    healthy: bool = True
    fenced: bool = False

    @property
    def idle(self) -> bool:
        """Whether it has no holder."""
        return not self.holders

    @property
    def name(self) -> str:
        """Its name on its node: its number there, else its GPUID."""
        return self.gpuid or self.id if self.index is None else str(self.index)

    @property
    def number(self) -> int | None:
        """Its row in the node's ``links``; None if unknown."""
        return self.index if self.row is None else self.row

    @property
    def path(self) -> str:
        """``node/name``, as messages show it."""
        return f"{self.node}/{self.name}"

    @cached_property
    def order(self) -> str:
        """The natural sort key of its GPUID, then of its node; no two devices have the same."""
        if self.index is not None:
            return natural(self.id)
        # The separator sorts before anything that may follow in a longer GPUID.
        own = f"\0\0{self.id}" if self.gpuid else ""
        return f"{natural(self.name)}\0\0{natural_name(self.node)}{own}"

    @cached_property
    def totals(self) -> Totals:
        """The sums and labels of its holders."""
        return Totals.of(self.holders)

    @property
    def compute_left(self) -> int:
        """Micros that are not reserved; negative only in a foreign, inconsistent record."""
        return MICROS - self.totals.request_micros

    @property
    def memory_left(self) -> int:
        """Bytes that are not reserved; negative only in a foreign, inconsistent record."""
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
        """The exclusion labels of its holders, "" for holders without one."""
        return self.totals.exclusions

    def is_same_gpu(self, other: "Device") -> bool:
        """Whether only the holders and the state differ."""
        return (
            self.node == other.node
            and self.model == other.model
            and self.memory_bytes == other.memory_bytes
            and self.gpuid == other.gpuid
            and self.index == other.index
            and self.row == other.row
        )

    def with_holder(self, holder: Holder) -> "Device":
        """The device with one more holder."""
        at = bisect(self.holders, (holder.demand, holder.share), key=HOLDER_KEY)
        holders = (*self.holders[:at], holder, *self.holders[at:])
        return self._with(holders, self.totals.plus(holder))

    def without_demand(self, uid: str) -> "Device":
        """The device without the holders of a demand, which has at least one."""
        at = bisect_left(self.holders, uid, key=DEMAND_UID)
        totals, rest = self.totals, self.holders
        while at < len(rest) and rest[at].demand == uid:
            leaving, rest = rest[at], rest[:at] + rest[at + 1 :]
            totals = totals.minus(leaving, rest)
        return self._with(rest, totals)

    def _with(self, holders: tuple[Holder, ...], totals: Totals) -> "Device":
        device = Device(
            id=self.id,
            node=self.node,
            gpuid=self.gpuid,
            index=self.index,
            row=self.row,
            uuid=self.uuid,
            model=self.model,
            memory_bytes=self.memory_bytes,
            holders=holders,
            healthy=self.healthy,
            fenced=self.fenced,
        )
        # Prime the cached properties: computing them anew would cost more than all the rest.
        device.__dict__["order"] = self.order
        device.__dict__["totals"] = totals
        return device


class FreeGpu(msgspec.Struct, frozen=True, order=True, gc=False):
    """A kind of physical GPU: its model ("" when unknown) and its memory."""

    model: str
    memory_bytes: int


class SelectableGpu(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A free physical GPU that a policy can choose, because its driver gives a GPU by UUID.

    Attributes:
        uuid: the UUID of the GPU.
        row: its row in the node's ``links``; None if unknown.
        kind: its model and memory.
    """

    uuid: str
    row: int | None = None
    kind: FreeGpu

    @property
    def order(self) -> tuple[bool, int, str]:
        """The sort key: GPUs with a row first, by row; then by UUID."""
        return self.row is None, self.row or 0, self.uuid


class Node(msgspec.Struct, frozen=True, gc=False):
    """A node and its physical GPUs.

    Attributes:
        name: the name of the node.
        free: one entry for each GPU that is unused and not yet a vGPU.
        selectable: those of the free GPUs that a policy can choose one by one; which physical
            GPU any other new vGPU gets is decided by the node's device plugin.
        kinds: the kinds of all GPUs of the node, in use or not; kinds of free GPUs and vGPUs
            need not be repeated. They distinguish "pending" from "infeasible".
        total: how many GPUs it has, in use or not; 0 if only free GPUs and vGPUs count.
        pool: the name of its pool in quotas, "" for none.
        model: another name that quotas may use for the model of all its GPUs, "" for none.
        links: ``links[i][j]`` is the cost level between the GPUs with index i and j
            (:mod:`kubeshare.core.topology`); empty if unknown.
        spread: whether the policy ``binpack`` spreads the shares over the GPUs of the node.
        domain: the name of its domain, such as a zone; nodes of one domain are near each other.
    """

    name: str
    free: tuple[FreeGpu, ...] = ()
    kinds: frozenset[FreeGpu] = frozenset()
    total: int = 0
    pool: str = ""
    model: str = ""
    links: tuple[tuple[int, ...], ...] = ()
    selectable: tuple[SelectableGpu, ...] = ()
    spread: bool = False
    domain: str = ""
