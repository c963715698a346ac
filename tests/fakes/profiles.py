"""Lines of profiles of the fake GPU that more than one test has in its own."""

from typing import Final

COST_US: Final = 5
"""Microseconds of each such call."""

CALL_COSTS: Final = "".join(
    f"cost.{call} = {COST_US}\nlock.{call} = context\n"
    for call in ("launch", "event_record", "event_query")
)
"""Launches and events take their thread, and keep other threads of the context waiting."""
