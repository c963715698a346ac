"""Let idle vGPUs go that their pool does not keep: the first, conditional step back.

``Deleting`` is written only to the very state in which nobody held a part, so a demand
that takes one at the same moment keeps it. What follows is ``dismantle``'s.
"""

from collections.abc import Callable

from kubeshare.api import holders
from kubeshare.api.state.ledger_builder import DELETING
from kubeshare.api.state.vgpu_store import VGPUStore
from kubeshare.api.types.v1 import VGPU


async def mark_deleting(
    pool: VGPUStore, gpuid: str, reported: Callable[[VGPU], None]
) -> VGPU | None:
    """Mark a vGPU as going, unless somebody holds a part of it.

    Args:
        pool: the vGPUs.
        gpuid: which.
        reported: called when it has been marked.

    Returns:
        the vGPU as it is then; None when it is gone.
    """
    before = pool.get(gpuid)
    going = await pool.update(gpuid, _to_deleting)
    was = before is not None and before.status.phase == DELETING
    if going is not None and going.status.phase == DELETING and not was:
        reported(going)
    return going


def _to_deleting(vgpu: VGPU) -> list[holders.Operation] | None:
    if vgpu.status.holders or vgpu.status.phase == DELETING:
        return None
    return holders.set_phase(vgpu, DELETING)
