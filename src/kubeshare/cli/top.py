"""`kubeshare top`: shows who holds this machine's GPUs, live."""

import contextlib
import json
import sys
import time
from collections.abc import Iterable, Mapping
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from kubeshare.cli.output import csv_text, output_option, yaml_text
from kubeshare.core.units import format_memory, format_share
from kubeshare.tokens.client import ask_snapshot
from kubeshare.tokens.files.degraded import read_degraded
from kubeshare.tokens.files.grants import share_holder
from kubeshare.tokens.files.run_folder import Paths, default_run_folder

if TYPE_CHECKING:
    from rich.console import RenderableType

COLUMNS = ("HOLDER", "STATE", "REQUEST", "LIMIT", "SHARE", "TIME", "MEMORY", "WAIT avg/max")
_WORDS = ("HOLDER", "STATE")
_NOTHING = (
    "No GPU is shared here. Next: `kubeshare run -- COMMAND` runs a command on a share; "
    "`kubeshare get -A` lists the shares of a cluster."
)
FIELDS = (
    *("gpu", "model", "holder", "shareName", "state", "requestMicros", "limitMicros", "share"),
    *("chargedNs", "memoryBytes", "memoryUsedBytes", "memoryTotalBytes"),
    *("waits", "waitedNs", "longestWaitNs"),
)
"""The columns of CSV, which JSON has as well."""
_PIPE_WIDTH = 200


@click.command(epilog="\b\nExample:\n  kubeshare top --once -o json | jq '.claims[].share'")
@click.option("--once", is_flag=True, help="Print once and end.")
@output_option("table", "json", "yaml", "csv")
@click.option(
    "--interval",
    type=click.FloatRange(0.1, 3600),
    default=1.0,
    show_default=True,
    help="Seconds between two looks.",
)
@click.option(
    "--run-folder",
    type=click.Path(file_okay=False, path_type=Path),
    help="Of the daemon to ask.  [default: KUBESHARE_RUN, else by user]",
)
def top(*, once: bool, output: str, interval: float, run_folder: Path | None) -> None:
    """Watch who holds this machine's GPUs, and how much.

    SHARE is the fraction of the GPU's time that a holder used recently (an average
    that decays with a time constant of two seconds), TIME what it was charged
    in all, MEMORY what its processes hold of the GPU and what they may, with the
    memory of the host that they pinned for GPUs, WAIT how long it waited for its
    turn on average and at most. (prompt) marks a request that is latency-sensitive.
    In a pipe the table is printed once, as YAML and CSV always are; JSON is an object a line.
    """
    paths = Paths(run_folder or default_run_folder())
    if output in ("yaml", "csv"):
        found = _snapshot(paths)
        click.echo(yaml_text(found) if output == "yaml" else as_csv(found["claims"]))
        return
    show = _print_json if output == "json" else _print_table
    with contextlib.suppress(KeyboardInterrupt):  # Ctrl-C ends a live view
        show(paths, once=once, interval=interval)


def _snapshot(paths: Paths) -> dict[str, Any]:
    return ask_snapshot(paths) | {"degraded": dict(read_degraded(paths))}


def as_csv(claims: Iterable[dict[str, Any]]) -> str:
    """A line for each GPU of each holder, in the order of the table."""
    ordered = sorted(claims, key=_order)
    return csv_text([FIELDS, *([claim.get(name, "") for name in FIELDS] for claim in ordered)])


def _print_json(paths: Paths, *, once: bool, interval: float) -> None:
    """One JSON object a line."""
    while True:
        click.echo(json.dumps(_snapshot(paths)))
        if once:
            return
        time.sleep(interval)


