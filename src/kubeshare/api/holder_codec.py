"""Converts holders between the core's ledger and the VGPU object.

The only place that knows both forms: :class:`kubeshare.core.ledger.holder.Holder`, which
policies read, and :class:`kubeshare.api.types.v1.Holder`, an entry of ``VGPU.status.holders``.
"""

from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from kubeshare.api.types import v1
from kubeshare.core.demand import Demand, Share
from kubeshare.core.ledger.holder import HOLDER_KEY, Holder
from kubeshare.dialects.write_back import PlacedGpu

_DECIDED: Final = (
    *("attempt", "request_micros", "limit_micros", "limit_alone_micros", "memory_bytes"),
    *("latency_sensitive", "affinity", "anti_affinity", "exclusion"),
)
"""Fields of an entry that a decision sets; the others say whose it is."""


def encode(holder: Holder, *, attempt: int, holders: int) -> v1.Holder:
    """The entry of ``status.holders`` for a holder of the ledger, before its pod is known.

    Args:
        holder: the amounts and labels.
        attempt: the number of the decision for this demand.
        holders: how many holders the demand becomes, on all GPUs.
    """
    return v1.Holder(
        demand=holder.demand,
        attempt=attempt,
        namespace=holder.namespace,
        name=holder.name,
        share=holder.share,
        request_micros=holder.request_micros,
        # The token daemon treats a limit of 0 as no limit.
        limit_micros=max(1, holder.limit_micros),
        # 0 is the limit, as in objects that were written before the field existed.
        limit_alone_micros=_beyond(holder),
        latency_sensitive=holder.latency_sensitive,
        memory_bytes=holder.memory_bytes,
        affinity=holder.affinity,
        anti_affinity=holder.anti_affinity,
        exclusion=holder.exclusion,
        parts=holders,
        group=holder.group,
    )


def _beyond(one: Holder | Share) -> int:
    """The limit while alone, 0 if it is the limit itself."""
    alone = one.limit_alone_micros
    return 0 if alone in (None, one.limit_micros) else alone


def decode(entry: v1.Holder) -> Holder:
    """The ledger's holder for an entry of ``status.holders``."""
    return Holder(
        demand=entry.demand,
        name=entry.name,
        share=entry.share,
        request_micros=entry.request_micros,
        limit_micros=entry.limit_micros,
        limit_alone_micros=entry.limit_alone_micros or None,
        latency_sensitive=entry.latency_sensitive,
        memory_bytes=entry.memory_bytes,
        affinity=entry.affinity,
        anti_affinity=entry.anti_affinity,
        exclusion=entry.exclusion,
        namespace=entry.namespace,
        group=entry.group,
    )


def decode_all(entries: Iterable[v1.Holder]) -> tuple[Holder, ...]:
    """The ledger's holders for ``status.holders``, sorted as a ledger keeps them."""
    return tuple(sorted(map(decode, entries), key=HOLDER_KEY))


def encode_share(demand: Demand, share: Share, gpu_memory_bytes: int, attempt: int) -> v1.Holder:
    """The entry of ``status.holders`` for a share of a demand on a GPU of that much memory."""
    holder = Holder.of_share(demand, share, gpu_memory_bytes)
    return encode(holder, attempt=attempt, holders=len(demand.per_gpu()))


def is_stored(entry: v1.Holder, demand: Demand, gpu_memory_bytes: int) -> bool:
    """Whether an entry says what the next decision for a demand would store on this GPU.

    The amounts are compared as they are stored, so a request that follows the memory
    (``proportional``) is that of this GPU, and a demand whose limit or labels were edited
    after the reservation does not match.
    """
    share = demand.named(entry.share)
    if share is None:
        return False
    wanted = encode_share(demand, share, gpu_memory_bytes, demand.attempt + 1)
    return all(getattr(entry, field) == getattr(wanted, field) for field in _DECIDED)


def are_shares_of(vgpus: Iterable[v1.VGPU], demand: Demand) -> bool:
    """Whether the holders of a demand on these vGPUs are its shares, each of them once.

    The number of the decision that stored them is of no importance. Amounts that depend on the
    GPU's memory may be those of the GPU that was expected: the real one may have more.
    """
    held = [
        (vgpu, entry)
        for vgpu in vgpus
        for entry in vgpu.status.holders
        if entry.demand == demand.uid
    ]
    wanted = sorted(share.name for share in demand.per_gpu())
    return sorted(entry.share for _, entry in held) == wanted and all(
        any(
            is_stored(entry, msgspec.structs.replace(demand, attempt=entry.attempt - 1), memory)
            for memory in (vgpu.spec.memory_bytes, vgpu.spec.expected_memory_bytes)
            if memory
        )
        for vgpu, entry in held
    )


def are_understood(vgpus: Iterable[v1.VGPU], demand: Demand) -> bool:
    """Whether the holders of a demand have what a scheduler of an earlier version drops.

    That is the names of its shares and their limits while alone. Amounts are not compared: those of
    a fraction are stored for the GPU that was expected, and the real one may have more memory.
    """
    held = sorted(
        (entry.share, entry.limit_alone_micros)
        for vgpu in vgpus
        for entry in vgpu.status.holders
        if entry.demand == demand.uid
    )
    return held == sorted((share.name, _beyond(share)) for share in demand.per_gpu())


def placed_gpus(
    vgpus: Iterable[v1.VGPU], demand: str, device_of: Callable[[v1.VGPU], v1.GPUDevice | None]
) -> list[PlacedGpu]:
    """The GPUs of a demand, one for each of its shares, as annotations describe them.

    Args:
        vgpus: those on which it holds shares.
        demand: its uid.
        device_of: the GPU of a vGPU on its node; None if it is unknown.
    """
    return [
        PlacedGpu(
            uuid=vgpu.spec.uuid,
            model=vgpu.spec.model,
            memory_bytes=entry.memory_bytes,
            index=None if device is None else device.index,
            minor=None if device is None else device.minor,
            total_bytes=vgpu.spec.memory_bytes,
            share=entry.share,
        )
        for vgpu in vgpus
        for device in (device_of(vgpu),)
        for entry in vgpu.status.holders
        if entry.demand == demand
    ]
