"""Finds the members of a gang by their labels."""

from typing import Any, Final

from kubeshare.dialects.priority_and_gang import GROUP_NAME, gang_named
from kubeshare.kube.meta import Key, metadata_of
from kubeshare.kube.resources import Raw

GANG: Final = "of gang"
"""The name of the index by gang."""
WAITING: Final = "waits in gang"
"""The name of the index by gang of those that are not bound."""


def gang_value(key: Key) -> str:
    """The value of a gang in the index, from its namespace and name."""
    return f"{key.namespace}/{key.name}"


def gang_key(value: str) -> Key:
    """The namespace and name of a gang, from its value in the index."""
    namespace, _, name = value.partition("/")
    return Key(namespace, name)


def gang_of(manifest: Raw) -> Key | None:
    """The gang that a raw object names, or None."""
    name = gang_named(manifest)
    return Key(metadata_of(manifest).namespace, name) if name else None


def gang_index(manifest: Raw) -> list[str]:
    """Index function for raw objects."""
    gang = gang_of(manifest)
    return [gang_value(gang)] if gang else []


def gang_of_struct(obj: Any) -> Key | None:
    """The gang that an object whose ``metadata`` is a struct names, or None."""
    metadata = metadata_of(obj)
    name = metadata.labels.get(GROUP_NAME)
    return Key(metadata.namespace, name) if name else None


def gang_index_of_struct(obj: Any) -> list[str]:
    """Index function for objects whose ``metadata`` is a struct."""
    gang = gang_of_struct(obj)
    return [gang_value(gang)] if gang else []
