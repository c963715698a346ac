"""Formats what was used as a table, as JSON, YAML and CSV."""

import json
from fractions import Fraction
from typing import Any

from kubeshare.cli.output import aligned, csv_text, yaml_text
from kubeshare.client.usage.accounts import Usage
from kubeshare.core.usage.report import Row

COLUMNS = (
    "requestedGpuSeconds",
    "heldGpuSeconds",
    "usedGpuSeconds",
    "memoryGibHours",
    "cost",
    "grants",
    "running",
    "complete",
)
"""What a row has beside its keys, in JSON, YAML and CSV."""

INCOMPLETE = (
    "Rows that are not complete lack something: a node restarted, or is not heard of. "
    "`kubectl get shareusages -A` shows which accounts."
)


def as_json(usage: Usage) -> str:
    """One JSON object."""
    return json.dumps(_as_object(usage))


def as_yaml(usage: Usage) -> str:
    """The same as YAML."""
    return yaml_text(_as_object(usage))


def as_csv(usage: Usage) -> str:
    """A line with the names, and one for each row; without a price, the cost is empty."""
    rows = [_fields(usage, row).values() for row in usage.rows]
    return csv_text([[*usage.by, *COLUMNS], *rows])


def as_table(usage: Usage) -> str:
    """Aligned columns with the sums of all rows at the end, and what people should know."""
    if not usage.rows:
        return _nothing(usage)
    has_cost = any(row.cost is not None for row in usage.rows)
    header = [*(name.upper() for name in usage.by), "REQUESTED", "HELD", "USED", "MEMORY"]
    header += [f"COST {usage.currency}".rstrip()] if has_cost else []
    lines = [[*header, "GRANTS", "RUNNING", "COMPLETE"]]
    lines += [_line(row, has_cost=has_cost) for row in usage.rows]
    units = "REQUESTED, HELD and USED are GPU-seconds, MEMORY is GiB-hours"
    notes = [
        f"Since {usage.since:%Y-%m-%d %H:%M} UTC; {units}.",
        *usage.notes,
        *([INCOMPLETE] if not all(row.complete for row in usage.rows) else []),
    ]
    return "\n".join([*aligned(lines, len(usage.by)), "", *notes])


def _as_object(usage: Usage) -> dict[str, Any]:
    return {
        "since": usage.since.isoformat(),
        "until": usage.until.isoformat(),
        "currency": usage.currency,
        "complete": usage.complete,
        "notes": list(usage.notes),
        "rows": [_fields(usage, row) for row in usage.rows],
    }


def _fields(usage: Usage, row: Row) -> dict[str, Any]:
    values = (
        _number(row.requested_gpu_seconds),
        _number(row.held_gpu_seconds),
        _number(row.used_gpu_seconds),
        _number(row.memory_gib_hours),
        None if row.cost is None else _number(row.cost),
        row.allocations,
        row.running,
        row.complete,
    )
    return dict(zip((*usage.by, *COLUMNS), (*row.keys, *values), strict=True))


def _number(value: Fraction) -> float:
    """To the millionth."""
    return float(round(value, 6))


def _line(row: Row, *, has_cost: bool) -> list[str]:
    seconds = (row.requested_gpu_seconds, row.held_gpu_seconds, row.used_gpu_seconds)
    cost = "" if row.cost is None else f"{float(row.cost):.2f}"
    return [
        *(key or "-" for key in row.keys),
        *(f"{float(each):.1f}" for each in seconds),
        f"{float(row.memory_gib_hours):.2f}",
        *([cost] if has_cost else []),
        str(row.allocations),
        str(row.running),
        "yes" if row.complete else "no",
    ]


def _nothing(usage: Usage) -> str:
    notes = "".join(f"\n{note}" for note in usage.notes)
    if usage.accounts:
        return (
            f"Nothing was used since {usage.since:%Y-%m-%d %H:%M} UTC; there are older accounts: "
            f"give a longer --since.{notes}"
        )
    return (
        "No account yet. One is written when a pod releases its GPU, and every ten minutes while "
        f"it has it.{notes}"
    )
