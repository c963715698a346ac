"""What askers of all kinds have in common: each is an object that is read, patched and told."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
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
        """Its own."""
        ...


class ObjectKind:
    """All objects of one kind that may ask.

    Args:
        client: where they are.
        known: those that there are; told what is written.
        status: writes their condition.
    """

    def __init__(self, client: Client, known: AssumeCache[Raw], status: ScheduledCondition) -> None:
        self.client = client
        self.known = known
        self.status = status


KindT = TypeVar("KindT", bound=ObjectKind)
ViewT = TypeVar("ViewT", bound=HasMetadata)


@dataclass(frozen=True)
class RequesterObject(ABC, Generic[KindT, ViewT]):
    """One object as it was read: that part of an asker that is the same for all kinds.

    Attributes:
        resource: its kind, to the API server.
        kind: the others of its kind.
        raw: the object.
    """

    resource: ClassVar[Resource[Raw]]

    kind: KindT
    raw: Raw

    @property
    @abstractmethod
    def view(self) -> ViewT:
        """The narrow struct of it."""

    @property
    def key(self) -> RequesterKey:
        """Its kind and name."""
        return RequesterKey(self.resource.kind, self.view.metadata.key)

    @property
    def uid(self) -> str:
        """Of the object, and of its demand."""
        return self.view.metadata.uid

    @property
    def created(self) -> str:
        """When, as RFC 3339."""
        return self.view.metadata.creation_timestamp or ""

    @property
    def reference(self) -> ObjectReference:
        """What events about it name."""
        return reference(self.resource, self.view)

    @property
    def controller(self) -> str:
        """The uid of what made it; ``""`` where nothing did."""
        controller = self.view.metadata.controller
        return controller.uid if controller else ""

    @property
    def deleting(self) -> bool:
        """Somebody has deleted it."""
        return self.view.metadata.deletion_timestamp is not None

    @property
    def pod_spec(self) -> Mapping[str, Any]:
        """As the manifest has it."""
        spec: Mapping[str, Any] = self.raw["spec"]
        return spec

    def standing(self) -> Standing:
        """Its priority, its gang, and whether it may be preempted."""
        return standing_of(self.raw)

    async def refresh(self) -> Self | None:
        """Read it from the API server; None when it, or its name, is another's now."""
        metadata = self.view.metadata
        try:
            live = await self.kind.client.get(self.resource, metadata.name, metadata.namespace)
        except NotFoundError:
            self.kind.known.forget(metadata.key)
            return None
        now = self._known_as(live)
        return now if now.uid == self.uid else None

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
        return self._known_as(answer)

    def _known_as(self, raw: Raw) -> Self:
        """The object as the API server has just given it."""
        self.kind.known.assume(raw)
        return type(self)(self.kind, raw)
