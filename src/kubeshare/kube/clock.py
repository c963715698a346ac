"""The time that people read. Deadlines are the event loop's own."""

from datetime import UTC, datetime


def utc_now() -> datetime:
    """The present moment."""
    return datetime.now(UTC)
