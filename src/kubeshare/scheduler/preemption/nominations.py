"""Reserves room for requesters for which other pods are evicted.

From the eviction of a pod until its node has released its share, for a bounded time, no demand
of the same or a lower priority gets the GPU for which the requester is nominated. A demand of
higher priority may still get it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final

import msgspec

from kubeshare.core.decision import Decision, LazyReasons
from kubeshare.core.demand import Demand
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.policies import Policy

NOMINATION_SECONDS: Final = 180.0
"""How long room is reserved: longer than pods normally take to terminate."""
MAX_NOMINATIONS: Final = 64
"""How many nominations exist at once; no pod is evicted for one more."""


class Nomination(msgspec.Struct, frozen=True, kw_only=True):
    """Room that is reserved for a requester or a gang.

    Attributes:
        owner: the requester or gang, for people.
        namespace: the owner's; to others it is not named.
        uids: the demands that may use the room.
        priority: the owner's.
        devices: name of a vGPU -> node.
        victims: the uids of the demands that are evicted.
        to_evict: those of them that have not been evicted yet.
        until: loop time at which the reservation ends.
        left_at: loop time at which all victims had left; None before.
    """

    owner: str
    namespace: str = ""
    uids: frozenset[str]
    priority: int
    devices: Mapping[str, str]
    victims: frozenset[str]
    to_evict: tuple[str, ...] = ()
    until: float
    left_at: float | None = None

    def owner_for(self, namespace: str) -> str:
        """The owner as the users of a namespace may read it."""
        return self.owner if namespace == self.namespace else "a demand of another namespace"


class Nominations:
    """The nominations that exist now. All times are loop times.

    Args:
        on_freed: called when a nomination is removed before its time: its room is free for others.
    """

    def __init__(self, on_freed: Callable[[], None] = lambda: None) -> None:
        self._by_owner: dict[str, Nomination] = {}
        self._on_freed = on_freed

    def of(self, owner: str, now: float) -> Nomination | None:
        """The nomination of a requester or gang."""
        self._expire(now)
        return self._by_owner.get(owner)

    def add(self, nomination: Nomination) -> None:
        """Add a nomination, or replace the one of the same owner."""
        self._by_owner[nomination.owner] = nomination

    def remove(self, owner: str) -> None:
        """Remove the nomination of an owner that is scheduled or gone."""
        if self._by_owner.pop(owner, None) is not None:
            self._on_freed()

    def full(self, now: float) -> bool:
        """Whether no further nomination is allowed."""
        self._expire(now)
        return len(self._by_owner) >= MAX_NOMINATIONS

    def seconds_left(self, uids: Iterable[str], priority: int, now: float) -> float | None:
        """Seconds until the first room that is reserved against these demands is free."""
        self._expire(now)
        against = self._against(frozenset(uids), priority)
        return min((nomination.until - now for nomination in against), default=None)

    def policy(self, policy: Policy, uids: Iterable[str], priority: int, now: float) -> Policy:
        """The policy, without the room that is reserved against these demands."""
        self._expire(now)
        against = self._against(frozenset(uids), priority)
        return _WithoutReserved(policy, against) if against else policy

    def hiding(self, uids: Iterable[str], priority: int, now: float) -> Callable[[Ledger], object]:
        """Hides what is reserved against these demands in a ledger, which the caller restores."""
        self._expire(now)
        return partial(_hide, self._against(frozenset(uids), priority))

    def _against(self, uids: frozenset[str], priority: int) -> list[Nomination]:
        return [
            nomination
            for nomination in self._by_owner.values()
            if nomination.priority >= priority and not nomination.uids & uids
        ]

    def _expire(self, now: float) -> None:
        for owner in [owner for owner, each in self._by_owner.items() if each.until <= now]:
            del self._by_owner[owner]


class _WithoutReserved:
    """A policy that does not see the room of some nominations."""

    def __init__(self, policy: Policy, nominations: Sequence[Nomination]) -> None:
        self._policy = policy
        self._nominations = nominations

    def __call__(self, ledger: Ledger, demand: Demand) -> Decision:
        with ledger.what_if():
            reserved = _hide(self._nominations, ledger)
            decision = self._policy(ledger, demand)

        def reason(place: str, known: str) -> str:
            if place not in reserved:
                return known
            owner = reserved[place].owner_for(demand.namespace)
            return f"kept for {owner} of priority {reserved[place].priority}"

        def reasons() -> dict[str, str]:
            return {place: reason(place, known) for place, known in decision.reasons.items()}

        return msgspec.structs.replace(decision, reasons=LazyReasons(reasons))


def _hide(nominations: Iterable[Nomination], ledger: Ledger) -> dict[str, Nomination]:
    """Fence the room of nominations; the vGPUs and nodes where room is reserved."""
    reserved: dict[str, Nomination] = {}
    for nomination in nominations:
        for device_id, name in nomination.devices.items():
            device, node = ledger.devices.get(device_id), ledger.nodes.get(name)
            if device is not None and not device.fenced:
                ledger.mark(device_id, fenced=True)
                reserved[device.path] = nomination
            elif node is not None and node.free:
                ledger.set_free(name, node.free[:-1])
                reserved[name] = nomination
    return reserved
