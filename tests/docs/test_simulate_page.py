"""What the page about the simulator shows is what happens."""

import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from kubeshare.cli.main import cli
from kubeshare.simulator.systems import BASELINES
from kubeshare.simulator.workloads.jobs_csv import COLUMNS

PAGE = (Path(__file__).parents[2] / "docs" / "simulate.md").read_text()
BLOCKS = re.findall(r"```console\n\$ kubeshare ([^\n]*)\n(.*?)```", PAGE, flags=re.DOTALL)


@pytest.mark.parametrize(("command", "expected"), BLOCKS)
def test_the_commands_of_the_page_print_what_it_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, expected: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "jobs.csv").write_text(re.findall(r"```csv\n(.*?)```", PAGE, flags=re.DOTALL)[0])
    result = CliRunner().invoke(cli, shlex.split(command), catch_exceptions=False)
    assert (result.exit_code, result.stdout) == (0, expected)


def test_the_page_has_all_columns_and_baselines() -> None:
    words = set(re.findall(r"`([a-z_-]+)`", PAGE))
    assert {*COLUMNS.required, *COLUMNS.optional} <= words
    assert set(BASELINES) <= words
