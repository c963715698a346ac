"""What requests and answers of the API have in common."""

from typing import Any, TypeVar

import msgspec

from kubeshare.kube.client.decoding import decoder_for
from kubeshare.kube.client.errors import ApiError
from kubeshare.kube.resources import Resource

T = TypeVar("T")


def parameters(**values: str) -> dict[str, str]:
    """Those parameters of a query that have a value."""
    return {name: value for name, value in values.items() if value}


def read_answer(body: bytes, resource: Resource[T]) -> T:
    """The object that a body holds, in the resource's shape.

    Raises:
        ApiError: it holds another.
    """
    try:
        return decoder_for(resource.shape).decode(body)
    except msgspec.DecodeError as error:
        raise ApiError(
            f"{resource.plural}: the API server's answer cannot be read ({error})"
        ) from error


def with_kind(item: T, resource: Resource[Any]) -> T:
    """Add apiVersion and kind, which items of lists and bodies of callers may lack."""
    if isinstance(item, dict):
        item.setdefault("apiVersion", resource.api_version)
        item.setdefault("kind", resource.kind)
    return item
