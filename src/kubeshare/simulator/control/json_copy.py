"""Deep copies of JSON values, fast enough for thousands of objects."""

from typing import TypeVar

import msgspec

T = TypeVar("T")


def clone(value: T) -> T:
    """A deep copy of a JSON value."""
    copied: T = msgspec.json.decode(msgspec.json.encode(value))
    return copied
