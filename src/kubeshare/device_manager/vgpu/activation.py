"""Activates a vGPU once its physical GPU is known."""

from kubeshare.api import holders
from kubeshare.api.state.vgpu_store import VGPUStore
from kubeshare.api.types.constants import CONDITION_SHAREABLE
from kubeshare.api.types.v1 import VGPU
from kubeshare.device_manager.events import Events


async def activate(pool: VGPUStore, vgpu: VGPU, events: Events) -> None:
    """Move a vGPU from Creating to Active once the node agent has published its UUID.

    A vGPU without holders becomes Idle instead.
    """
    if _to_active(vgpu) is None:
        return
    active = await pool.update(vgpu.metadata.name, _to_active)
    if active is not None and active.status.phase != "Creating":
        events.activated(active)


def _to_active(vgpu: VGPU) -> list[holders.Operation] | None:
    if vgpu.status.phase != "Creating" or not vgpu.spec.uuid:
        return None
    phase = "Active" if vgpu.status.holders else "Idle"
    kept = [each for each in vgpu.status.conditions if each.type != CONDITION_SHAREABLE]
    if len(kept) == len(vgpu.status.conditions):
        return holders.set_phase(vgpu, phase)
    # A placeholder before the present one got a GPU of another model.
    write = {"op": "add", "path": "/status/phase", "value": phase}
    return [*holders.set_conditions(vgpu, kept), write]
