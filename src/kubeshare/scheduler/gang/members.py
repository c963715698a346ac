"""Who is in a gang, and how far each of them has come."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from kubeshare.api.types.v1 import VGPU
from kubeshare.core.demand import Demand
from kubeshare.core.errors import InvalidValueError
from kubeshare.core.gang import Gang
from kubeshare.dialects.priority_and_gang import MIN_AVAILABLE, PRIORITY, Standing
from kubeshare.kube.meta import Key
from kubeshare.scheduler.binding import matches_demand
from kubeshare.scheduler.requesters.base import Requester


@dataclass(frozen=True)
class Member:
    """One of a gang, and the parts of GPUs that it has taken and not been told of."""

    requester: Requester
    demand: Demand
    held: Sequence[VGPU]

    @property
    def waits(self) -> bool:
        """It has not been told of a decision, and is there to be told."""
        return not self.requester.decided and not self.requester.finished

    @property
    def placed(self) -> bool:
        """It has a GPU, whether or not it has been told."""
        return self.requester.decided or self.ready

    @property
    def ready(self) -> bool:
        """What it holds is what it asks for, so it can be told."""
        return bool(self.held) and matches_demand(self.held, self.demand)


@dataclass(frozen=True)
class Members:
    """Those of a gang that are there, the oldest first."""

    gang: Gang
    all: Sequence[Member]

    @cached_property
    def waiting(self) -> Sequence[Member]:
        """Those that have not been told of a decision."""
        return [member for member in self.all if member.waits]

    @cached_property
    def present(self) -> int:
        """How many have a GPU or ask for one."""
        return sum(member.placed or member.waits for member in self.all)

    @cached_property
    def needed(self) -> int:
        """How many more have to be placed together, before anybody is."""
        return self.gang.min_available - sum(member.placed for member in self.all)

    @property
    def key(self) -> Key:
        """The namespace and the name of the gang."""
        return Key(self.all[0].requester.key.key.namespace, self.gang.name)

    @property
    def name(self) -> str:
        """What people know the gang by."""
        return f"gang {self.gang.name} of namespace {self.all[0].requester.key.key.namespace}"


def demand_of_member(requester: Requester) -> Demand | None:
    """What a member asks for; None for one that is told itself why it is no member."""
    try:
        return requester.demand() if requester.standing().gang else None
    except InvalidValueError:
        return None


def gang_terms(standing: Standing) -> dict[str, int]:
    """What all members of a gang have to say alike."""
    assert standing.gang is not None
    return {PRIORITY: standing.priority, MIN_AVAILABLE: standing.gang.min_available}


def check_agreement(standing: Standing, oldest: Standing, who: object) -> None:
    """See that somebody says of its gang what its oldest member says.

    Args:
        standing: where it stands.
        oldest: where the oldest member stands.
        who: the oldest member, for people.

    Raises:
        InvalidValueError: it does not; under the name of the label.
    """
    mine, theirs = gang_terms(standing), gang_terms(oldest)
    for label, value in mine.items():
        if value != theirs[label]:
            words = f"{value} differs from {theirs[label]} of {who}, of the same gang"
            raise InvalidValueError(label, words)
