"""The pages for those who choose: comparison, evaluation, versions."""

import os
import re
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from kubeshare import __version__
from kubeshare.cli.main import cli
from kubeshare.install.checks.platform import GATES, OLDEST_KUBERNETES
from kubeshare.node.gpus.driver_version import OLDEST_DRIVER

ROOT = Path(__file__).parents[2]
COMPARISON = (ROOT / "docs" / "comparison.md").read_text()
EVALUATE = (ROOT / "docs" / "evaluate.md").read_text()
VERSIONS = (ROOT / "docs" / "supported-versions.md").read_text()
UPGRADE = (ROOT / "docs" / "upgrade.md").read_text()
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in COMPARISON.splitlines()
    if line.startswith("| ") and not line.startswith("| |")
]
TESTS = sorted(set(re.findall(r"`(tests/[^`]+)`", COMPARISON)))


def test_each_cell_has_a_source_or_a_test() -> None:
    assert len(ROWS) == 7 + 8
    for name, *cells in ROWS:
        assert [cell for cell in cells if not re.search(r"\[\d+\]|`tests/", cell)] == [], name


def test_each_source_is_listed_and_used() -> None:
    body, _, sources = COMPARISON.partition("\n## Sources\n")
    listed = [int(number) for number in re.findall(r"^(\d+)\. ", sources, re.MULTILINE)]
    assert listed == list(range(1, len(listed) + 1))
    assert {int(number) for number in re.findall(r"\[(\d+)\]", body)} == set(listed)


@pytest.mark.parametrize("reference", TESTS)
def test_what_is_said_of_kubeshare_has_a_test(reference: str) -> None:
    path, _, name = reference.partition("::")
    assert f"def {name}(" in (ROOT / path).read_text()


def test_the_scenario_is_decided_as_the_page_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [scenario] = re.findall(r'```yaml title="scenario.yaml"\n(.*?)```', EVALUATE, re.DOTALL)
    [shown] = re.findall(r"\$ kubeshare plan scenario.yaml\n(.*?)```", EVALUATE, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "scenario.yaml").write_text(scenario)
    assert CliRunner().invoke(cli, ["plan", "scenario.yaml"]).stdout == shown


@pytest.mark.native
@pytest.mark.slow
def test_the_first_commands_work_without_a_cluster_and_a_gpu(tmp_path: Path) -> None:
    [commands] = re.findall(r"```bash\n(.*?)```", EVALUATE, re.DOTALL)
    # The checkout is built. A slow machine takes longer until both run.
    running = "$(kubeshare top --once 2> /dev/null | grep -c ^burn)"
    both = f'until [ "{running}" = 2 ]; do sleep .1; done'
    for shown, tried in {
        "make native": "shopt -s expand_aliases",
        "--seconds 8": "--seconds 120",
        "sleep 4": both,
        "wait": "kill $(jobs -p); wait || true",
    }.items():
        assert shown in commands
        commands = commands.replace(shown, tried)
    folder = {"KUBESHARE_RUN": str(tmp_path / "run"), "XDG_RUNTIME_DIR": str(tmp_path)}
    done = subprocess.run(
        ["bash", "-ec", commands],
        cwd=ROOT,
        env=os.environ | folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert len(re.findall(r"^burn \(", done.stdout, re.MULTILINE)) == 2, done.stdout


def test_the_versions_are_those_that_are_checked() -> None:
    assert f"{OLDEST_KUBERNETES[0]}.{OLDEST_KUBERNETES[1]} and later" in VERSIONS
    assert f"{OLDEST_DRIVER} (CUDA 12.0) or later" in VERSIONS
    assert set(GATES) <= set(re.findall(r"`(\w+)`", VERSIONS))


def test_each_version_of_the_changelog_has_notes_for_who_upgrades_and_none_else_has() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text()
    headings = re.findall(r"^## \[?(\d+\.\d+)", changelog, re.MULTILINE)
    minor = __version__.rpartition(".")[0]
    _, _, by_version = UPGRADE.partition("\n## By version\n")
    noted = re.findall(r"^### (\d+\.\d+)\.\d+$", by_version, re.MULTILINE)
    assert noted == list(dict.fromkeys([minor, *headings]))


def test_what_is_deprecated_is_in_the_changelog() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text()
    assert ("Nothing is deprecated now." in VERSIONS) == ("\n### Deprecated\n" not in changelog)
