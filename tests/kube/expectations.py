"""Expectations about the runtime: each waits, and a failure shows what there was instead."""

from collections.abc import Callable, Sized
from typing import TypeVar

from kubeshare.simulator.control import until

Value = TypeVar("Value")

SECONDS = 60.0


async def expect_value(read: Callable[[], Value], wanted: Value, seconds: float = SECONDS) -> None:
    """Waits until what ``read`` returns equals ``wanted``."""
    await _expect(lambda: read() == wanted, seconds, lambda: f"{read()!r}, not {wanted!r}")


async def expect_count(items: Sized, count: int, seconds: float = SECONDS) -> None:
    """Waits until there are so many items."""
    await _expect(lambda: len(items) == count, seconds, lambda: f"{items!r}, not {count} of them")


async def expect_true(condition: Callable[[], object], what: str, seconds: float = SECONDS) -> None:
    """Waits until a condition holds; ``what`` names it in a failure."""
    await _expect(condition, seconds, lambda: f"not {what}")


async def _expect(
    condition: Callable[[], object], seconds: float, describe: Callable[[], str]
) -> None:
    try:
        await until(condition, seconds=seconds)
    except AssertionError as error:
        raise AssertionError(f"{describe()}: {error}") from None
