"""Adds and removes holders: the only way ``VGPU.status.holders`` is changed.

Each function returns the operations of one JSON patch on the VGPU's ``status`` subresource.
Each patch begins with a ``test``, of ``resourceVersion`` or of everything that the decision
depended on, so a patch made from an older read changes nothing and fails with a conflict.
Server-side apply and merge patch are never used here: both can lose a holder silently. The API
server itself checks that the sums fit, by rules of the CRD.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from kubeshare.api.types.v1 import VGPU, Holder, Summary
from kubeshare.core.units import format_memory, format_share
from kubeshare.kube.conditions import to_raw
from kubeshare.kube.meta import Condition

Operation = dict[str, Any]
Identities = frozenset[tuple[str, str]]


class HolderMissingError(Exception):
    """The vGPU has no such holder: read it again before you act."""


def _same_version(vgpu: VGPU) -> Operation:
    return _test("/metadata/resourceVersion", vgpu.metadata.resource_version)


def _same_holders(vgpu: VGPU) -> list[Operation]:
    """Tests that hold as long as exactly the same holders have the same shares.

    They cover what a decision to share a GPU depends on, and no more: a holder that got the uid
    of its pod, or a GPU that was found, is no reason to decide again. A vGPU that is being
    deleted gets no holder, by a rule of the CRD.
    """
    status = vgpu.status
    if status.summary != _summary(status.holders):
        # Not written by this module, so it may be absent or wrong: it cannot be tested.
        return [_same_version(vgpu)]
    sums = _test("/status/summary", msgspec.to_builtins(status.summary))
    tests = [sums]
    for index, holder in enumerate(status.holders):
        tests.append(_test(f"/status/holders/{index}/demand", holder.demand))
        if holder.share:
            tests.append(_test(f"/status/holders/{index}/share", holder.share))
    return tests


def _test(path: str, value: object) -> Operation:
    return {"op": "test", "path": path, "value": value}


def _indexes(vgpu: VGPU, *demands: str) -> list[int]:
    """Where the holders of demands are: one for each of their shares of this GPU."""
    found = [index for index, each in enumerate(vgpu.status.holders) if each.demand in demands]
    if not found:
        raise HolderMissingError(f"vGPU {vgpu.metadata.name} has no holder {', '.join(demands)}")
    return found


def _summary(holders: Sequence[Holder]) -> Summary:
    return Summary(
        holders=len(holders),
        requested=format_share(sum(holder.request_micros for holder in holders)),
        memory=format_memory(sum(holder.memory_bytes for holder in holders)),
    )


def _set_summary(holders: Sequence[Holder]) -> Operation:
    """The operation that sets the summary, in the same patch as the holders."""
    return _set("summary", msgspec.to_builtins(_summary(holders)))


def _set(member: str, value: object) -> Operation:
    """The operation that sets one member of ``status``; those of a newer release stay."""
    return {"op": "add", "path": f"/status/{member}", "value": value}


def identities(vgpu: VGPU | None) -> Identities:
    """Demand and share of each holder of a vGPU; none if it does not exist."""
    found = vgpu.status.holders if vgpu is not None else ()
    return frozenset((each.demand, each.share) for each in found)


def add(vgpu: VGPU, *new: Holder) -> list[Operation]:
    """Operations that append holders, in one write."""
    summary = _set_summary((*vgpu.status.holders, *new))
    entries = [msgspec.to_builtins(holder) for holder in new]
    if vgpu.status.holders:
        path = "/status/holders/-"
        added = [{"op": "add", "path": path, "value": entry} for entry in entries]
        return [*_same_holders(vgpu), *added, summary]
    # `status` is always there, by its default in the CRD; an empty list in it may be absent.
    phase = [_set("phase", "Active")] if vgpu.status.phase == "Idle" else []
    return [_same_version(vgpu), *phase, _set("holders", entries), summary]


def remove(vgpu: VGPU, *demands: str) -> list[Operation]:
    """Operations that remove the holders of ``demands``, all their shares of this GPU.

    Raises:
        HolderMissingError: there is none; nothing has to be done.
    """
    indexes = _indexes(vgpu, *demands)
    others = [holder for holder in vgpu.status.holders if holder.demand not in demands]
    # From the last one on: each removal moves those after it.
    entries = [{"op": "remove", "path": f"/status/holders/{at}"} for at in reversed(indexes)]
    operations: list[Operation] = [_same_version(vgpu), *entries, _set_summary(others)]
    if not others and vgpu.status.phase == "Active":
        operations.append(_set("phase", "Idle"))
    return operations


def set_pod_uid(vgpu: VGPU, demand: str, pod_uid: str) -> list[Operation]:
    """Operations that set ``podUid`` of the holders of ``demand``, all its shares of this GPU.

    For a holder that Sched added, the patch tests this holder only: it is at the same index and
    names no pod. So it is independent of holders that are added to the same GPU at that time.

    Raises:
        HolderMissingError: the holder is gone.
    """
    operations: list[Operation] = []
    for index in _indexes(vgpu, demand):
        operations += _set_one_pod_uid(vgpu, index, pod_uid)
    return operations


def _set_one_pod_uid(vgpu: VGPU, index: int, pod_uid: str) -> list[Operation]:
    holder, path = vgpu.status.holders[index], f"/status/holders/{index}"
    set_uid = {"op": "add", "path": f"{path}/podUid", "value": pod_uid}
    if not holder.attempt:
        # A holder that another program added may lack the tested fields.
        return [_same_version(vgpu), set_uid]
    tested = {"demand": holder.demand, "attempt": holder.attempt, "podUid": holder.pod_uid}
    return [*(_test(f"{path}/{key}", value) for key, value in tested.items()), set_uid]


def set_conditions(vgpu: VGPU, conditions: Sequence[Condition]) -> list[Operation]:
    """Operations that set the conditions, valid for the resourceVersion that was read."""
    return [_same_version(vgpu), _set("conditions", to_raw(conditions))]


def set_phase(vgpu: VGPU, phase: str) -> list[Operation]:
    """Operations that set the phase, valid for the resourceVersion that was read.

    A vGPU that becomes active may get further holders, as long as it keeps its first one.
    """
    if vgpu.status.holders and phase == "Active" and vgpu.status.summary.holders:
        first = _test("/status/holders/0/demand", vgpu.status.holders[0].demand)
        same_phase = _test("/status/phase", vgpu.status.phase)
        return [same_phase, first, _set("phase", phase)]
    return [_same_version(vgpu), _set("phase", phase)]


def holder_of(vgpu: VGPU, demand: str) -> Holder | None:
    """The holder of a demand (uid) on a vGPU, or None.

    If it has several shares of the GPU, any of them: they are added, get the uid of their pod
    and are removed together.
    """
    return next((holder for holder in vgpu.status.holders if holder.demand == demand), None)


def one_of_each_demand(vgpu: VGPU) -> list[Holder]:
    """One holder of each demand on a vGPU, for what concerns its pod; see :func:`holder_of`."""
    found: dict[str, Holder] = {}
    for holder in vgpu.status.holders:
        found.setdefault(holder.demand, holder)
    return list(found.values())
