"""What requesters of all kinds share as API objects."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar

from kubeshare.api.state.assume_cache import AssumeCache
from kubeshare.api.types.constants import MANAGER_SCHEDULER
from kubeshare.dialects.priority_and_gang import Standing, standing_of
from kubeshare.kube.client.client import Client
from kubeshare.kube.client.errors import NotFoundError
from kubeshare.kube.controller.events import ObjectReference, reference
from kubeshare.kube.meta import ObjectMeta
from kubeshare.kube.resources import Raw, Resource
from kubeshare.scheduler.requesters.base import RequesterKey
from kubeshare.scheduler.scheduled_condition import ScheduledCondition


class HasMetadata(Protocol):
    """The narrow struct of an object."""

    @property
    def metadata(self) -> ObjectMeta:
        """The object's metadata."""
        ...


class ObjectKind:
    """All objects of one kind.

    Args:
        client: reads and patches them.
        known: the objects, with this program's own writes.
        status: writes their condition.
        max_priority: the highest priority that demands of a namespace may have.
    """

    def __init__(
        self,
        client: Client,
        known: AssumeCache[Raw],
        status: ScheduledCondition,
        max_priority: Callable[[str], int],
    ) -> None:
        self.client = client
        self.known = known
        self.status = status
        self.max_priority = max_priority


KindT = TypeVar("KindT", bound=ObjectKind)
ViewT = TypeVar("ViewT", bound=HasMetadata)


@dataclass(frozen=True)
class RequesterObject(ABC, Generic[KindT, ViewT]):
    """The part of :class:`kubeshare.scheduler.requesters.base.Requester` that all kinds share.

    Attributes:
        resource: the kind, for the API server.
        kind: all objects of the kind.
        raw: the object as it was read.
    """

    resource: ClassVar[Resource[Raw]]

    kind: KindT
    raw: Raw

    @property
    @abstractmethod
    def view(self) -> ViewT:
        """The object as a narrow struct."""

    @property
    def key(self) -> RequesterKey:
        """Its kind and name."""
        return RequesterKey(self.resource.kind, self.view.metadata.key)

    @property
    def uid(self) -> str:
        """The uid of the object and of its demand."""
        return self.view.metadata.uid

    @property
    def created(self) -> str:
        """Its creation time as RFC 3339."""
        return self.view.metadata.creation_timestamp or ""

    @property
    def reference(self) -> ObjectReference:
        """The object of its events."""
        return reference(self.resource, self.view)

    @property
    def controller(self) -> str:
        """The uid of its controlling owner; ``""`` if there is none."""
        controller = self.view.metadata.controller
        return controller.uid if controller else ""

    @property
    def deleting(self) -> bool:
        """It has a deletion timestamp."""
        return self.view.metadata.deletion_timestamp is not None

    @property
    def is_for_extender(self) -> bool:
        """Whether kube-scheduler and the extender place it, not this program."""
        return False

    @property
    def may_be_binding(self) -> bool:
        """Whether an extender may be binding it with a share that it does not name yet."""
        return False

    async def leave_to_extender(self) -> None:
        """Do nothing: it is placed here."""

    @property
    def pod_spec(self) -> Mapping[str, Any]:
        """Its PodSpec, as in the manifest."""
        spec: Mapping[str, Any] = self.raw["spec"]
        return spec

    def standing(self) -> Standing:
        """Its priority, its gang, and whether it may be preempted."""
        return standing_of(self.raw, self.kind.max_priority(self.view.metadata.namespace))

    async def refresh(self) -> Self | None:
        """Read it from the API server; None if it is gone, or its name is another object's."""
        metadata = self.view.metadata
        try:
            live = await self.kind.client.get(self.resource, metadata.name, metadata.namespace)
        except NotFoundError:
            self.kind.known.forget(self.raw)
            return None
        current = self._assume(live)
        return current if current.uid == self.uid else None

    async def patched(self, operations: Sequence[Mapping[str, Any]]) -> Self:
        """The object after a JSON patch."""
        metadata = self.view.metadata
        answer = await self.kind.client.json_patch(
            self.resource,
            metadata.name,
            operations,
            metadata.namespace,
            field_manager=MANAGER_SCHEDULER,
        )
        return self._assume(answer)

    def _assume(self, raw: Raw) -> Self:
        """The object as the API server has just answered it."""
        self.kind.known.assume(raw)
        return type(self)(self.kind, raw)
