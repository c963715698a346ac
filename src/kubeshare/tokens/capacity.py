"""Whether a grant fits beside those that are live: the node's own check of the record.

The API server refuses to over-commit a GPU already. Here it is checked again, by
the last one who could notice, from nothing but the grant files.
"""

from collections.abc import Callable, Collection

from kubeshare.core.units import MICROS, format_memory, format_share
from kubeshare.tokens.files.grants import Grant, GrantedShare


def shortfall(grant: Grant, live: Collection[Grant], name_of: Callable[[Grant], str]) -> str | None:
    """What is missing for a grant, with who holds how much; None when it fits.

    Args:
        grant: the one that asks.
        live: the grants that are active.
        name_of: a holder's name for people.
    """
    for gpu in grant.gpus:
        held = [(other, part) for other in live for part in other.gpus if part.uuid == gpu.uuid]
        missing = _missing(gpu, [part for _, part in held])
        if missing:
            holders = "; ".join(_describe(name_of(other), part) for other, part in held)
            return f"{gpu.uuid} {missing}; held by {holders or 'nobody'}"
    return None


def _missing(gpu: GrantedShare, held: list[GrantedShare]) -> str | None:
    compute_left = MICROS - sum(part.request_micros for part in held)
    if gpu.request_micros > compute_left:
        asked, left = format_share(gpu.request_micros), format_share(compute_left)
        return f"has {left} of its time left, {asked} is requested"
    total = min([gpu.memory_total_bytes, *(part.memory_total_bytes for part in held)])
    memory_left = total - sum(part.memory_bytes for part in held)
    if gpu.memory_bytes > memory_left:
        asked, left = format_memory(gpu.memory_bytes), format_memory(max(0, memory_left))
        return f"has {left} of its memory left, {asked} is asked"
    return None


def _describe(holder: str, part: GrantedShare) -> str:
    return f"{holder}: {format_share(part.request_micros)}, {format_memory(part.memory_bytes)}"
