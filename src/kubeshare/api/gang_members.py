"""The members of gangs, found by what their labels say."""

from typing import Any, Final

from kubeshare.dialects.priority_and_gang import GROUP_NAME, gang_named
from kubeshare.kube.meta import Key, metadata_of
from kubeshare.kube.resources import Raw

GANG: Final = "of gang"
"""The index by which the members of a gang are found."""


def gang_value(key: Key) -> str:
    """The value under which the index files the members of a gang, by namespace and name."""
    return f"{key.namespace}/{key.name}"


def gang_of(manifest: Raw) -> Key | None:
    """The gang that a raw object names, None where it names none."""
    name = gang_named(manifest)
    return Key(metadata_of(manifest).namespace, name) if name else None


def gang_index(manifest: Raw) -> list[str]:
    """For an index of raw objects."""
    gang = gang_of(manifest)
    return [gang_value(gang)] if gang else []


def gang_of_struct(obj: Any) -> Key | None:
    """The gang that an object with ``metadata`` as a struct names."""
    metadata = metadata_of(obj)
    name = metadata.labels.get(GROUP_NAME)
    return Key(metadata.namespace, name) if name else None


def gang_index_of_struct(obj: Any) -> list[str]:
    """For an index of objects with ``metadata`` as a struct."""
    gang = gang_of_struct(obj)
    return [gang_value(gang)] if gang else []
