"""The pool of vGPUs: read from the watch, changed by conditional patches only.

Sched and DevMgr both take and give back parts of GPUs, and never talk to each
other. What keeps them apart is the API server: every change names the state that
it was made from, and the sums of the holders are a rule of the CRD. A refusal is
no failure but news: the object is read again, and whoever decided decides again.
"""

from collections.abc import Callable, Iterator, Sequence
from operator import itemgetter
from typing import NamedTuple

from kubeshare.api import holders
from kubeshare.api.holder_codec import encode_demand
from kubeshare.api.holders import Operation
from kubeshare.api.state.assume_cache import AssumeCache
from kubeshare.api.types.v1 import VGPU, VGPUS, Holder
from kubeshare.core.decision import Decision
from kubeshare.core.demand import Demand
from kubeshare.core.ledger.device import Device
from kubeshare.kube.cache.reflector import Reflector
from kubeshare.kube.cache.store import Change as Event
from kubeshare.kube.client.client import Client
from kubeshare.kube.client.errors import (
    AlreadyExistsError,
    ConflictError,
    InvalidError,
    NotFoundError,
)
from kubeshare.kube.meta import Key

MAX_ATTEMPTS = 5
"""How often one change is tried on states that turn out to be old."""

Change = Callable[[VGPU], list[Operation] | None]
"""The operations that a state needs, or None when it needs none."""

_VGPUS = VGPUS.into(VGPU)
_BY_HOLDER = "held by"
_BY_NODE = "on node"


class StaleDecisionError(ConflictError):
    """A decision was made from a state that is no more: decide again."""


class Reservation(NamedTuple):
    """A decision to be recorded: who takes, what was decided, and which decision for it it is."""

    demand: Demand
    decision: Decision
    attempt: int


