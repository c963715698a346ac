"""Whether a change of the ledger can let a pending demand fit.

A demand that fits nowhere still fits nowhere after a change that only takes room, so nobody
needs to decide about it again. Labels that are added do open a GPU: a demand with the affinity
label was limited to idle GPUs before.

The answer may be true for a change that helps nobody, and never false for one that helps.
"""

from collections import Counter

import msgspec

from kubeshare.core.ledger.device import Device, Node


def device_grew(before: Device | None, after: Device | None) -> bool:
    """Whether a change of a device can let a pending demand fit.

    Args:
        before: None if the device was added.
        after: None if it was removed: a label or a GPUID may be in use no longer.
    """
    if before is None or after is None:
        return before is not after
    if not before.is_same_gpu(after) or before.uuid != after.uuid:
        return True
    if (after.healthy and not before.healthy) or (before.fenced and not after.fenced):
        return True
    held, holding = set(before.holders), set(after.holders)
    if not held <= holding:
        return True
    # A GPU under an exclusion label may cost those of the label nothing more.
    return not after.affinities <= before.affinities or any(
        holder.exclusion for holder in holding - held
    )


def node_grew(before: Node | None, after: Node | None) -> bool:
    """Whether a change of a node can let a pending demand fit.

    Args:
        before: None if the node was added.
        after: None if it was removed: a demand may be infeasible now, or need not be any more.
    """
    if before is None or after is None:
        return before is not after
    if not Counter(after.free) <= Counter(before.free):
        return True
    if not set(after.selectable) <= set(before.selectable):
        return True
    return msgspec.structs.replace(before, free=after.free, selectable=after.selectable) != after
