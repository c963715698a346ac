"""Who asks for a part of a GPU: what the scheduler knows of an object of any kind.

``controller`` decides about askers and knows no kind of them. A kind is one module
beside this one (``sharepods``, ``pods``) with two small classes:

* an :class:`Requester`: one object as it was read, with what it asks for, where it may go,
  and how it is told what was decided;
* a :class:`RequesterKind`, which finds them by name.

For another kind write these two, and add them in ``program``: to the kinds, with a watch
that queues an :class:`RequesterKey` for each of its objects. Whatever the kind, its demand's
uid is the object's own, and its holder has the object's namespace and name.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, Self

from kubeshare.api.predicates.eligibility import Eligible
from kubeshare.api.types.reasons import Reason
from kubeshare.api.types.v1 import VGPU, ExcludedNode
from kubeshare.api.vgpu_readiness import Blocker
from kubeshare.core.demand import Demand
from kubeshare.dialects.priority_and_gang import Standing
from kubeshare.kube.controller.controller import RequeueAfter
from kubeshare.kube.controller.events import ObjectReference
from kubeshare.kube.meta import Key


class RequesterKey(NamedTuple):
    """An object that asks, by its kind and its name: a SharePod's pod may be its namesake."""

    kind: str
    key: Key

    def __str__(self) -> str:
        return f"{self.kind} {self.key}"


class Requester(Protocol):
    """One object that asks for a part of a GPU, as it was read."""

    @property
    def key(self) -> RequesterKey:
        """Its kind and name."""
        ...

    @property
    def uid(self) -> str:
        """Of the object, and of its demand."""
        ...

    @property
    def created(self) -> str:
        """When, as RFC 3339: the oldest of those that wait is tried first."""
        ...

    @property
    def reference(self) -> ObjectReference:
        """What events about it name."""
        ...

    @property
    def finished(self) -> bool:
        """It is going, or has ended: nothing is decided about it any more."""
        ...

    @property
    def controller(self) -> str:
        """The uid of the object that made it and keeps it; ``""`` where there is none."""
        ...

    @property
    def deleting(self) -> bool:
        """Somebody has deleted it."""
        ...

    @property
    def decided(self) -> bool:
        """Its GPUs and its node are known, whoever has chosen them."""
        ...

    @property
    def gpuids(self) -> tuple[str, ...]:
        """The GPUs that it names, chosen by its author or by a decision."""
        ...

    @property
    def pod_spec(self) -> Mapping[str, Any]:
        """What its pod needs of a node besides the GPU."""
        ...

    @property
    def excluded(self) -> Sequence[ExcludedNode]:
        """Nodes that could not take its pod, and are not chosen for it for a while."""
        ...

    @property
    def not_ready(self) -> str:
        """What of somebody else's comes before a decision about it; ``""`` for nothing."""
        ...

    async def prepare(self) -> RequeueAfter | None:
        """Find out what has to be asked of the API server to know where its pod may go.

        Returns:
            when to ask again, where it is postponed for want of an answer.

        Raises:
            ApiError: that cannot be found out now.
        """
        ...

    def filter(self, where: Eligible) -> Eligible:
        """Of the nodes that take pods like its own those that have what else it needs."""
        ...

    def filter_for_gang(
        self, where: Eligible, others: Iterable[tuple[str, "Requester"]]
    ) -> Eligible:
        """Of the nodes to which it may go those with room for it and for others of its gang.

        Args:
            where: those to which it may go alone.
            others: those who are to be told with it, each with its node.
        """
        ...

    def demand(self) -> Demand | None:
        """What it asks for; None when that is nothing of a GPU.

        Raises:
            InvalidValueError: a value is not acceptable.
        """
        ...

    def standing(self) -> Standing:
        """Its priority, its gang, and whether it may be preempted.

        Raises:
            InvalidValueError: a value is not acceptable.
        """
        ...

    def blocker(self, vgpus: Sequence[VGPU]) -> Blocker | None:
        """Why it is not told yet that it has parts of these; None when it can be told."""
        ...

    async def refresh(self) -> Self | None:
        """Read it from the API server; None when it, or its name, is another's now."""
        ...

    async def bind(self, node: str, gpuids: Sequence[str]) -> Self:
        """Tell it a decision, unless it has changed since it was read.

        Args:
            node: the node of the GPUs.
            gpuids: the vGPUs of which it holds a part, sorted.

        Returns:
            it, as it is now.

        Raises:
            ConflictError: it has changed meanwhile.
            NotFoundError: it is gone.
            InvalidError: the API server does not take the decision; the message says why.
            ApiError: any other refusal.
        """
        ...

    async def confirm(self) -> None:
        """Have its condition say that there is a decision, whoever made it."""
        ...

    async def set_condition(self, reason: Reason, message: str) -> bool:
        """Have its condition say that there is none.

        Returns:
            Whether that was news, and written.
        """
        ...


class RequesterKind(Protocol):
    """All askers of a kind."""

    def get(self, key: Key) -> Requester | None:
        """The one of that name, as last seen or last written by this program, or None."""
        ...

    def in_gang(self, namespace: str, name: str) -> Iterable[Requester]:
        """Those that name a gang, in no order, whatever else they say of it."""
        ...