class VGPUStore:
    """All vGPUs.

    Args:
        client: where they are.
        reflector: watches them.
        manager: recorded as who changed them.
    """

    def __init__(self, client: Client, reflector: Reflector[VGPU], manager: str) -> None:
        self._client = client
        self._latest = AssumeCache(reflector)
        self._latest.add_index(_BY_HOLDER, _demands)
        self._latest.add_index(_BY_NODE, lambda vgpu: [vgpu.spec.node_name])
        self._manager = manager
        self._unsettled: set[str] = set()  # ids that were to be created, answer unknown

    def get(self, gpuid: str) -> VGPU | None:
        """The vGPU of that id, as last seen or last written by this program."""
        return self._latest.get(Key("", gpuid))

    def all(self) -> Iterator[VGPU]:
        """Every vGPU, in no order."""
        return self._latest.all()

    def held_by(self, demand: str) -> list[VGPU]:
        """The vGPUs of which a demand (uid) has a part, in the order of their ids."""
        held = self._latest.by_index(_BY_HOLDER, demand)
        return sorted(held, key=lambda vgpu: vgpu.metadata.name)

    def on_node(self, node: str) -> list[VGPU]:
        """The vGPUs of a node, in no order."""
        return self._latest.by_index(_BY_NODE, node)

    def subscribe(self, handler: Callable[[str], None]) -> None:
        """Tell ``handler`` the id of each vGPU that may have changed; it must not raise."""
        self._latest.subscribe(lambda key: handler(key.name))

    def superseded(self, change: Event[VGPU]) -> VGPU | None:
        """What this program has written, where a change that is being told is of a later state."""
        return self._latest.superseded(change)

    def expire(self) -> None:
        """Stop believing in vGPUs that this program made and no watch ever told of."""
        self._latest.expire()

    async def settle(self) -> None:
        """Find out about creations whose answer was lost, before the next decision.

        A vGPU that is there and not known counts its GPU as free, which would promise
        it to another vGPU as well.

        Raises:
            ApiError: it cannot be found out now.
        """
        for gpuid in tuple(self._unsettled):
            await self.refresh(gpuid)
            self._unsettled.discard(gpuid)

    async def refresh(self, gpuid: str) -> VGPU | None:
        """Read a vGPU from the API server; None when it is not there."""
        try:
            live = await self._client.get(_VGPUS, gpuid)
        except NotFoundError:
            self._latest.forget(Key("", gpuid))
            return None
        self._latest.assume(live)
        return live

    async def reserve(self, demand: Demand, decision: Decision, attempt: int) -> None:
        """Record a decision: make its new vGPUs, then add a holder to each, or to none.

        Args:
            demand: who takes.
            decision: bound, made from the present state.
            attempt: which decision for this demand it is.

        Raises:
            StaleDecisionError: the state has changed; nothing is held by it.
        """
        await self.reserve_all([Reservation(demand, decision, attempt)])

    async def reserve_all(self, parts: Sequence[Reservation]) -> None:
        """Record decisions that hold together or not at all.

        First all new vGPUs are made, then the holders are added in the order of the GPUs'
        ids, whosever they are.

        Args:
            parts: bound decisions, of which each was made from the state that those before
                it lead to.

        Raises:
            StaleDecisionError: the state has changed; nothing is held by any of them.
        """
        for part in parts:
            for device in part.decision.new:
                await self.create(device, "onDemand")
        places = [(gpuid, part) for part in parts for gpuid in part.decision.devices]
        taken: list[tuple[str, str]] = []
        written: dict[str, VGPU] = {}
        for gpuid, part in sorted(places, key=itemgetter(0)):
            try:
                written[gpuid] = await self._add(gpuid, part.demand, part.attempt)
            except StaleDecisionError:
                for earlier, demand in reversed(taken):
                    if earlier in written:
                        await self._roll_back(written, earlier, demand)
                raise
            taken.append((gpuid, part.demand.uid))

    async def release(self, gpuid: str, demand: str) -> VGPU | None:
        """Remove the holder of a demand, unless its pod has been bound to the node.

        Once the holder names a pod, containers may run, and only the node knows when
        they have stopped: then nothing is changed. It is tried once: whoever has changed
        the vGPU meanwhile may have told the asker of this very part, so whether it is
        wanted has to be looked at anew.

        Returns:
            the vGPU as it is now; None when it is gone.

        Raises:
            ConflictError: others have changed the vGPU; what is known of it is up to date.
        """
        vgpu = self.get(gpuid) or await self.refresh(gpuid)
        holder = holder_of(vgpu, demand) if vgpu else None
        if vgpu is None or holder is None or holder.pod_uid:
            return vgpu
        try:
            return await self._patch(vgpu, holders.remove(vgpu, demand))
        except ConflictError:
            await self.refresh(gpuid)
            raise
        except NotFoundError:
            return await self.refresh(gpuid)

    async def update(self, gpuid: str, operations: Change) -> VGPU | None:
        """Patch a vGPU's status; where the state was old, look again and patch again.

        Args:
            gpuid: which.
            operations: asked for each state until one is patched or needs nothing.

        Returns:
            the vGPU as it is now; None when it is gone.

        Raises:
            ConflictError: others changed it each time.
            ApiError: any other refusal.
        """
        vgpu = self.get(gpuid) or await self.refresh(gpuid)
        for _ in range(MAX_ATTEMPTS):
            wanted = vgpu and operations(vgpu)
            if not vgpu or not wanted:
                return vgpu
            try:
                return await self._patch(vgpu, wanted)
            except (ConflictError, NotFoundError):
                vgpu = await self.refresh(gpuid)
        raise ConflictError(f"vGPU {gpuid} changed {MAX_ATTEMPTS} times while it was being changed")

    async def create(self, device: Device, pool: str) -> None:
        """Make a vGPU that nobody holds a part of.

        Args:
            device: its id, node, model and memory.
            pool: ``reserved`` ahead of demand, ``onDemand`` for who takes a part of it at once.

        Raises:
            StaleDecisionError: there is one of that id.
            ApiError: any other refusal.
        """
        spec = {
            "nodeName": device.node,
            "pool": pool,
            "model": device.model,
            "memoryBytes": device.memory_bytes,
        }
        body = {"metadata": {"name": device.id}, "spec": spec}
        self._unsettled.add(device.id)
        try:
            made = await self._client.create(_VGPUS, body, field_manager=self._manager)
        except AlreadyExistsError as error:
            await self.settle()
            raise StaleDecisionError(str(error)) from error
        self._latest.assume(made)
        self._unsettled.discard(device.id)

    async def _roll_back(self, written: dict[str, VGPU], gpuid: str, demand: str) -> None:
        """Remove a holder from the very state that this program has written.

        In a later state it may be that of another leader, who has decided the same: then
        it stays, and whoever decides next looks whether the demand names it.
        """
        vgpu = written.pop(gpuid)
        holder = holder_of(vgpu, demand)
        if holder is None:
            return  # somebody else has given it back
        try:
            written[gpuid] = await self._patch(vgpu, holders.remove(vgpu, demand))
        except (ConflictError, NotFoundError):
            await self.refresh(gpuid)

    async def _add(self, gpuid: str, demand: Demand, attempt: int) -> VGPU:
        vgpu = self.get(gpuid)
        if vgpu is None:
            raise StaleDecisionError(f"vGPU {gpuid} is gone")
        holder = encode_demand(demand, vgpu.spec.memory_bytes, attempt)
        try:
            return await self._patch(vgpu, holders.add(vgpu, holder))
        except (ConflictError, InvalidError, NotFoundError) as error:
            await self.refresh(gpuid)
            raise StaleDecisionError(str(error)) from error

    async def _patch(self, vgpu: VGPU, operations: list[Operation]) -> VGPU:
        answer = await self._client.json_patch(
            _VGPUS,
            vgpu.metadata.name,
            operations,
            subresource="status",
            field_manager=self._manager,
        )
        self._latest.assume(answer)
        return answer


def holder_of(vgpu: VGPU, demand: str) -> Holder | None:
    """The part that a demand (uid) has of a vGPU, or None."""
    return next((holder for holder in vgpu.status.holders if holder.demand == demand), None)


def _demands(vgpu: VGPU) -> set[str]:
    return {holder.demand for holder in vgpu.status.holders}
