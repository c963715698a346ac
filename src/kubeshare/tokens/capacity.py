"""Checks that a grant fits on its GPUs beside the live grants.

The API server already refuses to over-commit a GPU. This second check is the last one
before a GPU is used, and needs nothing but the grant files.
"""

from collections.abc import Callable, Collection

from kubeshare.core.units import MICROS, format_memory, format_share
from kubeshare.tokens.files.grants import Grant, GrantedShare, share_holder


def shortfall(grant: Grant, live: Collection[Grant], name_of: Callable[[Grant], str]) -> str | None:
    """What is missing for a grant beside the `live` ones, and who holds how much; None if it fits.

    `name_of` returns a holder's name for people.
    """
    for gpu in grant.gpus:
        held = [(other, share) for other in live for share in other.gpus if share.uuid == gpu.uuid]
        missing = _missing(gpu, [share for _, share in held])
        if missing:
            holders = "; ".join(_describe(name_of(other), share) for other, share in held)
            return f"{gpu.uuid} {missing}; held by {holders or 'no claim'}"
    return None


def exceeds(grant: Grant, before: Grant) -> bool:
    """Whether a grant asks for more than `before`, which has the same GPUs in the same order."""
    return any(
        after.request_micros > gpu.request_micros or after.memory_bytes > gpu.memory_bytes
        for after, gpu in zip(grant.gpus, before.gpus, strict=True)
    )


def _missing(gpu: GrantedShare, held: list[GrantedShare]) -> str | None:
    compute_left = MICROS - sum(share.request_micros for share in held)
    if gpu.request_micros > compute_left:
        asked, left = format_share(gpu.request_micros), format_share(max(0, compute_left))
        return f"has {left} of its time left, {asked} is requested"
    total = min([gpu.memory_total_bytes, *(share.memory_total_bytes for share in held)])
    memory_left = total - sum(share.memory_bytes for share in held)
    if gpu.memory_bytes > memory_left:
        asked, left = format_memory(gpu.memory_bytes), format_memory(max(0, memory_left))
        return f"has {left} of its memory left, {asked} is asked"
    return None


def _describe(holder: str, share: GrantedShare) -> str:
    name = share_holder(holder, share.share)
    return f"{name}: {format_share(share.request_micros)}, {format_memory(share.memory_bytes)}"
