"""Take and give back a part of a GPU: the only way ``VGPU.status.holders`` is changed.

Each function returns the operations of one JSON patch on the VGPU's ``status``
subresource. Each begins with a ``test``, of ``resourceVersion`` or of all that it was
decided from, so a patch made from an older read changes nothing and comes back as a
conflict. Server-side apply and merge patch are never used here: both were seen to lose a holder
without a word. That the sums still fit is checked by the API server itself, by
the rules of the CRD.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from kubeshare.api.types.v1 import VGPU, Holder, Summary
from kubeshare.core.units import format_memory, format_share
from kubeshare.kube.conditions import to_raw
from kubeshare.kube.meta import Condition

Operation = dict[str, Any]


class HolderMissingError(Exception):
    """The vGPU has no such holder (any more): read it again before you act."""


def _guard(vgpu: VGPU) -> Operation:
    return _test("/metadata/resourceVersion", vgpu.metadata.resource_version)


def _shared_as_it_was(vgpu: VGPU) -> list[Operation]:
    """Tests that hold as long as the same holders, and no others, have the same parts.

    All that a decision to share a GPU looks at, and no more: that a pod was named or the GPU
    found meanwhile is no reason to decide again. One that is being given back takes nobody, by
    a rule of the CRD.
    """
    status = vgpu.status
    if status.summary != _summary(status.holders):
        # Not written here: what it says, or whether it is there, is not known.
        return [_guard(vgpu)]
    sums = _test("/status/summary", msgspec.to_builtins(status.summary))
    demands = enumerate(holder.demand for holder in status.holders)
    return [sums, *(_test(f"/status/holders/{index}/demand", each) for index, each in demands)]


def _test(path: str, value: object) -> Operation:
    return {"op": "test", "path": path, "value": value}


def _index(vgpu: VGPU, demand: str) -> int:
    for index, holder in enumerate(vgpu.status.holders):
        if holder.demand == demand:
            return index
    raise HolderMissingError(f"vGPU {vgpu.metadata.name} has no holder {demand}")


def _summary(holders: Sequence[Holder]) -> Summary:
    return Summary(
        holders=len(holders),
        requested=format_share(sum(holder.request_micros for holder in holders)),
        memory=format_memory(sum(holder.memory_bytes for holder in holders)),
    )


def _summarise(holders: Sequence[Holder]) -> Operation:
    """The summary belongs to the same patch, so it is never that of other holders."""
    value = msgspec.to_builtins(_summary(holders))
    return {"op": "add", "path": "/status/summary", "value": value}


def add(vgpu: VGPU, holder: Holder) -> list[Operation]:
    """Take a part of the GPU: operations that append ``holder``."""
    holders = (*vgpu.status.holders, holder)
    if vgpu.status.holders:
        entry = {"op": "add", "path": "/status/holders/-", "value": msgspec.to_builtins(holder)}
        return [*_shared_as_it_was(vgpu), entry, _summarise(holders)]
    # An empty list may be absent from the stored object, and so may `status`:
    # "add" of a member creates or replaces it, "add" below an absent one fails.
    phase = "Active" if vgpu.status.phase == "Idle" else vgpu.status.phase
    status = msgspec.structs.replace(
        vgpu.status, phase=phase, holders=holders, summary=_summary(holders)
    )
    value = msgspec.to_builtins(status)
    return [_guard(vgpu), {"op": "add", "path": "/status", "value": value}]


def remove(vgpu: VGPU, demand: str) -> list[Operation]:
    """Give a part back: operations that remove the holder of ``demand``.

    Raises:
        HolderMissingError: it is not there; nothing has to be done.
    """
    index = _index(vgpu, demand)
    others = vgpu.status.holders[:index] + vgpu.status.holders[index + 1 :]
    entry = {"op": "remove", "path": f"/status/holders/{index}"}
    operations = [_guard(vgpu), entry, _summarise(others)]
    if not others and vgpu.status.phase == "Active":
        operations.append({"op": "add", "path": "/status/phase", "value": "Idle"})
    return operations


def set_pod_uid(vgpu: VGPU, demand: str, pod_uid: str) -> list[Operation]:
    """Say which pod the part is for: operations that set ``podUid`` of the holder.

    Where Sched made the holder, they do not mind what becomes of the others: the patch holds as
    long as this very holder stands where it stood and names no pod, so the parts of a GPU that
    many share can be named while others come.

    Raises:
        HolderMissingError: the holder has gone meanwhile.
    """
    index = _index(vgpu, demand)
    holder, path = vgpu.status.holders[index], f"/status/holders/{index}"
    named = {"op": "add", "path": f"{path}/podUid", "value": pod_uid}
    if not holder.attempt:
        # Somebody else's may lack what could be tested.
        return [_guard(vgpu), named]
    stood = {"demand": demand, "attempt": holder.attempt, "podUid": holder.pod_uid}
    return [*(_test(f"{path}/{key}", value) for key, value in stood.items()), named]


def set_conditions(vgpu: VGPU, conditions: Sequence[Condition]) -> list[Operation]:
    """Operations that set the conditions, if nobody has changed the object since it was read."""
    status = msgspec.structs.replace(vgpu.status, conditions=tuple(conditions))
    written = msgspec.to_builtins(status) | {"conditions": to_raw(conditions)}
    if not vgpu.status.holders:
        return [_guard(vgpu), {"op": "add", "path": "/status", "value": written}]
    value = written["conditions"]
    return [_guard(vgpu), {"op": "add", "path": "/status/conditions", "value": value}]


def set_phase(vgpu: VGPU, phase: str) -> list[Operation]:
    """Operations that set the phase, if nobody has changed the object since it was read.

    One that becomes active may get holders meanwhile, as long as it keeps its first.
    """
    if vgpu.status.holders and phase == "Active" and vgpu.status.summary.holders:
        first = _test("/status/holders/0/demand", vgpu.status.holders[0].demand)
        was = _test("/status/phase", vgpu.status.phase)
        return [was, first, {"op": "add", "path": "/status/phase", "value": phase}]
    if not vgpu.status.holders and vgpu.status.phase == "Creating":
        status = msgspec.to_builtins(vgpu.status) | {"phase": phase}
        return [_guard(vgpu), {"op": "add", "path": "/status", "value": status}]
    return [_guard(vgpu), {"op": "add", "path": "/status/phase", "value": phase}]
