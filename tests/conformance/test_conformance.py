"""Every scenario file says in its last comment what `kubeshare plan` answers to it.

The numbered cases are those of the published systems' conformance table. Generated
GPUIDs are hashes; the files write them as ``vgpu-…``.
"""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from deadlines import DEADLINE_S
from kubeshare.cli.plan.command import plan

HERE = Path(__file__).parent
SCENARIOS = sorted(HERE.glob("*/*.yaml"))
EXPECTED = "# Expected:\n"


def expected_lines(scenario: Path) -> list[str]:
    _, _, comment = scenario.read_text().partition(EXPECTED)
    return [line.removeprefix("# ") for line in comment.splitlines()]


def without_hashes(output: str) -> list[str]:
    return re.sub(r"vgpu-[0-9a-f]{10}", "vgpu-…", output).splitlines()


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_plan_answers_as_the_scenario_says(scenario: Path) -> None:
    lines = expected_lines(scenario)
    assert lines, f"{scenario} does not say what is expected"
    result = CliRunner().invoke(plan, [str(scenario), "-o", "json"], catch_exceptions=False)
    assert result.exit_code == 0
    assert without_hashes(result.stdout) == lines


def test_the_command_prints_the_same_from_a_shell() -> None:
    scenario = HERE / "kubeshare" / "the_example_of_the_design.yaml"
    command = [sys.executable, "-m", "kubeshare.cli.main", "plan", str(scenario), "-o", "json"]
    result = subprocess.run(
        command, capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    assert without_hashes(result.stdout) == expected_lines(scenario)


@pytest.mark.parametrize(
    ("family", "public"),
    [
        (
            "kubeshare",
            {1, 2, 3, 4, 5, 7, 9, 10, 11, 12, 13, 15, 16, 18, 19, 20, 22, 24, 25, 26, 29, 30, 31}
            | {33, 34},
        ),
        ("gpushare", {3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 16, 17}),
    ],
)
def test_all_public_cases_of_the_table_are_here(family: str, public: set[int]) -> None:
    names = [path.name for path in SCENARIOS if path.parent.name == family]
    assert public <= {int(name[:2]) for name in names if name[:2].isdigit()}
