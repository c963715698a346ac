"""The options that all moves have."""

import json
from collections.abc import Callable
from typing import Any, TypeVar

import click

from kubeshare.cli.output import output_option

F = TypeVar("F", bound=Callable[..., Any])


def with_modes(apply: str, back: str) -> Callable[[F], F]:
    """Give a command ``--plan``, ``--apply`` and ``--back``, its output and its cluster."""

    def decorate(command: F) -> F:
        options = (
            click.option(
                "--plan", "mode", flag_value="plan", help="Say what there is to do, and why not."
            ),
            click.option("--apply", "mode", flag_value="apply", help=apply),
            click.option("--back", "mode", flag_value="back", help=back),
            output_option("table", "json"),
            click.option(
                "--kubeconfig", type=click.Path(dir_okay=False), help="By default $KUBECONFIG."
            ),
            click.option(
                "--context", help="A context of the kubeconfig; by default its current one."
            ),
        )
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def checked(mode: str | None) -> str:
    """The mode.

    Raises:
        click.UsageError: none was given.
    """
    if mode is None:
        raise click.UsageError("give one of --plan, --apply and --back")
    return mode


def show(text: str, fields: dict[str, Any], output: str) -> None:
    """Print an answer as text, or as JSON."""
    click.echo(json.dumps(fields) if output == "json" else text)
