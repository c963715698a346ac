"""Reads JSON objects whose keys may be in any case.

Go's decoder, which gpushare's extender uses, ignores the case of the keys of its structs, and so
do the messages of the protocol here. The objects of Kubernetes in them (pods, nodes) are spelled
as the API server spells them.
"""

from collections.abc import Mapping
from typing import Final, TypeVar

import msgspec

from kubeshare.kube.client.json_depth import MAX_DEPTH, limit_depth

T = TypeVar("T")

_OBJECT: Final = msgspec.json.Decoder(dict[str, msgspec.Raw] | None)

Fields = Mapping[str, msgspec.Raw]
"""The fields of an object, by their names in lower case."""


class MessageError(Exception):
    """A message that cannot be read; the text says where and why."""


def read_message(body: bytes) -> Fields:
    """The fields of the message that a request carries; none if it is ``null``.

    Raises:
        MessageError: it is not a JSON object, or is nested too deeply. An empty body is ``EOF``
            and a truncated one ``unexpected EOF``, as in gpushare's extender.
    """
    if not body.strip():
        raise MessageError("EOF")
    shallow = limit_depth(body)
    if shallow is not body and shallow != body:
        raise MessageError(f"JSON is nested more than {MAX_DEPTH} levels deep")
    try:
        decoded = _OBJECT.decode(body)
    except ValueError as error:  # of which msgspec's errors are subclasses
        words = str(error)
        raise MessageError("unexpected EOF" if "truncated" in words else words) from None
    return _by_lower_case(decoded)


def read_object(text: msgspec.Raw, field: str) -> Fields:
    """The fields of an object within a message; none if it is ``null``.

    Raises:
        MessageError: it is not an object.
    """
    return _by_lower_case(None if _is_null(text) else read_as(text, dict[str, msgspec.Raw], field))


def read_field(fields: Fields, name: str, shape: type[T]) -> T | None:
    """The field of that name, or None if it is absent or ``null``.

    Args:
        fields: of an object.
        name: as the protocol spells it.
        shape: the type that it must have.

    Raises:
        MessageError: it has another type.
    """
    text = field_text(fields, name)
    return None if text is None else read_as(text, shape, name)


def field_text(fields: Fields, name: str) -> msgspec.Raw | None:
    """The JSON of the field of that name, or None if it is absent or ``null``."""
    text = fields.get(name.lower())
    return None if text is None or _is_null(text) else text


def read_as(text: msgspec.Raw, shape: type[T], field: str) -> T:
    """The value of a field.

    Raises:
        MessageError: it has another type.
    """
    try:
        return msgspec.json.decode(text, type=shape)
    except ValueError as error:
        raise MessageError(f"{field}: {error}") from None


def _is_null(text: msgspec.Raw) -> bool:
    # No other JSON value begins with these letters, and a list of nodes is long to copy.
    return bytes(memoryview(text)[:4]) == b"null"


def _by_lower_case(decoded: Mapping[str, msgspec.Raw] | None) -> Fields:
    """As in Go: of two keys that differ in case only, the last one counts."""
    return {key.lower(): value for key, value in (decoded or {}).items()}
