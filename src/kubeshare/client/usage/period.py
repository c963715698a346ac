"""Reads from when on accounts count."""

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from kubeshare.core.errors import InvalidValueError

_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_PERIOD: Final = re.compile(r"([0-9]{1,5})([smhdw])")


def parse_period(text: str, option: str) -> timedelta:
    """Parse a period: ``30m``, ``12h``, ``7d``.

    Raises:
        InvalidValueError: the text is none; under the name of the option.
    """
    found = _PERIOD.fullmatch(text)
    if found is None:
        raise InvalidValueError(option, f'"{text}" is no period such as 30m, 12h or 7d')
    return timedelta(**{_UNITS[found[2]]: int(found[1])})


def since(text: str, now: datetime) -> datetime:
    """The beginning of a period, in UTC: ``7d`` before now, or a date or time.

    Raises:
        InvalidValueError: the text is neither, or a time to come.
    """
    if _PERIOD.fullmatch(text):
        return now - parse_period(text, "--since")
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        words = f'"{text}" is neither a period such as 7d or 12h nor a date such as 2026-11-01'
        raise InvalidValueError("--since", words) from None
    at = at.astimezone(UTC) if at.tzinfo else at.replace(tzinfo=UTC)
    if at > now:
        raise InvalidValueError("--since", f"{text} is yet to come")
    return at
