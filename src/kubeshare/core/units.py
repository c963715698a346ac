"""Units of compute and memory, and parsers for their written forms.

Compute is counted in *micros*, millionths of a GPU, and memory in bytes: with integers, six
shares that add up to one GPU always fill it exactly. A manifest may say ``0.3``, ``"300m"``,
``1073741824`` or ``4Gi``; all of these are parsed here only, so that every manifest family
rounds and rejects alike.
"""

import re
from fractions import Fraction
from functools import lru_cache
from typing import Final

import msgspec

from kubeshare.core.errors import InvalidValueError

MICROS: Final = 1_000_000
"""Micros (millionths) of a whole GPU."""

MAX_BYTES: Final = 2**63 - 1
"""The largest number of bytes in Kubernetes and in the wire formats."""

KI: Final = 2**10
MI: Final = 2**20
GI: Final = 2**30

# A Kubernetes Quantity: a decimal number, then a suffix or a decimal exponent.
# Three digits of exponent exceed every bound, and keep the arithmetic small.
_QUANTITY = re.compile(
    r"(?P<number>[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+))"
    r"(?:(?P<exponent>[eE][+-]?[0-9]{1,3})|(?P<suffix>[numkMGTPE]|[KMGTPE]i))?"
)
_MAX_LENGTH = 64

_SUFFIXES = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 10**3),
    **{suffix: Fraction(1000**power) for power, suffix in enumerate("kMGTPE", start=1)},
    **{suffix + "i": Fraction(1024**power) for power, suffix in enumerate("KMGTPE", start=1)},
}


class Memory(msgspec.Struct, frozen=True):
    """An amount of GPU memory: bytes, or a share of whichever GPU it lands on.

    Attributes:
        bytes: the amount, or None for a share.
        micros: the share in millionths of the GPU's memory, or None.
    """

    bytes: int | None = None
    micros: int | None = None

    def __post_init__(self) -> None:
        if (self.bytes is None) == (self.micros is None):
            raise ValueError("memory is either bytes or micros, exactly one of them")

    def on(self, total: int) -> int:
        """This amount on a GPU of `total` bytes, in bytes; a share is rounded down."""
        if self.bytes is not None:
            return self.bytes
        assert self.micros is not None
        return total * self.micros // MICROS


def parse_share(value: object, field: str) -> int:
    """Parse a share of a GPU's compute, from 0 to 1: ``0.3``, ``"300m"``, ``"1"``.

    Args:
        value: a number or its text.
        field: the name that an error gives.

    Returns:
        micros, to the nearest millionth; at least one unless the value is zero.

    Raises:
        InvalidValueError: not such a number, negative, or more than a whole GPU.
    """
    # Manifests repeat a few texts, so results are cached.
    return (_share if isinstance(value, str) else _share.__wrapped__)(value, field)


@lru_cache(maxsize=4096)
def _share(value: object, field: str) -> int:
    share, _ = _parse(value, field)
    if share > 1:
        raise InvalidValueError(field, f"{value} is more than 1, a whole GPU")
    return _nearest(share * MICROS)


def parse_memory(value: object, field: str) -> Memory:
    """Parse an amount of GPU memory: ``0.5``, ``1073741824``, ``"4Gi"``, ``"500M"``.

    A plain number up to 1 is a share of the GPU, as in the paper; a plain number above 1 is
    bytes, as in the published implementation; a suffix makes it a Quantity.

    Args:
        value: a number or its text.
        field: the name that an error gives.

    Raises:
        InvalidValueError: not such a number, negative, less than a byte, or past 2^63 - 1.
    """
    return (_memory if isinstance(value, str) else _memory.__wrapped__)(value, field)


@lru_cache(maxsize=4096)
def _memory(value: object, field: str) -> Memory:
    amount, suffixed = _parse(value, field)
    if amount <= 1 and not suffixed:
        return Memory(micros=_nearest(amount * MICROS))
    return Memory(bytes=_bytes(amount, value, field))


