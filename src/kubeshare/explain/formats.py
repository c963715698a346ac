"""Formats what was found of a SharePod or pod."""

from collections.abc import Iterator
from typing import Any

from kubeshare.core.decision import Decision
from kubeshare.core.gang.nearness import WORDS
from kubeshare.explain.decision_output import as_fields, as_lines
from kubeshare.explain.finding import Finding
from kubeshare.explain.gang import GangFinding


def finding_fields(finding: Finding) -> dict[str, Any]:
    """A finding as the fields of a JSON object."""
    known: dict[str, Any] = {"name": finding.name, "held": list(finding.held)}
    known |= as_fields(finding.decision, finding.change)
    if finding.gang is not None:
        known["gang"] = {
            "name": finding.gang.name,
            "needs": finding.gang.needs,
            "there": finding.gang.there,
            "placed": finding.gang.placed,
            "timeoutSeconds": finding.gang.timeout,
            "near": finding.gang.near.near if finding.gang.near else None,
            "members": dict(finding.gang.members),
        }
    if finding.preemption:
        known["preemption"] = finding.preemption
    if finding.degraded:
        known["degraded"] = dict(finding.degraded)
    if finding.priority_note:
        known["priorityNote"] = finding.priority_note
    if finding.policy_note:
        known["policyNote"] = finding.policy_note
    return known


def finding_text(finding: Finding) -> str:
    """A finding as lines for people."""
    head = f"{finding.name}:"
    if finding.held:
        head = f"{head} has {', '.join(finding.held)}; placed now it would be"
    lines = [*as_lines(head, finding.decision, finding.change)]
    lines += [f"    {path} is degraded: {words}" for path, words in finding.degraded.items()]
    lines += [f"    {words}" for words in _new_gpus(finding.decision)]
    notes = (finding.preemption, finding.priority_note, finding.policy_note)
    lines += [f"    {words}" for words in notes if words]
    return "\n".join([*lines, *(_of_gang(finding.gang) if finding.gang else ())])


def _new_gpus(decision: Decision) -> Iterator[str]:
    """Who chooses the physical GPU of each new vGPU."""
    for device in decision.new:
        if device.uuid:
            yield f"{device.path}: its GPU is {device.uuid}, as the policy chooses"
        else:
            yield f"{device.path}: its GPU is the choice of the device plugin on {device.node}"


def _of_gang(gang: GangFinding) -> Iterator[str]:
    start = "" if gang.timeout is None else f"; has {gang.timeout:g} s to start once it is placed"
    near = WORDS[gang.near.near] if gang.near else ""
    yield (
        f"gang {gang.name}: needs {gang.needs} members{near}, {gang.there} are there, "
        f"{gang.placed} are placed{start}"
    )
    for name, where in gang.members.items():
        yield f"    {name} {where}"
