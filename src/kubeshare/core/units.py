"""Units, and how to read them from what people write.

Compute is counted in *micros*, millionths of a GPU, and memory in bytes: with
integers, six shares that add up to one GPU always fill it exactly. A manifest
may say ``0.3``, ``"300m"``, ``1073741824`` or ``4Gi``; all of that is read here
and nowhere else, so that every door rounds and refuses alike.
"""

import re
from fractions import Fraction
from functools import lru_cache
from typing import Final

import msgspec

from kubeshare.core.errors import InvalidValueError

MICROS: Final = 1_000_000
"""How many micros (millionths) make a whole GPU."""

MAX_BYTES: Final = 2**63 - 1
"""The largest number of bytes that Kubernetes and the wire formats can carry."""

KI: Final = 2**10
MI: Final = 2**20
GI: Final = 2**30

# A Kubernetes Quantity: a decimal number, then a suffix or a decimal exponent.
# Three digits of exponent are past every bound, and keep the arithmetic small.
_QUANTITY = re.compile(
    r"(?P<number>[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+))"
    r"(?:(?P<exponent>[eE][+-]?[0-9]{1,3})|(?P<suffix>[numkMGTPE]|[KMGTPE]i))?"
)
_LONGEST = 64

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
        bytes: the amount, or None when it is a share.
        micros: the share in millionths of the GPU's memory, or None.
    """

    bytes: int | None = None
    micros: int | None = None

    def __post_init__(self) -> None:
        if (self.bytes is None) == (self.micros is None):
            raise ValueError("memory is either bytes or micros, exactly one of them")

    def on(self, total: int) -> int:
        """The bytes that this is on a GPU of `total` bytes; a share is rounded down."""
        if self.bytes is not None:
            return self.bytes
        assert self.micros is not None
        return total * self.micros // MICROS


def parse_share(value: object, field: str) -> int:
    """Read a share of a GPU's compute, from 0 to 1.

    Args:
        value: a number or its text: ``0.3``, ``"0.3"``, ``"300m"``, ``"1"``.
        field: the name to complain about.

    Returns:
        micros, to the nearest millionth; at least one unless the value is zero.

    Raises:
        InvalidValueError: not such a number, negative, or more than a whole GPU.
    """
    # Manifests write the same few texts, and one is read a dozen times in a SharePod's life.
    return (_share if isinstance(value, str) else _share.__wrapped__)(value, field)


@lru_cache(maxsize=4096)
def _share(value: object, field: str) -> int:
    share, _ = _parse(value, field)
    if share > 1:
        raise InvalidValueError(field, f"{value} is more than 1, a whole GPU")
    return _nearest(share * MICROS)


def parse_memory(value: object, field: str) -> Memory:
    """Read an amount of GPU memory as SharePods write it.

    A plain number up to 1 is a share of the GPU, as in the paper; a plain number
    above 1 is bytes, as in the published implementation; a suffix makes it a Quantity.

    Args:
        value: a number or its text: ``0.5``, ``1073741824``, ``"4Gi"``, ``"500M"``.
        field: the name to complain about.

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
    """Read the size of a GPU's memory: a Quantity, or a plain number of MiB.

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
    """Read a number of GPUs, whole or not, as quotas write it: ``2``, ``0.5``.

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
    """Read any Quantity exactly: ``250m`` cores, ``4Gi`` of memory.

    Raises:
        InvalidValueError: not such a number, or negative.
    """
    return _parse(value, field)[0]


def parse_count(value: object, field: str) -> int:
    """Read a whole number of things, such as an extended resource's Quantity: ``8``, ``"1k"``.

    Raises:
        InvalidValueError: not such a number, negative, with a fraction, or past 2^63 - 1.
    """
    amount, _ = _parse(value, field)
    if amount.denominator != 1:
        raise InvalidValueError(field, f"{value} is not a whole number")
    if amount > MAX_BYTES:
        raise InvalidValueError(field, f"{value} is past the largest number, 2^63 - 1")
    return int(amount)


@lru_cache(maxsize=4096)
def format_share(micros: int) -> str:
    """Micros as people write a share: ``0``, ``0.5``, ``0.333333``, ``1``."""
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
    """The exact number, never negative, and whether it has a unit's suffix."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise InvalidValueError(field, f"{value!r} is not a number")
    # A float's repr is the shortest text that means it: 0.3 is read as three tenths.
    text = value if isinstance(value, str) else repr(value)
    match = _QUANTITY.fullmatch(text) if len(text) <= _LONGEST else None
    if match is None:
        shown = text if len(text) <= _LONGEST else text[:_LONGEST] + "…"
        raise InvalidValueError(field, f'"{shown}" is not a number such as 0.5 or a quantity')
    suffix = match["suffix"]
    number = Fraction(match["number"] + (match["exponent"] or "")) * _SUFFIXES.get(suffix, 1)
    if number < 0:
        raise InvalidValueError(field, f"{text} is negative")
    return number, suffix is not None


def _nearest(micros: Fraction) -> int:
    """To the nearest integer, halves up; what is not zero does not become zero."""
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
