"""What the page about the papers' figures shows is what happens."""

import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from kubeshare.cli.main import cli
from kubeshare.simulator.figures.catalogue import FIGURES

PAGE = (Path(__file__).parents[2] / "docs" / "reproduce.md").read_text()
BLOCKS = re.findall(r"```console\n\$ kubeshare ([^\n]*)\n(.*?)```", PAGE, flags=re.DOTALL)


@pytest.mark.parametrize(("command", "expected"), BLOCKS)
def test_the_commands_of_the_page_print_what_it_shows(command: str, expected: str) -> None:
    result = CliRunner().invoke(cli, shlex.split(command), catch_exceptions=False)
    assert (result.exit_code, result.stdout) == (0, expected)


def test_the_page_lists_every_name() -> None:
    rows = [line.split("|")[1] for line in PAGE.splitlines() if line.startswith("| `")]
    assert {name for row in rows for name in re.findall(r"`([^`]+)`", row)} == set(FIGURES)