def parse_size(value: object, field: str) -> int:
    """Parse the size of a GPU's memory: a Quantity, or a plain number of MiB.

    Returns:
        bytes, at least one.

    Raises:
        InvalidValueError: not such a number, not positive, or past 2^63 - 1.
    """
    amount, suffixed = _parse(value, field)
    size = _bytes(amount if suffixed else amount * MI, value, field)
    if size == 0:
        raise InvalidValueError(field, "a GPU has some memory; 0 is none")
    return size


def parse_gpus(value: object, field: str) -> int:
    """Parse a number of GPUs, whole or not, as quotas write it: ``2``, ``0.5``.

    Returns:
        micros, to the nearest millionth.

    Raises:
        InvalidValueError: not such a number, negative, or past 2^63 - 1 millionths.
    """
    amount, _ = _parse(value, field)
    if amount * MICROS > MAX_BYTES:
        raise InvalidValueError(field, f"{value} GPUs are more than can be counted")
    return _nearest(amount * MICROS)


def parse_amount(value: object, field: str) -> Fraction:
    """Parse any Quantity exactly: ``250m`` cores, ``4Gi`` of memory.

    Raises:
        InvalidValueError: not such a number, or negative.
    """
    return _parse(value, field)[0]


def parse_count(value: object, field: str) -> int:
    """Parse a whole number, such as the Quantity of an extended resource: ``8``, ``"1k"``.

    Raises:
        InvalidValueError: not such a number, negative, with a fraction, or past 2^63 - 1.
    """
    return (_count if isinstance(value, str) else _count.__wrapped__)(value, field)


@lru_cache(maxsize=4096)
def _count(value: object, field: str) -> int:
    amount, _ = _parse(value, field)
    if amount.denominator != 1:
        raise InvalidValueError(field, f"{value} is not a whole number")
    if amount > MAX_BYTES:
        raise InvalidValueError(field, f"{value} is past the largest number, 2^63 - 1")
    return int(amount)


@lru_cache(maxsize=4096)
def format_share(micros: int) -> str:
    """Micros as the decimal that people write: ``0``, ``0.5``, ``0.333333``, ``1``."""
    return f"{micros // MICROS}.{micros % MICROS:06d}".rstrip("0").rstrip(".")


@lru_cache(maxsize=4096)
def format_memory(amount: int) -> str:
    """Bytes as a Quantity of at most two decimals: ``16Gi``, ``1.5Gi``, ``10Mi``, ``17``."""
    for unit, suffix in ((GI, "Gi"), (MI, "Mi"), (KI, "Ki")):
        if amount >= unit:
            hundredths = (amount * 100 + unit // 2) // unit
            return f"{hundredths // 100}.{hundredths % 100:02d}".rstrip("0").rstrip(".") + suffix
    return str(amount)


def _parse(value: object, field: str) -> tuple[Fraction, bool]:
    """The exact number, never negative, and whether it has a suffix."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise InvalidValueError(field, f"{value!r} is not a number")
    # The repr of a float is its shortest text: 0.3 is parsed as three tenths.
    text = value if isinstance(value, str) else repr(value)
    match = _QUANTITY.fullmatch(text) if len(text) <= _MAX_LENGTH else None
    if match is None:
        shown = text if len(text) <= _MAX_LENGTH else text[:_MAX_LENGTH] + "…"
        raise InvalidValueError(field, f'"{shown}" is not a number such as 0.5 or a quantity')
    suffix = match["suffix"]
    number = Fraction(match["number"] + (match["exponent"] or "")) * _SUFFIXES.get(suffix, 1)
    if number < 0:
        raise InvalidValueError(field, f"{text} is negative")
    return number, suffix is not None


def _nearest(micros: Fraction) -> int:
    """The nearest integer, halves up; at least one for a positive value."""
    if micros == 0:
        return 0
    return max(1, int(micros + Fraction(1, 2)))


def _bytes(amount: Fraction, value: object, field: str) -> int:
    if 0 < amount < 1:
        raise InvalidValueError(field, f"{value} is less than one byte")
    rounded = _nearest(amount)
    if rounded > MAX_BYTES:
        raise InvalidValueError(field, f"{value} is past the largest size, 2^63 - 1 bytes")
    return rounded
