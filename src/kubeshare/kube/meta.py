"""Metadata, owner references and conditions, which all objects share."""

from typing import Any, NamedTuple, Protocol, TypeAlias

import msgspec
from msgspec import Struct


class OwnerReference(
    Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, gc=False
):
    """The owner of an object; of its fields, only ``uid`` cannot be forged."""

    api_version: str
    kind: str
    name: str
    uid: str
    controller: bool = False
    block_owner_deletion: bool = False


class ObjectMeta(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, gc=False):
    """The fields of ``metadata`` that are read. Times are RFC 3339 strings."""

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
        """Namespace and name of the object."""
        return Key(self.namespace, self.name)

    @property
    def controller(self) -> OwnerReference | None:
        """The owner that manages this object, or None."""
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
    """Which object it is, and in which state."""

    uid: str
    resource_version: str


class HasMetadata(Protocol):
    """A narrow Struct with an object's metadata."""

    @property
    def metadata(self) -> ObjectMeta:
        """The object's metadata."""
        ...


KubeObject: TypeAlias = dict[str, Any] | HasMetadata
"""A decoded object: raw, or a narrow Struct with ``metadata``."""


def metadata_of(obj: Any) -> ObjectMeta:
    """The metadata of a ``KubeObject``.

    Raises:
        msgspec.ValidationError: the metadata has another shape than Kubernetes writes.
    """
    if isinstance(obj, dict):
        return msgspec.convert(obj.get("metadata", {}), ObjectMeta)
    metadata: ObjectMeta = obj.metadata
    return metadata


def annotation_path(key: str) -> str:
    """The path of an annotation in a JSON patch."""
    return "/metadata/annotations/" + key.replace("~", "~0").replace("/", "~1")


def key_of(obj: Any) -> Key:
    """The namespace and name of a ``KubeObject``."""
    if isinstance(obj, dict):
        metadata = obj["metadata"]
        return Key(metadata.get("namespace", ""), metadata["name"])
    return metadata_of(obj).key


def identity_of(obj: Any) -> Identity:
    """The uid and resourceVersion of a ``KubeObject``; ``""`` if unset."""
    if isinstance(obj, dict):
        metadata = obj.get("metadata", {})
        return Identity(metadata.get("uid", ""), metadata.get("resourceVersion", ""))
    metadata = metadata_of(obj)
    return Identity(metadata.uid, metadata.resource_version)
