"""Sums the accounts of allocations, by what people pay for."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from types import MappingProxyType
from typing import Final

from msgspec import Struct

from kubeshare.core.units import GI, MICROS
from kubeshare.core.usage.allocation import AllocatedShare, Allocation

UNHEARD_NS: Final = 25 * 60 * 10**9
"""An account that goes on and is older than this is not complete: its node is lost. Twice the
interval at which nodes write accounts, and some time to write them."""

KEYS: Final[Mapping[str, Callable[[Allocation, AllocatedShare], str]]] = MappingProxyType(
    {
        "namespace": lambda allocation, _: allocation.namespace,
        "owner": lambda allocation, _: allocation.owner,
        "group": lambda allocation, _: allocation.group,
        "pod": lambda allocation, _: allocation.pod,
        "model": lambda _, share: share.model,
        "node": lambda allocation, _: allocation.node,
    }
)
"""What accounts are summed by."""

_NS: Final = 10**9
_HOUR_NS: Final = 3600 * _NS


class Row(Struct, frozen=True, kw_only=True):
    """The sums of some allocations.

    Attributes:
        keys: what they have in common, in the order that was asked for.
        requested_gpu_seconds: guaranteed share x time.
        held_gpu_seconds: what nobody else could be given: the same, or the whole GPU while a
            share with an exclusion label was on it, once for all such shares of the row.
        used_gpu_seconds: GPU time charged.
        memory_gib_hours: memory x time.
        cost: of what was held, in the currency; None where a share has no price.
        allocations: how many they are.
        running: how many of them go on.
        complete: whether nothing is missing of them.
    """

    keys: tuple[str, ...]
    requested_gpu_seconds: Fraction
    held_gpu_seconds: Fraction
    used_gpu_seconds: Fraction
    memory_gib_hours: Fraction
    cost: Fraction | None
    allocations: int
    running: int
    complete: bool


class _Span(Struct, frozen=True, order=True):
    """A time in which a share with an exclusion label was on a GPU."""

    start_ns: int
    end_ns: int
    price_micros: int


class _Sums:
    def __init__(self) -> None:
        self.requested = 0  # micros x ns
        self.held = 0  # micros x ns
        self.used = Fraction(0)  # ns
        self.memory = 0  # bytes x ns
        self.cost = 0  # price_micros x micros x ns
        self.is_priced = True
        self.spans: dict[str, list[_Span]] = defaultdict(list)  # by GPU
        self.allocations: set[int] = set()
        self.running: set[int] = set()
        self.complete = True

    def add(self, allocation: Allocation, share: AllocatedShare, start: int) -> None:
        """Add what a share counts from ``start`` on."""
        end, price = allocation.end_ns, share.price_micros
        lasted = end - start
        requested = share.request_micros * lasted
        self.requested += requested
        self.memory += share.memory_bytes * lasted
        whole = allocation.end_ns - allocation.start_ns
        self.used += Fraction(share.used_ns * lasted, whole) if whole else share.used_ns
        self.is_priced = self.is_priced and price is not None
        if share.exclusive:
            self.spans[share.uuid].append(_Span(start, end, price or 0))
        else:
            self.held += requested
            self.cost += requested * (price or 0)

    def row(self, keys: tuple[str, ...]) -> Row:
        held, cost = self.held, self.cost
        for spans in self.spans.values():
            until = 0
            for span in sorted(spans):
                counted = MICROS * max(0, span.end_ns - max(span.start_ns, until))
                held += counted
                cost += counted * span.price_micros
                until = max(until, span.end_ns)
        return Row(
            keys=keys,
            requested_gpu_seconds=Fraction(self.requested, MICROS * _NS),
            held_gpu_seconds=Fraction(held, MICROS * _NS),
            used_gpu_seconds=self.used / _NS,
            memory_gib_hours=Fraction(self.memory, GI * _HOUR_NS),
            cost=Fraction(cost, MICROS * MICROS * _HOUR_NS) if self.is_priced else None,
            allocations=len(self.allocations),
            running=len(self.running),
            complete=self.complete,
        )


def report(
    allocations: Iterable[Allocation], by: Sequence[str], since_ns: int, now_ns: int
) -> list[Row]:
    """Sum what was allocated since a time, the rows sorted by their keys.

    Of an allocation that began before, the time from then on counts, and the same part of what it
    used.

    Args:
        allocations: the accounts.
        by: some of :data:`KEYS`.
        since_ns: from when on they count.
        now_ns: the present.
    """
    key_of = [KEYS[name] for name in by]
    sums: dict[tuple[str, ...], _Sums] = defaultdict(_Sums)
    for number, allocation in enumerate(allocations):
        if allocation.end_ns < since_ns:
            continue
        start = max(allocation.start_ns, since_ns)
        is_lost = not allocation.ended and now_ns - allocation.end_ns > UNHEARD_NS
        for share in allocation.shares:
            row = sums[tuple(key(allocation, share) for key in key_of)]
            row.add(allocation, share, start)
            row.allocations.add(number)
            if not (allocation.ended or is_lost):
                row.running.add(number)
            row.complete = row.complete and allocation.complete and not is_lost
    return [sums[keys].row(keys) for keys in sorted(sums)]