def _print_table(paths: Paths, *, once: bool, interval: float) -> None:
    from rich.console import Console  # noqa: PLC0415  not on the way of the other commands
    from rich.live import Live  # noqa: PLC0415

    # A pipe gets whole lines, however long.
    console = Console() if sys.stdout.isatty() else Console(width=_PIPE_WIDTH)
    if once or not console.is_terminal:
        console.print(_tables(ask_snapshot(paths), read_degraded(paths)))
        return
    with Live(console=console, auto_refresh=False) as live:
        while True:
            live.update(_tables(ask_snapshot(paths), read_degraded(paths)), refresh=True)
            time.sleep(interval)


def _tables(snapshot: dict[str, Any], degraded: Mapping[str, str]) -> "RenderableType":
    """Build a table for each GPU that has holders; ``degraded`` says what is wrong, by UUID."""
    from rich.console import Group  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    shown: list[RenderableType] = []
    for gpu, title, lines in by_gpu(snapshot["claims"]):
        table = Table(box=None, pad_edge=False)
        for name in COLUMNS:
            justify: Literal["left", "right"] = "left" if name in _WORDS else "right"
            table.add_column(name, justify=justify, no_wrap=True, header_style="dim")
        for line in lines:
            table.add_row(*line)
        wrong = [Text(f"degraded: {degraded[gpu]}", style="red")] if gpu in degraded else []
        shown += [Text(title, style="bold"), *wrong, table]
    return Group(*shown) if shown else _NOTHING


def by_gpu(claims: Iterable[dict[str, Any]]) -> list[tuple[str, str, list[tuple[str, ...]]]]:
    """Group by GPU: its UUID, a title, and a line for each holder, the largest request first."""
    ordered = sorted(claims, key=_order)
    return [
        (gpu, _title(gpu, members := list(group)), [_line(claim) for claim in members])
        for gpu, group in groupby(ordered, key=lambda claim: str(claim["gpu"]))
    ]


def _order(claim: dict[str, Any]) -> tuple[str, int, str]:
    return claim["gpu"], -claim["requestMicros"], claim["claim"]


def _title(gpu: str, claims: list[dict[str, Any]]) -> str:
    live = [claim for claim in claims if claim["state"] != "refused"]
    requested = sum(claim["requestMicros"] for claim in live)
    memory = sum(claim["memoryBytes"] for claim in live)
    total = claims[0]["memoryTotalBytes"]
    physical = claims[0].get("memoryPhysicalBytes", total)
    beyond = f", {format_memory(physical)} on the GPU" if physical < total else ""
    return (
        f"{claims[0]['model']} {gpu}: {format_share(requested)} of its time requested, "
        f"{format_memory(memory)} of {format_memory(total)} given{beyond}"
    ).strip()


def _line(claim: dict[str, Any]) -> tuple[str, ...]:
    waits = max(1, claim["waits"])
    limit, limit_alone = claim["limitMicros"], claim.get("limitAloneMicros", 0)
    memory, most = claim["memoryBytes"], claim.get("memoryLimitBytes", 0)
    beyond = f" (at most {format_memory(most)})" if most > memory else ""
    host = claim.get("hostMemoryBytes", 0)
    pinned = f" + {format_memory(host)} of the host" if host else ""
    spilled = claim.get("memorySpilledBytes", 0)
    managed = f" ({format_memory(spilled)} managed)" if spilled else ""
    prompt = " (prompt)" if claim.get("latencySensitive") else ""
    alone = f" ({format_share(limit_alone)} alone)" if limit_alone > limit else ""
    return (
        share_holder(claim["holder"], claim.get("shareName", "")),
        claim["state"],
        format_share(claim["requestMicros"]) + prompt,
        format_share(limit) + alone,
        f"{claim['share']:.2f}",
        f"{claim['chargedNs'] / 1e9:.1f}s",
        f"{format_memory(claim['memoryUsedBytes'])}/{format_memory(memory)}{beyond}{managed}{pinned}",
        f"{claim['waitedNs'] / waits / 1e6:.0f}/{claim['longestWaitNs'] / 1e6:.0f}ms",
    )
