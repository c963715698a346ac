"""Formats plans as text and as fields of a JSON object."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from kubeshare.api.types.constants import ANNOTATION_PUBLISHED_LABELS
from kubeshare.cli.migrate.going_back import GivenBack
from kubeshare.cli.migrate.model import LegacyPod, NodePlan, Plan
from kubeshare.cli.migrate.names import shortened
from kubeshare.cli.output import aligned
from kubeshare.core.units import format_memory, format_share
from kubeshare.dialects.families import GPUSHARE, VCUDA

SYSTEMS: Final = {"gpushare": GPUSHARE, "gpu-manager": VCUDA}
"""The name of a published system in commands → its manifest family."""

_STATES: Final = {
    "blocked": "cannot be moved yet",
    "unprepared": "to be moved",
    "recording": "its pods are being recorded",
    "recorded": "all pods are recorded, and its former device plugin still runs",
    "settling": "KubeShare takes its GPUs over within a minute or two",
    "owned": "moved",
}
_HEADER: Final = ("POD", "GPU", "MEMORY", "COMPUTE", "STATE")


def plan_text(system: str, plan: Plan) -> str:
    """A paragraph for each node: its pods, its problems, and the next commands."""
    paragraphs = [_node_text(system, node) for node in plan.nodes]
    if plan.waiting:
        paragraphs.append(
            f"Created before KubeShare and not running: {shortened(plan.waiting)}. Only the former "
            "scheduler would place these: delete them, so that they are created again."
        )
    if not plan.nodes:
        paragraphs.append(f"No node is managed by {system}.")
    return "\n\n".join(paragraphs)


def plan_fields(system: str, plan: Plan) -> dict[str, Any]:
    """A plan as the fields of a JSON object."""
    return {
        "system": system,
        "problems": plan.has_problems,
        "nodes": [_node_fields(system, node) for node in plan.nodes],
        "waiting": list(plan.waiting),
    }


def given_back_text(system: str, nodes: Sequence[GivenBack]) -> str:
    """What an administrator does next with nodes that are given back."""
    paragraphs = [
        "\n".join(
            [
                f"{node.name}: {len(node.released)} pods are no longer recorded",
                *(f"  still has a share of KubeShare, and must end: {pod}" for pod in node.sharing),
                *(f"  next: {step}" for step in _after(system, node)),
            ]
        )
        for node in nodes
    ]
    return "\n\n".join(paragraphs) or f"KubeShare has recorded no pods of {system}."


def given_back_fields(system: str, nodes: Sequence[GivenBack]) -> dict[str, Any]:
    """Nodes that are given back as the fields of a JSON object."""
    return {
        "system": system,
        "nodes": [
            {
                "name": node.name,
                "released": list(node.released),
                "sharing": list(node.sharing),
                "next": list(_after(system, node)),
            }
            for node in nodes
        ],
    }


def _after(system: str, node: GivenBack) -> Iterator[str]:
    labels = dict(SYSTEMS[system].node_labels)
    yield f"kubectl wait --for=jsonpath={{.status.mode}}=shared gpunode/{node.name} --timeout=5m"
    pairs = (f"{key}={labels[key]}" for key in node.former_labels)
    yield f"kubectl label node {node.name} {' '.join(pairs)}"
    if node.is_noted:
        # Not by --back itself: a command that is run again reads the annotation.
        yield f"kubectl annotate node {node.name} {ANNOTATION_PUBLISHED_LABELS}-"
    yield f"kubectl uncordon {node.name}"


def next_steps(system: str, node: NodePlan) -> list[str]:
    """The next commands for a node, in order."""
    settle = [
        f"kubectl wait --for=condition=Owned gpunode/{node.name} --timeout=5m",
        f"kubectl uncordon {node.name}",
    ]
    if node.state == "unprepared" or (
        node.state == "recording" and not all(pod.recorded or pod.problem for pod in node.pods)
    ):
        return [f"kubeshare migrate {system} --apply {node.name}"]
    if node.state == "recorded":
        return [_stop_plugin(node), *settle]
    if node.state == "settling":
        return settle
    return settle[1:] if node.state == "owned" and node.cordoned else []


def _stop_plugin(node: NodePlan) -> str:
    if node.published_labels:
        removed = " ".join(f"{label}-" for label in node.published_labels)
        return f"kubectl label node {node.name} {removed}"
    return f"stop the device plugin that offers {', '.join(node.offered)} on {node.name}"


def _node_text(system: str, node: NodePlan) -> str:
    rows = [_HEADER, *map(_pod_row, node.pods)] if node.pods else []
    lines = [f"{node.name}: {_STATES[node.state]}"]
    lines += [f"  {line}" for line in aligned(rows)]
    lines += [f"  problem: {problem}" for problem in node.problems]
    lines += [f"  next: {step}" for step in next_steps(system, node)]
    return "\n".join(lines)


def _pod_row(pod: LegacyPod) -> Sequence[str]:
    gpus = ",".join(str(record.gpu) for record in pod.records) or "?"
    memory = sum(record.holder.memory_bytes for record in pod.records)
    compute = sum(record.holder.request_micros for record in pod.records)
    amounts = (format_memory(memory), format_share(compute)) if pod.records else ("?", "?")
    state = pod.problem or ("recorded" if pod.recorded else "to be recorded")
    return (pod.title, gpus, *amounts, state)


def _node_fields(system: str, node: NodePlan) -> dict[str, Any]:
    return {
        "name": node.name,
        "state": node.state,
        "cordoned": node.cordoned,
        "gpus": [{"id": number, "uuid": uuid} for number, uuid in sorted(node.uuids.items())],
        "offeredByOthers": list(node.offered),
        "problems": list(node.problems),
        "pods": [_pod_fields(pod) for pod in node.pods],
        "next": next_steps(system, node),
    }


def _pod_fields(pod: LegacyPod) -> dict[str, Any]:
    return {
        "namespace": pod.namespace,
        "name": pod.name,
        "uid": pod.uid,
        "state": "problem" if pod.problem else "recorded" if pod.recorded else "unrecorded",
        "problem": pod.problem,
        "gpus": [
            {
                "id": record.gpu,
                "memoryBytes": record.holder.memory_bytes,
                "requestMicros": record.holder.request_micros,
            }
            for record in pod.records
        ],
    }
