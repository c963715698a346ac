"""The members of a gang, and how far each has been scheduled."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from kubeshare.api.types.v1 import VGPU
from kubeshare.core.demand import Demand
from kubeshare.core.errors import InvalidValueError
from kubeshare.core.gang import Gang, Nearness
from kubeshare.dialects.priority_and_gang import GANG_NEAR, MIN_AVAILABLE, PRIORITY, Standing
from kubeshare.kube.meta import Key
from kubeshare.scheduler.binding import matches_demand
from kubeshare.scheduler.requesters.base import Requester


@dataclass(frozen=True)
class Member:
    """A member of a gang, and the vGPUs on which it holds shares."""

    requester: Requester
    demand: Demand
    held: Sequence[VGPU]

    @cached_property
    def waits(self) -> bool:
        """It is not bound, and still wants to be."""
        return not self.requester.decided and not self.requester.finished

    @property
    def placed(self) -> bool:
        """It has its shares, whether or not it is bound."""
        return self.requester.decided or self.ready

    @cached_property
    def ready(self) -> bool:
        """The shares that it holds match its demand, so it can be bound."""
        return bool(self.held) and matches_demand(self.held, self.demand)


@dataclass(frozen=True)
class Members:
    """The members of a gang that exist, the oldest first."""

    gang: Gang
    all: Sequence[Member]

    @cached_property
    def waiting(self) -> Sequence[Member]:
        """The members that are not bound."""
        return [member for member in self.all if member.waits]

    @cached_property
    def present(self) -> int:
        """The number of members that have shares or ask for them."""
        return sum(member.placed or member.waits for member in self.all)

    @cached_property
    def needed(self) -> int:
        """The number of further members to place before any is bound."""
        return self.gang.min_available - sum(member.placed for member in self.all)

    @property
    def near(self) -> Nearness | None:
        """How near those that hold shares further members are placed; None if anywhere."""
        placed = (member for member in self.all if member.placed and not member.requester.finished)
        return self.gang.nearness(member.requester.uid for member in placed)

    @property
    def key(self) -> Key:
        """The namespace and the name of the gang."""
        return Key(self.all[0].requester.key.key.namespace, self.gang.name)

    @property
    def name(self) -> str:
        """The gang's name for people."""
        return name_of_gang(self.key)


def name_of_gang(gang: Key) -> str:
    """The name of a gang for people, and of what is reserved for it."""
    return f"gang {gang.name} of namespace {gang.namespace}"


def demand_of_member(requester: Requester) -> Demand | None:
    """The demand of a member; None if its fields are not acceptable, so it counts for nothing."""
    try:
        return requester.demand() if requester.standing().gang else None
    except InvalidValueError:
        return None


def gang_terms(standing: Standing) -> dict[str, int | str]:
    """The labels and annotations that all members of a gang must have alike, with their values."""
    gang = standing.gang
    assert gang is not None
    return {
        PRIORITY: standing.priority_label,
        MIN_AVAILABLE: gang.min_available,
        GANG_NEAR: gang.near or "none",
    }


def check_agreement(standing: Standing, oldest: Standing, who: object) -> None:
    """Check that a member has the gang labels of the oldest one.

    Args:
        standing: the member's.
        oldest: the oldest member's.
        who: the oldest member, for people.

    Raises:
        InvalidValueError: a value differs; the field is the label or annotation.
    """
    own, expected = gang_terms(standing), gang_terms(oldest)
    for label, value in own.items():
        if value != expected[label]:
            words = f"{value} differs from {expected[label]} of {who}, of the same gang"
            raise InvalidValueError(label, words)
