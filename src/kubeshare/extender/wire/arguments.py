"""Reads the arguments of kube-scheduler's calls.

They are those of ``k8s.io/kube-scheduler/extender/v1``. Which pod and which nodes a call is about
is all that is taken from it: what a pod asks for is read from the pod, and everything that is
written rests on objects of the API server.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from kubeshare.extender.wire.reading import (
    Fields,
    MessageError,
    field_text,
    read_as,
    read_field,
    read_message,
    read_object,
)
from kubeshare.kube.meta import Key, ObjectMeta

MAX_NODES: Final = 50_000
"""The most nodes of one call; Kubernetes supports 5000 nodes."""
MAX_NAME: Final = 253
"""The longest name of an object of Kubernetes."""

NO_POD: Final = "arg or pod is nil"
NO_NODES: Final = "cannot get node names"

Raw = dict[str, Any]


class _HasMetadata(msgspec.Struct):
    """An object of Kubernetes, of which only the metadata is checked."""

    metadata: ObjectMeta


class CandidateNodes(msgspec.Struct, frozen=True):
    """The nodes that a call offers.

    Attributes:
        names: the names of the nodes, in the order of the call.
        objects: name → the Node object, as it was sent; None if only names were sent.
    """

    names: tuple[str, ...]
    objects: Mapping[str, msgspec.Raw] | None = None


class FilterArguments(msgspec.Struct, frozen=True):
    """ExtenderArgs, of the calls ``filter`` and ``prioritize``.

    Attributes:
        pod: the pod to place.
        metadata: its metadata.
        candidates: the nodes that kube-scheduler found fit itself.
    """

    pod: Raw
    metadata: ObjectMeta
    candidates: CandidateNodes


class BindArguments(msgspec.Struct, frozen=True):
    """ExtenderBindingArgs: the pod and the node that kube-scheduler has chosen for it."""

    pod_name: str
    pod_namespace: str
    pod_uid: str
    node: str

    @property
    def pod(self) -> Key:
        """The namespace and the name of the pod."""
        return Key(self.pod_namespace, self.pod_name)


class Victims(msgspec.Struct, frozen=True):
    """The pods of a node that would be preempted.

    Attributes:
        uids: the uids of the pods, in the order of the call.
        pdb_violations: how many of these evictions a disruption budget does not allow.
    """

    uids: tuple[str, ...]
    pdb_violations: int = 0


class PreemptArguments(msgspec.Struct, frozen=True):
    """ExtenderPreemptionArgs.

    Attributes:
        pod: the pod to place.
        metadata: its metadata.
        victims: name of each candidate node → its victims.
    """

    pod: Raw
    metadata: ObjectMeta
    victims: Mapping[str, Victims]


def read_filter(body: bytes) -> FilterArguments:
    """The arguments of ``filter`` and ``prioritize``.

    ``NodeNames`` takes precedence over ``Nodes``.

    Raises:
        MessageError: they cannot be read, or have neither nodes nor names of nodes.
    """
    fields = read_message(body)
    pod, metadata = _pod(fields)
    names = read_field(fields, "NodeNames", list[str])
    if names is not None:
        _check_count(names)
        return FilterArguments(pod, metadata, CandidateNodes(tuple(dict.fromkeys(names))))
    nodes = field_text(fields, "Nodes")
    if nodes is None:
        raise MessageError(NO_NODES)
    return FilterArguments(pod, metadata, _nodes(nodes))


def read_bind(body: bytes) -> BindArguments:
    """The arguments of ``bind``.

    Raises:
        MessageError: they cannot be read, or a name is missing or too long.
    """
    fields = read_message(body)
    names = []
    for key in ("PodName", "PodNamespace", "PodUID", "Node"):
        value = read_field(fields, key, str)
        if not value:
            raise MessageError(f"{key}: is missing")
        if len(value) > MAX_NAME:
            raise MessageError(f"{key}: is longer than {MAX_NAME} characters")
        names.append(value)
    return BindArguments(*names)


def read_preempt(body: bytes) -> PreemptArguments:
    """The arguments of ``preempt``.

    ``NodeNameToMetaVictims`` takes precedence over ``NodeNameToVictims``, which has whole pods.

    Raises:
        MessageError: they cannot be read, or have no victims.
    """
    fields = read_message(body)
    pod, metadata = _pod(fields)
    shape = dict[str, msgspec.Raw]
    named = read_field(fields, "NodeNameToMetaVictims", shape)
    whole = read_field(fields, "NodeNameToVictims", shape)
    found = named if named is not None else whole
    if found is None:
        raise MessageError("NodeNameToVictims: is missing")
    _check_count(found)
    uid = _uid_of_pod if named is None else _uid_of_reference
    victims = {}
    for node, text in found.items():
        victim_fields = read_object(text, f"victims of {node}")
        pods = read_field(victim_fields, "Pods", list[msgspec.Raw]) or ()
        violations = read_field(victim_fields, "NumPDBViolations", int) or 0
        victims[node] = Victims(tuple(map(uid, pods)), violations)
    return PreemptArguments(pod, metadata, victims)


def _pod(fields: Fields) -> tuple[Raw, ObjectMeta]:
    text = field_text(fields, "Pod")
    if text is None:
        raise MessageError(NO_POD)
    return read_as(text, dict[str, Any], "Pod"), _metadata(text, "Pod")


def _metadata(text: msgspec.Raw, field: str) -> ObjectMeta:
    return read_as(text, _HasMetadata, field).metadata


def _nodes(text: msgspec.Raw) -> CandidateNodes:
    items = read_field(read_object(text, "Nodes"), "items", list[msgspec.Raw]) or []
    _check_count(items)
    objects = {_metadata(item, "Nodes.items").name: item for item in items}
    return CandidateNodes(tuple(objects), objects)


def _uid_of_pod(text: msgspec.Raw) -> str:
    return _metadata(text, "Pods").uid


def _uid_of_reference(text: msgspec.Raw) -> str:
    return read_field(read_object(text, "Pods"), "UID", str) or ""


def _check_count(nodes: Mapping[str, Any] | list[Any]) -> None:
    if len(nodes) > MAX_NODES:
        raise MessageError(f"{len(nodes)} nodes are more than {MAX_NODES}")
