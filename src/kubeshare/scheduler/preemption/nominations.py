"""Places that are kept for those for whom others have been asked to leave.

Between the eviction of a pod and the moment when its node has released its part, and until
then for a bounded time, nobody of the same or a lower priority is given the GPU on which
the one who waits will be. A higher priority may still have it.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from kubeshare.core.decision import Decision, LazyReasons
from kubeshare.core.demand import Demand
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.policies import Policy

NOMINATION_SECONDS: Final = 180.0
"""How long a place is kept: longer than pods normally take to end."""
MAX_NOMINATIONS: Final = 64
"""How many places are kept at once; nobody is preempted for one more."""


class Nomination(msgspec.Struct, frozen=True, kw_only=True):
    """A place that is kept.

    Attributes:
        owner: for whom, as people know it.
        uids: the demands that may have it.
        priority: theirs.
        devices: the ids of the vGPUs, with their nodes.
        victims: the uids of the demands that are to leave.
        to_evict: those of them that have not been asked yet.
        until: loop time at which it is not kept any more.
    """

    owner: str
    uids: frozenset[str]
    priority: int
    devices: Mapping[str, str]
    victims: frozenset[str]
    to_evict: tuple[str, ...] = ()
    until: float


class Nominations:
    """The places that are kept now."""

    def __init__(self) -> None:
        self._places: dict[str, Nomination] = {}

    def of(self, owner: str, now: float) -> Nomination | None:
        """The place that is kept for somebody."""
        self._expire(now)
        return self._places.get(owner)

    def add(self, place: Nomination) -> None:
        """Keep a place, or another one for the same owner."""
        self._places[place.owner] = place

    def remove(self, owner: str) -> None:
        """The owner needs no place any more."""
        self._places.pop(owner, None)

    def full(self, now: float) -> bool:
        """No further place can be kept."""
        self._expire(now)
        return len(self._places) >= MAX_NOMINATIONS

    def seconds_left(self, uids: Iterable[str], priority: int, now: float) -> float | None:
        """Until the first place that is kept from these demands may be theirs."""
        self._expire(now)
        against = self._against(frozenset(uids), priority)
        return min((place.until - now for place in against), default=None)

    def policy(self, policy: Policy, uids: Iterable[str], priority: int, now: float) -> Policy:
        """A policy that gives no demand of these a place that is kept from them."""
        self._expire(now)
        against = self._against(frozenset(uids), priority)
        return _Keeping(policy, against) if against else policy

    def _against(self, uids: frozenset[str], priority: int) -> list[Nomination]:
        return [
            place
            for place in self._places.values()
            if place.priority >= priority and not place.uids & uids
        ]

    def _expire(self, now: float) -> None:
        for owner in [owner for owner, place in self._places.items() if place.until <= now]:
            del self._places[owner]


class _Keeping:
    """A policy that leaves some places alone."""

    def __init__(self, policy: Policy, places: Sequence[Nomination]) -> None:
        self._policy = policy
        self._places = places

    def __call__(self, ledger: Ledger, demand: Demand) -> Decision:
        kept: dict[str, str] = {}
        with ledger.what_if():
            for place in self._places:
                words = f"kept for {place.owner} of priority {place.priority}"
                for gpuid, name in place.devices.items():
                    device, node = ledger.devices.get(gpuid), ledger.nodes.get(name)
                    if device is not None and not device.fenced:
                        ledger.mark(gpuid, fenced=True)
                        kept[device.path] = words
                    elif node is not None and node.free:
                        ledger.set_free(name, node.free[:-1])
                        kept[name] = words
            decision = self._policy(ledger, demand)

        def told() -> dict[str, str]:
            reasons = decision.reasons
            return {place: kept.get(place, reasons[place]) for place in reasons}

        return msgspec.structs.replace(decision, reasons=LazyReasons(told))
