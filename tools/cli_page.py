"""Writes docs/cli.md from the commands themselves."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click

from kubeshare.cli.main import cli

PAGE: Final = Path(__file__).resolve().parents[1] / "docs" / "cli.md"

_HEAD: Final = """\
# Commands of KubeShare

Each command and its options, as `kubeshare COMMAND --help` prints them. Written by \
`tools/cli_page.py`: run it when a command changes.

`kubectl kubeshare` is the same command, as a plugin of kubectl, and `kubectl inspect gpushare` is \
`kubeshare inspect`. Exit codes: 0, all is well; 1, the answer is no; 2, wrong use; 3, something \
could not be reached.
"""


def text() -> str:
    """The page."""
    return _HEAD + "".join(_section(path, command) for path, command in commands())


def commands() -> Iterator[tuple[str, click.Command]]:
    """Each command that people call, with the words that call it."""
    yield from _below("kubeshare", cli, click.Context(cli, info_name="kubeshare"))


def _below(
    path: str, command: click.Command, context: click.Context
) -> Iterator[tuple[str, click.Command]]:
    if not isinstance(command, click.Group):
        yield path, command
        return
    if path != "kubeshare":
        yield path, command
    for name in command.list_commands(context):
        found = command.get_command(context, name)
        if found is not None and not found.hidden:
            inner = click.Context(found, info_name=name, parent=context)
            yield from _below(f"{path} {name}", found, inner)


def _section(path: str, command: click.Command) -> str:
    context = click.Context(command, info_name=path)
    usage = " ".join([path, *command.collect_usage_pieces(context)])
    rows = [_row(each, context) for each in command.get_params(context)]
    options = [row for row in rows if row]
    parts = [f"\n## {path}\n", _prose(command.help or ""), f"\n```\n{usage}\n```\n"]
    if options:
        parts += ["\n| option | meaning |\n|---|---|\n", *options]
    if command.epilog:
        parts.append(_examples(command.epilog))
    return "".join(parts)


def _row(parameter: click.Parameter, context: click.Context) -> str:
    record = parameter.get_help_record(context)
    if record is None or "--help" in parameter.opts or isinstance(parameter, click.Argument):
        return ""
    names, meaning = (" ".join(each.split()).replace("|", "\\|") for each in record)
    return f"| `{names}` | {_escaped(meaning)} |\n"


def _prose(words: str) -> str:
    paragraphs = re.split(r"\n\s*\n", words.replace("\f", "\n\n").strip())
    return "\n\n".join(_escaped(" ".join(each.split())) for each in paragraphs) + "\n"


def _examples(epilog: str) -> str:
    _, _, rest = epilog.replace("\b\n", "").partition(":")
    lines = "\n".join(line.removeprefix("  ") for line in rest.strip("\n ").split("\n"))
    return f"\nFor example:\n\n```\n{lines}\n```\n"


def _escaped(words: str) -> str:
    """Without what a page would take for HTML or for a link."""
    return words.replace("<", "&lt;")


def main() -> int:
    """Write the page; returns the exit code."""
    PAGE.write_text(text(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
