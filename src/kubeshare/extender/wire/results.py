"""Writes the results of kube-scheduler's calls.

They are those of ``k8s.io/kube-scheduler/extender/v1``, whose keys are the names of the fields in
Go. A result has the form of its call: ``NodeNames`` for names, ``Nodes`` for whole objects, which
are returned as they were sent.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from kubeshare.extender.wire.arguments import CandidateNodes, Victims

MAX_PRIORITY: Final = 10
"""The score of the best node, ``MaxExtenderPriority``; the worst has 0."""


class _NodeList(msgspec.Struct):
    """A list of Node objects."""

    items: list[msgspec.Raw]
    metadata: dict[str, str] = {}


class _FilterResult(msgspec.Struct, rename="pascal"):
    """ExtenderFilterResult."""

    nodes: _NodeList | None = None
    node_names: list[str] | None = None
    failed_nodes: Mapping[str, str] | None = None
    failed_and_unresolvable_nodes: None = None
    error: str = ""


class _BindingResult(msgspec.Struct, rename="pascal"):
    """ExtenderBindingResult."""

    error: str


class _HostPriority(msgspec.Struct, rename="pascal"):
    """The score of one node."""

    host: str
    score: int


class _MetaPod(msgspec.Struct):
    """A pod by its uid."""

    uid: str = msgspec.field(name="UID")


class _MetaVictims(msgspec.Struct, rename="pascal"):
    """The victims of one node."""

    pods: list[_MetaPod]
    pdb_violations: int = msgspec.field(name="NumPDBViolations")


class _PreemptionResult(msgspec.Struct, rename="pascal"):
    """ExtenderPreemptionResult."""

    node_name_to_meta_victims: Mapping[str, _MetaVictims]


def filter_result(candidates: CandidateNodes, failed: Mapping[str, str]) -> bytes:
    """The result of ``filter``.

    Args:
        candidates: the nodes of the call.
        failed: name of each node on which the pod does not fit → why.
    """
    names = [name for name in candidates.names if name not in failed]
    objects = candidates.objects
    if objects is None:
        return msgspec.json.encode(_FilterResult(node_names=names, failed_nodes=failed))
    items = [objects[name] for name in names]
    return msgspec.json.encode(_FilterResult(nodes=_NodeList(items), failed_nodes=failed))


def filter_error(message: str) -> bytes:
    """The result of ``filter`` if no node can be judged."""
    return msgspec.json.encode(_FilterResult(error=message))


def binding_result(error: str = "") -> bytes:
    """The result of ``bind``; ``""`` for success."""
    return msgspec.json.encode(_BindingResult(error))


def priority_list(names: Iterable[str], ranking: Sequence[Iterable[str]]) -> bytes:
    """The result of ``prioritize``, HostPriorityList.

    Args:
        names: the nodes of the call.
        ranking: groups of equally good nodes, the best first; a node in no group has score 0.
    """
    steps = max(1, len(ranking) - 1)
    scores = {
        name: MAX_PRIORITY - place * MAX_PRIORITY // steps
        for place, group in enumerate(ranking)
        for name in group
    }
    return msgspec.json.encode([_HostPriority(name, scores.get(name, 0)) for name in names])


def preemption_result(victims: Mapping[str, Victims]) -> bytes:
    """The result of ``preempt``: the nodes on which preemption helps, and their victims."""
    found = {
        node: _MetaVictims([_MetaPod(uid) for uid in each.uids], each.pdb_violations)
        for node, each in victims.items()
    }
    return msgspec.json.encode(_PreemptionResult(found))
