"""The parts that all Kubernetes objects have in common, as narrow frozen Structs."""

from typing import Any, NamedTuple, Protocol

import msgspec
from msgspec import Struct


class OwnerReference(
    Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, gc=False
):
    """Who owns an object; only ``uid`` cannot be forged by a lookalike."""

    api_version: str
    kind: str
    name: str
    uid: str
    controller: bool = False
    block_owner_deletion: bool = False


class ObjectMeta(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, gc=False):
    """What is read of ``metadata``. Times are RFC 3339 text as the API server sends it."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    finalizers: tuple[str, ...] = ()
    owner_references: tuple[OwnerReference, ...] = ()

    @property
    def key(self) -> "Key":
        """The object's namespace and name."""
        return Key(self.namespace, self.name)

    @property
    def controller(self) -> OwnerReference | None:
        """The owner that manages this object, if it has one."""
        return next((owner for owner in self.owner_references if owner.controller), None)


class Condition(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, gc=False):
    """One observation about an object, as ``status.conditions`` lists it.

    ``status`` is ``True``, ``False`` or ``Unknown``; ``reason`` one CamelCase word;
    ``message`` a sentence for people.
    """

    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None
    observed_generation: int = 0


class Key(NamedTuple):
    """Namespace (``""`` for cluster-scoped objects) and name."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class Identity(NamedTuple):
    """Which object it is, whatever its name, and in which state."""

    uid: str
    resource_version: str


class HasMetadata(Protocol):
    """Any narrow Struct that reads an object's metadata."""

    @property
    def metadata(self) -> ObjectMeta:
        """The object's metadata."""
        ...


KubeObject = dict[str, Any] | HasMetadata
"""An object as it was read: raw, or a narrow Struct with ``metadata``."""


def metadata_of(obj: Any) -> ObjectMeta:
    """The metadata of a raw object or of a narrow Struct.

    Args:
        obj: a ``KubeObject``.

    Raises:
        msgspec.ValidationError: metadata of another form than Kubernetes writes.
    """
    if isinstance(obj, dict):
        return msgspec.convert(obj.get("metadata", {}), ObjectMeta)
    metadata: ObjectMeta = obj.metadata
    return metadata


def key_of(obj: Any) -> Key:
    """The namespace and name of a raw object or of a narrow Struct."""
    if isinstance(obj, dict):
        metadata = obj["metadata"]
        return Key(metadata.get("namespace", ""), metadata["name"])
    return metadata_of(obj).key


def identity_of(obj: Any) -> Identity:
    """The uid and resourceVersion of a raw object or of a narrow Struct; ``""`` where unset."""
    if isinstance(obj, dict):
        metadata = obj.get("metadata", {})
        return Identity(metadata.get("uid", ""), metadata.get("resourceVersion", ""))
    metadata = metadata_of(obj)
    return Identity(metadata.uid, metadata.resource_version)
