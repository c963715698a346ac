"""The interface of requesters: objects that ask for shares of GPUs.

``controller`` schedules requesters and knows no kind of them. A kind is one module beside this
one (``sharepod``, ``pod``) with two small classes:

* a :class:`Requester`: one object as it was read, with its demand, the nodes it may run on, and
  the writes that bind it or set its condition;
* a :class:`RequesterKind`, which finds requesters by name.

For another kind write these two, and add them in ``program``: to the kinds, with a watch that
queues a :class:`RequesterKey` for each object. Whatever the kind, the uid of the demand is
the object's own, and its holder has the object's namespace and name.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, Self

from kubeshare.api.predicates.eligibility import Eligible
from kubeshare.api.predicates.node_resources import Mates
from kubeshare.api.types.reasons import Reason
from kubeshare.api.types.v1 import VGPU, ExcludedNode
from kubeshare.api.vgpu_readiness import Blocker
from kubeshare.core.demand import Demand
from kubeshare.dialects.priority_and_gang import Standing
from kubeshare.kube.controller.controller import RequeueAfter
from kubeshare.kube.controller.events import ObjectReference
from kubeshare.kube.meta import Key


class RequesterKey(NamedTuple):
    """The kind and the name of a requester: a SharePod's pod may have the SharePod's name."""

    kind: str
    key: Key

    def __str__(self) -> str:
        return f"{self.kind} {self.key}"


class Requester(Protocol):
    """One object that asks for shares of GPUs, as it was read."""

    @property
    def key(self) -> RequesterKey:
        """Its kind and name."""
        ...

    @property
    def uid(self) -> str:
        """The uid of the object and of its demand."""
        ...

    @property
    def created(self) -> str:
        """Its creation time as RFC 3339; the oldest unschedulable one is tried first."""
        ...

    @property
    def reference(self) -> ObjectReference:
        """The object of its events."""
        ...

    @property
    def finished(self) -> bool:
        """It is being deleted or has ended, so it is not scheduled any more."""
        ...

    @property
    def controller(self) -> str:
        """The uid of its controlling owner; ``""`` if there is none."""
        ...

    @property
    def deleting(self) -> bool:
        """It has a deletion timestamp."""
        ...

    @property
    def decided(self) -> bool:
        """Its GPUs and its node are written in it, by Sched or by its author."""
        ...

    def names(self, vgpu: VGPU) -> bool:
        """Whether it names a vGPU, chosen by Sched or by its author."""
        ...

    @property
    def is_for_extender(self) -> bool:
        """Whether kube-scheduler and the extender place it, not this program."""
        ...

    @property
    def may_be_binding(self) -> bool:
        """Whether an extender may be binding it with a share that it does not name yet."""
        ...

    async def leave_to_extender(self) -> None:
        """Remove what keeps kube-scheduler from placing it.

        Raises:
            ConflictError: it was changed.
            NotFoundError: it is gone.
            ApiError: any other refusal.
        """
        ...

    @property
    def pod_spec(self) -> Mapping[str, Any]:
        """Its PodSpec, as in the manifest."""
        ...

    @property
    def excluded(self) -> Sequence[ExcludedNode]:
        """Nodes that could not run its pod, and are excluded for a while."""
        ...

    @property
    def not_ready(self) -> str:
        """Why an external dependency (gate, unbound PVC) blocks scheduling; ``""`` if none."""
        ...

    async def prepare(self) -> RequeueAfter | None:
        """Read what is needed to know the nodes that it may run on.

        Returns:
            when to read again, if it is not ready or may run on more nodes then.

        Raises:
            ApiError: the API server does not answer.
        """
        ...

    def filter(self, eligible: Eligible) -> Eligible:
        """The eligible nodes that have the other resources and volumes that it needs."""
        ...

    def filter_beside(self, eligible: Eligible, mates: Mates) -> Eligible:
        """The eligible nodes that have room for it beside others that are placed with it.

        Args:
            eligible: the nodes that it may run on alone.
            mates: the pods of the others.
        """
        ...

    def place_beside(self, node: str, mates: Mates) -> None:
        """Count its pod, if it is one, among those that are placed together, on this node."""
        ...

    def demand(self) -> Demand | None:
        """Its demand; None if it asks for no GPU.

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
        """Why it cannot be bound to these vGPUs yet; None if it can."""
        ...

    async def refresh(self) -> Self | None:
        """Read it from the API server; None if it is gone, or its name is another object's."""
        ...

    async def bind(self, vgpus: Sequence[VGPU]) -> Self:
        """Write a decision into it, unless it was changed since it was read.

        Args:
            vgpus: the vGPUs of one node on which it holds shares, sorted by GPUID.

        Returns:
            the requester after the write.

        Raises:
            ConflictError: it was changed.
            NotFoundError: it is gone.
            InvalidError: the API server rejects the decision; the message says why.
            ApiError: any other refusal.
        """
        ...

    async def confirm(self) -> RequeueAfter | None:
        """Set its condition to scheduled, whoever made the decision.

        Returns:
            when to look again whether another program has set it.
        """
        ...

    def shows(self, reason: Reason) -> bool:
        """Whether its condition says for its present spec that it is not scheduled, and why."""
        ...

    async def set_condition(self, reason: Reason, message: str) -> bool:
        """Set its condition to not scheduled; whether the condition changed."""
        ...


class RequesterKind(Protocol):
    """All requesters of a kind."""

    def get(self, key: Key) -> Requester | None:
        """The requester of that name, as last seen or last written by this program."""
        ...

    def in_gang(self, namespace: str, name: str) -> Iterable[Requester]:
        """The requesters that name a gang, in no order, even if their labels disagree."""
        ...

    def waiting_in_gang(self, namespace: str, name: str) -> int:
        """How many of them wait to be bound; reads few of them."""
        ...
