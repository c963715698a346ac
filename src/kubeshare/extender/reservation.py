"""Reserves shares of the GPUs of one node.

A share is recorded as a holder without the uid of a pod, so nothing runs with it. Its ``attempt``
is the version of the pod for which the Binding will be. The API server refuses a holder that a GPU
has no room for; then others were faster, and it is decided again.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from contextlib import nullcontext
from typing import Final, NamedTuple
from weakref import WeakValueDictionary

from kubeshare.api.holders import holder_of
from kubeshare.api.state.vgpu_store import StaleDecisionError, VGPUStore
from kubeshare.api.types.v1 import VGPU
from kubeshare.api.vgpu_readiness import blocker
from kubeshare.core.decision import Decision
from kubeshare.core.demand import Demand
from kubeshare.extender.placement import Placement
from kubeshare.kube.client.errors import ConflictError

MAX_ATTEMPTS: Final = 10
"""Decisions for one bind while others change the GPUs of the node."""


class BindError(Exception):
    """A pod cannot be bound; the text says why."""


class UnknownPodError(BindError):
    """There is no such pod."""


class AlreadyBoundError(BindError):
    """A pod is bound to a node already.

    Attributes:
        node: the name of the node.
    """

    def __init__(self, node: str) -> None:
        super().__init__(f"the pod is bound to node {node} already")
        self.node = node


class PodChangedError(Exception):
    """The pod has another version than the one that was to be bound."""


VoidBindings = Callable[[int, Collection[int]], Awaitable[int]]
"""See :func:`~kubeshare.api.state.pod_bindings.void_bindings`; the first argument is the version
that is to be bound, and :class:`PodChangedError` is raised if the pod has another one."""


class Reservation(NamedTuple):
    """The shares of a demand: their vGPUs, sorted by GPUID, and the version of the pod."""

    vgpus: list[VGPU]
    version: int


class Reservations:
    """Reserves shares.

    Args:
        pool: the vGPUs.
        placement: chooses the GPUs.
    """

    def __init__(self, pool: VGPUStore, placement: Placement) -> None:
        self._pool = pool
        self._placement = placement
        self._deciding: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def reserve(
        self, demand: Demand, node: str, version: int, void_bindings: VoidBindings
    ) -> Reservation:
        """Reserve the shares of a demand on the node.

        Decisions about one node are made one after the other, so the binds of one replica never
        refuse each other's writes; so are those about one namespace with a quota, which would
        else be exceeded.

        Args:
            demand: the demand.
            node: the name of the node.
            version: the version of the pod that the demand was read from.
            void_bindings: awaited before the shares of earlier binds are taken back.

        Raises:
            BindError: no GPU of the node fits, or others have changed them again and again.
            PodChangedError: the pod has another version.
        """
        namespace = demand.namespace
        has_quota = self._placement.has_quota(namespace)
        in_turn = self._lock(f"namespace {namespace}") if has_quota else nullcontext()
        async with self._lock(f"node {node}"), in_turn:
            for _ in range(MAX_ATTEMPTS):
                await self._pool.settle()
                try:
                    version = await self._take_back(demand.uid, version, void_bindings)
                    return Reservation(await self._reserve_once(demand, node, version), version)
                except ConflictError:  # a StaleDecisionError is one
                    continue
        raise BindError(f"others changed the GPUs of node {node} {MAX_ATTEMPTS} times")

    def _lock(self, about: str) -> asyncio.Lock:
        """The lock of decisions about a node, which is always taken first, or a namespace."""
        return self._deciding.setdefault(about, asyncio.Lock())

    async def _take_back(self, uid: str, version: int, void_bindings: VoidBindings) -> int:
        """Release what earlier binds have reserved; returns the version of the pod."""
        found = {vgpu.metadata.name: holder_of(vgpu, uid) for vgpu in self._pool.held_by(uid)}
        held = {name: holder for name, holder in found.items() if holder is not None}
        if held:
            version = await void_bindings(version, {each.attempt for each in held.values()})
        for name, holder in held.items():
            left = await self._pool.release(name, uid, holder.attempt)
            remaining = holder_of(left, uid) if left is not None else None
            if left is not None and remaining is not None:
                if not remaining.pod_uid:
                    raise ConflictError("another bind of the pod is under way")
                raise BindError(f"its share of {left.gpuid} on {left.spec.node_name} is in use")
        return version

    async def _reserve_once(self, demand: Demand, node: str, version: int) -> list[VGPU]:
        decision = self._placement.decide(demand, node)
        if decision.outcome != "bound" or decision.new:
            raise BindError(
                f"The node {node} can't place the pod {demand.name} "
                f"in ns {demand.namespace}: {self._placement.explain(demand, decision)}"
            )
        for vgpu in self._chosen(decision):
            blocked = blocker(vgpu, None)
            if blocked is not None:
                raise BindError(blocked.message)
        await self._pool.reserve(demand, decision, version)
        return sorted(self._chosen(decision), key=lambda vgpu: vgpu.gpuid)

    def _chosen(self, decision: Decision) -> list[VGPU]:
        """The vGPUs of a decision as they are now.

        Raises:
            StaleDecisionError: one of them has gone.
        """
        found = [vgpu for name in decision.devices if (vgpu := self._pool.get(name)) is not None]
        if len(found) < len(decision.devices):
            raise StaleDecisionError(f"one of the vGPUs {', '.join(decision.devices)} has gone")
        return found
