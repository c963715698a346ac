"""The wall clock, for times that people read."""

from datetime import UTC, datetime


def utc_now() -> datetime:
    """The present as an aware time."""
    return datetime.now(UTC)
