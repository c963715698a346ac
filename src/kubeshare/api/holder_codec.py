"""Converts holders between the core's ledger and the VGPU object.

The only place that knows both forms: :class:`kubeshare.core.ledger.holder.Holder`, which
policies read, and :class:`kubeshare.api.types.v1.Holder`, an entry of ``VGPU.status.holders``.
"""

from collections.abc import Iterable
from typing import Final

from kubeshare.api.types import v1
from kubeshare.core.demand import Demand
from kubeshare.core.ledger.holder import Holder

_DECIDED: Final = (
    *("attempt", "request_micros", "limit_micros", "memory_bytes"),
    *("affinity", "anti_affinity", "exclusion"),
)
"""Fields of an entry that a decision sets; the others say whose it is."""


def encode(holder: Holder, *, attempt: int, gpus: int) -> v1.Holder:
    """The entry of ``status.holders`` for a holder of the ledger, before its pod is known.

    Args:
        holder: the amounts and labels.
        attempt: the number of the decision for this demand.
        gpus: how many GPUs the demand has a share of.
    """
    return v1.Holder(
        demand=holder.demand,
        attempt=attempt,
        namespace=holder.namespace,
        name=holder.name,
        request_micros=holder.request_micros,
        # The token daemon treats a limit of 0 as no limit.
        limit_micros=max(1, holder.limit_micros),
        memory_bytes=holder.memory_bytes,
        affinity=holder.affinity,
        anti_affinity=holder.anti_affinity,
        exclusion=holder.exclusion,
        parts=gpus,
    )


def decode(entry: v1.Holder) -> Holder:
    """The ledger's holder for an entry of ``status.holders``."""
    return Holder(
        demand=entry.demand,
        name=entry.name,
        request_micros=entry.request_micros,
        limit_micros=entry.limit_micros,
        memory_bytes=entry.memory_bytes,
        affinity=entry.affinity,
        anti_affinity=entry.anti_affinity,
        exclusion=entry.exclusion,
        namespace=entry.namespace,
    )


def decode_all(entries: Iterable[v1.Holder]) -> tuple[Holder, ...]:
    """The ledger's holders for ``status.holders``, sorted by demand as a ledger keeps them."""
    return tuple(decode(entry) for entry in sorted(entries, key=lambda entry: entry.demand))


def encode_demand(demand: Demand, gpu_memory_bytes: int, attempt: int) -> v1.Holder:
    """The entry of ``status.holders`` for a demand on a GPU of that much memory."""
    holder = Holder.of(demand, gpu_memory_bytes)
    return encode(holder, attempt=attempt, gpus=demand.count)


def is_stored(entry: v1.Holder, demand: Demand, gpu_memory_bytes: int) -> bool:
    """Whether an entry says what the next decision for a demand would store on this GPU.

    The amounts are compared as they are stored, so a request that follows the memory
    (``proportional``) is that of this GPU, and a demand whose limit or labels were edited
    after the reservation does not match.
    """
    wanted = encode_demand(demand, gpu_memory_bytes, demand.attempt + 1)
    return all(getattr(entry, field) == getattr(wanted, field) for field in _DECIDED)
