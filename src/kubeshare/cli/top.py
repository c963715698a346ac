"""`kubeshare top`: who holds this machine's GPUs, live."""

import json
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click

from kubeshare.tokens.client import ask_snapshot
from kubeshare.tokens.files import Paths, default_run_folder

_GI = 2**30
_MI = 2**20


@click.command(epilog="\b\nExample:\n  kubeshare top --once -o json | jq '.claims[].share'")
@click.option("--once", is_flag=True, help="Print once and end.")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table")
@click.option("--interval", type=click.FloatRange(0.1, 3600), default=1.0, show_default=True)
@click.option(
    "--run-folder",
    type=click.Path(file_okay=False, path_type=Path),
    help="Of the daemon to ask.  [default: KUBESHARE_RUN, else by user]",
)
def top(*, once: bool, output: str, interval: float, run_folder: Path | None) -> None:
    """Watch who holds this machine's GPUs, and how much.

    SHARE is the part of the GPU's time that a holder had of late (an average
    that forgets with a time constant of two seconds), TIME what it was charged
    in all, WAIT how long it waited for its turn on average and at most.
    """
    paths = Paths(run_folder or default_run_folder())
    if output == "json":
        _print_json(paths, once=once, interval=interval)
    else:
        _print_table(paths, once=once, interval=interval)


def _print_json(paths: Paths, *, once: bool, interval: float) -> None:
    """One JSON object a line."""
    while True:
        click.echo(json.dumps(ask_snapshot(paths)))
        if once:
            return
        time.sleep(interval)


def _print_table(paths: Paths, *, once: bool, interval: float) -> None:
    from rich.console import Console  # noqa: PLC0415  not on the way of the other commands
    from rich.live import Live  # noqa: PLC0415

    console = Console()
    if once or not console.is_terminal:
        console.print(_table(ask_snapshot(paths)))
        return
    with Live(console=console, auto_refresh=False, screen=False) as live:
        while True:
            live.update(_table(ask_snapshot(paths)), refresh=True)
            time.sleep(interval)


def _table(snapshot: dict[str, Any]) -> Any:
    from rich.table import Table  # noqa: PLC0415

    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("GPU")
    table.add_column("HOLDER")
    table.add_column("STATE")
    for name in ("REQUEST", "LIMIT", "SHARE", "TIME", "MEMORY", "WAIT avg/max"):
        table.add_column(name, justify="right")
    for row in rows(snapshot["claims"]):
        table.add_row(*row)
    if not snapshot["claims"]:
        table.add_row("-", "nobody holds a GPU", *[""] * 7)
    return table


def rows(claims: Iterable[dict[str, Any]]) -> list[tuple[str, ...]]:
    """The table's lines: the holders of one GPU together, the largest request first."""
    ordered = sorted(claims, key=lambda c: (c["gpu"], -c["requestMicros"], c["claim"]))
    return [_row(claim) for claim in ordered]


def _row(claim: dict[str, Any]) -> tuple[str, ...]:
    waits = max(1, claim["waits"])
    return (
        f"{claim['model']} {claim['gpu'][:12]}".strip(),
        claim["holder"],
        claim["state"],
        f"{claim['requestMicros'] / 1e6:.2f}",
        f"{claim['limitMicros'] / 1e6:.2f}",
        f"{claim['share']:.2f}",
        f"{claim['chargedNs'] / 1e9:.1f}s",
        f"{_size(claim['memoryUsedBytes'])}/{_size(claim['memoryBytes'])}",
        f"{claim['waitedNs'] / waits / 1e6:.0f}/{claim['longestWaitNs'] / 1e6:.0f}ms",
    )


def _size(amount: int) -> str:
    return f"{amount / _GI:.1f}Gi" if amount >= _GI else f"{amount / _MI:.0f}Mi"
