"""Stores the vGPUs: read from the watch, changed by conditional patches only.

Sched and the device manager both reserve and release shares, and never talk to each other. The
API server keeps their writes consistent: every patch tests the state that it was made from, and
a rule of the CRD bounds the sums of the holders. A refused patch is no failure: the object is
read again, and the decision is made again.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

from kubeshare.api import holders
from kubeshare.api.holder_codec import encode_share
from kubeshare.api.holders import Identities, Operation, holder_of
from kubeshare.api.state.assume_cache import AssumeCache
from kubeshare.api.state.namespace_usage import NamespaceUsage, Usage
from kubeshare.api.types.constants import POOL_STATIC
from kubeshare.api.types.v1 import VGPU, VGPUS, Holder
from kubeshare.core.decision import Decision
from kubeshare.core.demand import Demand
from kubeshare.core.gpuid import object_name
from kubeshare.core.ledger.device import Device
from kubeshare.kube.cache.reflector import Reflector
from kubeshare.kube.cache.store import Change as Event
from kubeshare.kube.client.client import Client
from kubeshare.kube.client.errors import (
    AlreadyExistsError,
    ApiError,
    ConflictError,
    InvalidError,
    NotFoundError,
)
from kubeshare.kube.meta import Key

MAX_ATTEMPTS = 5
"""Attempts of one update while the vGPU keeps changing."""

Change = Callable[[VGPU], list[Operation] | None]
"""Returns the patch for a vGPU in some state, or None if it needs none."""

_VGPUS = VGPUS.into(VGPU)
_BY_HOLDER = "held by"
_BY_NODE = "on node"
_BY_UUID = "by UUID"
_BY_IDENTITY = "node and GPUID"


class StaleDecisionError(ConflictError):
    """A decision was made from an old state: decide again."""


class Reservation(NamedTuple):
    """A decision to store: the demand, the decision, and its number for this demand."""

    demand: Demand
    decision: Decision
    attempt: int


class UsageCheck(Protocol):
    """Says whether a namespace has exceeded a quota with the shares of a demand."""

    def applies(self, demand: Demand) -> bool:
        """Whether any quota limits the demand, so that the usage has to be looked at."""
        ...

    def exceeded(self, demand: Demand, vgpus: Sequence[VGPU], usage: Usage) -> str:
        """The quota that is exceeded; ``""`` for none.

        Args:
            demand: the demand.
            vgpus: the vGPUs that it has shares of now.
            usage: what its namespace holds, the demand included.
        """
        ...


class VGPUStore:
    """All vGPUs.

    Args:
        client: reads and patches them.
        reflector: watches them.
        manager: the field manager of the patches.
        check: what the quotas of namespaces allow; None for everything.
    """

    def __init__(
        self,
        client: Client,
        reflector: Reflector[VGPU],
        manager: str,
        check: UsageCheck | None = None,
    ) -> None:
        self._client = client
        self._check = check
        self._usage = NamespaceUsage(client, reflector)
        self._latest = AssumeCache(reflector)
        self._latest.add_index(
            _BY_HOLDER, lambda vgpu: {each.demand for each in vgpu.status.holders}
        )
        self._latest.add_index(_BY_NODE, lambda vgpu: [vgpu.spec.node_name])
        self._latest.add_index(_BY_UUID, _uuids)
        self._latest.add_index(
            _BY_IDENTITY, lambda vgpu: [_identity(vgpu.spec.node_name, vgpu.gpuid)]
        )
        self._manager = manager
        self._unsettled: set[str] = set()  # names that were to be created, answer unknown

    def get(self, name: str) -> VGPU | None:
        """The vGPU of that name, as last seen or last written by this program."""
        return self._latest.get(Key("", name))

    def find(self, node: str, gpuid: str, demand: str = "") -> VGPU | None:
        """The vGPU of a node with a GPUID, or None.

        Two programs may have created one each, in a race with the deletion of a namesake on
        another node. Then it is the one on which ``demand`` (uid) holds a share, else the one
        whose name is the GPUID: the other takes no holders.
        """
        found = self._latest.by_index(_BY_IDENTITY, _identity(node, gpuid))
        return min(
            found,
            key=lambda each: (holder_of(each, demand) is None, each.metadata.name != gpuid),
            default=None,
        )

    def named(self, node: str, gpuids: Iterable[str], demand: str = "") -> list[VGPU]:
        """The vGPUs of a node with these GPUIDs that exist, in that order; see :meth:`find`."""
        found = (self.find(node, gpuid, demand) for gpuid in gpuids)
        return [vgpu for vgpu in found if vgpu is not None]

    async def refresh_identity(self, node: str, gpuid: str, demand: str = "") -> VGPU | None:
        """Read the vGPU of a node with a GPUID from the API server; None if it does not exist.

        Raises:
            ApiError: the API server does not answer.
        """
        for _ in range(2):
            known = self.find(node, gpuid, demand)
            name = known.metadata.name if known else object_name(node, gpuid, _Names(self))
            live = await self.refresh(name)
            if live is None or _is(live, node, gpuid):
                break
            # Its name is another vGPU's, which was not known: then it has the other name.
        return self.find(node, gpuid, demand)

    def all(self) -> Iterator[VGPU]:
        """Every vGPU, in no order."""
        return self._latest.all()

    def held_by(self, demand: str) -> list[VGPU]:
        """The vGPUs on which a demand (uid) holds a share, sorted by name."""
        held = self._latest.by_index(_BY_HOLDER, demand)
        return sorted(held, key=lambda vgpu: vgpu.metadata.name)

    def on_node(self, node: str) -> list[VGPU]:
        """The vGPUs of a node, in no order."""
        return self._latest.by_index(_BY_NODE, node)

    def with_uuid(self, uuid: str) -> list[VGPU]:
        """The vGPUs of a physical GPU: at most one, in no order while there are more."""
        return self._latest.by_index(_BY_UUID, uuid)

    def subscribe(self, handler: Callable[[str], None]) -> None:
        """Call ``handler`` with the name of each vGPU that may have changed; it must not raise."""
        self._latest.subscribe(lambda key: handler(key.name))

    def superseded(self, change: Event[VGPU]) -> VGPU | None:
        """This program's write that the change being delivered has replaced, or None."""
        return self._latest.superseded(change)

    def expire(self) -> None:
        """Forget vGPUs that were created and deleted while the watch was disconnected."""
        self._latest.expire()

    async def settle(self) -> None:
        """Read vGPUs whose creation got no response, before the next decision.

        The GPU of a vGPU that exists and is not known counts as free, so it would be used for
        another vGPU as well.

        Raises:
            ApiError: the API server does not answer.
        """
        for name in tuple(self._unsettled):
            await self.refresh(name)
            self._unsettled.discard(name)

    async def refresh(self, name: str) -> VGPU | None:
        """Read a vGPU from the API server; None if it does not exist."""
        known = self.get(name)
        try:
            live = await self._client.get(_VGPUS, name)
        except NotFoundError:
            if known is not None:
                self._latest.forget(known)
            return None
        self._latest.assume(live)
        return live

    async def refresh_node(self, node: str) -> list[VGPU]:
        """Read the vGPUs of a node from the API server."""
        listing = await self._client.list(_VGPUS, fields=f"spec.nodeName={node}")
        for vgpu in listing.items:
            self._latest.assume(vgpu)
        return listing.items

    async def reserve(self, demand: Demand, decision: Decision, attempt: int) -> None:
        """Store a decision: create its new vGPUs, then add a holder to each, or to none.

        Args:
            demand: the demand.
            decision: a bound decision, made from the present state.
            attempt: the number of the decision for this demand.

        Raises:
            StaleDecisionError: the state has changed; the demand holds nothing.
        """
        await self.reserve_all([Reservation(demand, decision, attempt)])

    async def reserve_all(self, reservations: Sequence[Reservation]) -> None:
        """Store decisions, all or none.

        First all new vGPUs are created, then the holders are added: in one write for each vGPU,
        in the order of their names.

        Args:
            reservations: bound decisions, each made from the state after those before it.

        Raises:
            StaleDecisionError: the state has changed, or others have used a quota of the namespace
                at the same moment; none of the demands holds anything.
        """
        holders_to_add: dict[str, list[tuple[str, Reservation]]] = defaultdict(list)
        for reservation in reservations:
            for share, name in reservation.decision.placements():
                holders_to_add[name].append((share, reservation))
        beside = {name: holders.identities(self.get(name)) for name in holders_to_add}
        for reservation in reservations:
            for device in reservation.decision.new:
                await self.create(device, "onDemand")
        written: dict[str, VGPU] = {}
        for name, shares in sorted(holders_to_add.items()):
            try:
                written[name] = await self._add(name, shares, beside[name])
            except StaleDecisionError:
                await self._roll_back_all(written.values(), reservations)
                raise
        if exceeded := await self._exceeded_quota(reservations, written.values()):
            await self._roll_back_all(written.values(), reservations)
            raise StaleDecisionError(f"others have used a quota meanwhile: {exceeded}")

    async def _exceeded_quota(
        self, reservations: Sequence[Reservation], written: Collection[VGPU]
    ) -> str:
        """Which quota is exceeded with what has been written; ``""`` for none."""
        if self._check is None or not written:
            return ""
        last = max(written, key=lambda vgpu: int(vgpu.metadata.resource_version))
        usages: dict[str, Usage] = {}
        for demand in {each.demand.uid: each.demand for each in reservations}.values():
            if self._check.applies(demand):
                usage = usages.get(demand.namespace)
                if usage is None:
                    usage = await self._usage.after(last, demand.namespace)
                    usages[demand.namespace] = usage
                held = [vgpu for vgpu in written if holder_of(vgpu, demand.uid)]
                if exceeded := self._check.exceeded(demand, held, usage):
                    return exceeded
        return ""

    async def release(self, name: str, demand: str, attempt: int | None = None) -> VGPU | None:
        """Remove the holder of a demand; see :meth:`release_all`."""
        return await self.release_all(name, {demand: attempt})

    async def release_all(self, name: str, demands: Mapping[str, int | None]) -> VGPU | None:
        """Remove the holders of demands that name no pod, in one write.

        Once a holder names a pod, containers may run, and only the node knows when they have
        stopped: then it stays. It is tried once: another program that changed the vGPU may have
        bound a requester to this very share, so the caller has to check again whether the share
        is wanted.

        Args:
            name: the vGPU.
            demands: uid of each demand -> the number of the decision, of which alone the holder is
                removed; None for any.

        Returns:
            the vGPU as it is now; None if it is gone.

        Raises:
            ConflictError: others changed the vGPU; it has been read again.
        """
        vgpu = self.get(name) or await self.refresh(name)
        unused = [each for each in demands if vgpu and _is_unused(vgpu, each, demands[each])]
        if vgpu is None or not unused:
            return vgpu
        try:
            return await self._patch(vgpu, holders.remove(vgpu, *unused))
        except ConflictError:
            await self.refresh(name)
            raise
        except NotFoundError:
            return await self.refresh(name)

    async def update(self, name: str, operations: Change) -> VGPU | None:
        """Patch a vGPU's status; if the state was old, read it and patch again.

        Args:
            name: the vGPU.
            operations: called with each state until one is patched or needs no patch.

        Returns:
            the vGPU as it is now; None if it is gone.

        Raises:
            ConflictError: others changed the vGPU each time.
            ApiError: any other refusal.
        """
        vgpu = self.get(name) or await self.refresh(name)
        for _ in range(MAX_ATTEMPTS):
            wanted = vgpu and operations(vgpu)
            if not vgpu or not wanted:
                return vgpu
            try:
                return await self._patch(vgpu, wanted)
            except (ConflictError, NotFoundError):
                vgpu = await self.refresh(name)
        raise ConflictError(f"vGPU {name} changed {MAX_ATTEMPTS} times while it was being changed")

    async def make_static(self, vgpu: VGPU) -> VGPU:
        """Turn a vGPU into one that needs no placeholder; it keeps its name and its holders.

        Raises:
            ConflictError: the vGPU has changed; it has been read again.
        """
        return await self._change_spec(vgpu, {"pool": POOL_STATIC})

    async def make_shared(self, vgpu: VGPU, selected_uuid: str) -> VGPU:
        """Turn a static vGPU that has a placeholder into one that needs it.

        Args:
            vgpu: the vGPU; it keeps its name and its holders.
            selected_uuid: its GPU where a claim selects it, ``""`` where a device plugin offers it.

        Raises:
            ConflictError: the vGPU has changed; it has been read again.
        """
        return await self._change_spec(vgpu, {"pool": "onDemand", "selectedUuid": selected_uuid})

    async def _change_spec(self, vgpu: VGPU, fields: Mapping[str, str]) -> VGPU:
        version = vgpu.metadata.resource_version
        operations = [
            {"op": "test", "path": "/metadata/resourceVersion", "value": version},
            *({"op": "add", "path": f"/spec/{key}", "value": fields[key]} for key in fields),
        ]
        name = vgpu.metadata.name
        try:
            answer = await self._client.json_patch(
                _VGPUS, name, operations, field_manager=self._manager
            )
        except ConflictError:
            await self.refresh(name)
            raise
        self._latest.assume(answer)
        return answer

    async def create(self, device: Device, pool: str, uuid: str = "", physical: int = 0) -> None:
        """Create a vGPU without holders.

        Args:
            device: its name, GPUID, node, model and memory.
            pool: ``reserved`` ahead of demand, ``onDemand`` for a demand that gets a share at
                once, ``static`` on an owned node.
            uuid: the physical GPU; ``""`` if its placeholder will get one: the GPU of the device,
                if it has one, else any that is free.
            physical: bytes of memory that this GPU has, where more may be given out.

        Raises:
            StaleDecisionError: there is a vGPU of that name.
            ApiError: any other refusal.
        """
        spec: dict[str, str | int] = {
            "nodeName": device.node,
            "gpuid": device.name,
            "pool": pool,
            "model": device.model,
            "memoryBytes": device.memory_bytes,
        }
        if physical:
            spec["physicalMemoryBytes"] = physical
        if uuid:
            spec["uuid"] = uuid
        elif device.uuid:
            spec["selectedUuid"] = device.uuid
        else:
            spec["expectedMemoryBytes"] = device.memory_bytes
        body = {"metadata": {"name": device.id}, "spec": spec}
        self._unsettled.add(device.id)
        try:
            made = await self._client.create(_VGPUS, body, field_manager=self._manager)
        except ApiError as error:
            # Another task may have settled it too early.
            self._unsettled.add(device.id)
            if not isinstance(error, AlreadyExistsError):
                raise
            await self.settle()
            raise StaleDecisionError(str(error)) from error
        self._latest.assume(made)
        self._unsettled.discard(device.id)

    async def _roll_back_all(
        self, written: Iterable[VGPU], reservations: Iterable[Reservation]
    ) -> None:
        demands = {each.demand.uid for each in reservations}
        for vgpu in reversed([*written]):
            await self._roll_back(vgpu, demands)

    async def _roll_back(self, vgpu: VGPU, demands: Collection[str]) -> None:
        """Remove the holders of demands from the very state that this program has written.

        In a later state they may be the holders of another leader with the same decisions: then
        they stay, and the next reconciliation checks whether the requesters name them.
        """
        present = {each.demand for each in vgpu.status.holders if each.demand in demands}
        if not present:
            return  # another program has removed them
        try:
            await self._patch(vgpu, holders.remove(vgpu, *present))
        except (ConflictError, NotFoundError):
            await self.refresh(vgpu.metadata.name)

    async def _add(
        self, name: str, shares: Sequence[tuple[str, Reservation]], beside: Identities
    ) -> VGPU:
        """Add the holders of shares, which are given by their names, to one vGPU."""
        vgpu = self.get(name)
        if vgpu is None:
            raise StaleDecisionError(f"vGPU {name} is gone")
        if not holders.identities(vgpu) <= beside:
            raise StaleDecisionError(f"vGPU {name} has other holders meanwhile")
        memory = vgpu.spec.memory_bytes
        added = [_holder(each, share, memory) for share, each in shares]
        try:
            return await self._patch(vgpu, holders.add(vgpu, *added))
        except (ConflictError, InvalidError, NotFoundError) as error:
            await self.refresh(name)
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


class _Names:
    """The names of the vGPUs of a store."""

    def __init__(self, store: VGPUStore) -> None:
        self._store = store

    def __contains__(self, name: object) -> bool:
        return self._store.get(str(name)) is not None


def _holder(reservation: Reservation, share_name: str, memory_bytes: int) -> Holder:
    """The holder of a share on a vGPU with so much memory."""
    share = reservation.demand.named(share_name)
    assert share is not None, "a decision places the shares of its demand"
    return encode_share(reservation.demand, share, memory_bytes, reservation.attempt)


def _identity(node: str, gpuid: str) -> str:
    # The name of a node contains no slash.
    return f"{node}/{gpuid}"


def _is(vgpu: VGPU, node: str, gpuid: str) -> bool:
    return (vgpu.spec.node_name, vgpu.gpuid) == (node, gpuid)


def _is_unused(vgpu: VGPU, demand: str, attempt: int | None) -> bool:
    """Whether a demand has a holder there, of this decision, that names no pod."""
    holder = holder_of(vgpu, demand)
    if holder is None or holder.pod_uid:
        return False
    return attempt is None or holder.attempt == attempt


def _uuids(vgpu: VGPU) -> list[str]:
    return [vgpu.spec.uuid] if vgpu.spec.uuid else []
