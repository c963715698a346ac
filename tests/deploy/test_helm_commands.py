"""The Helm commands of the pages are what Helm and the chart accept."""

import re
import shlex
from pathlib import Path

import pytest
import yaml

from deploy.helm import IMAGE, Helm
from kubeshare.lab.images import binaries
from kubeshare.lab.progress import Progress

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
CHART = "deploy/chart/kubeshare"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def commands(page: Path) -> list[str]:
    """What its fenced blocks run with Helm."""
    text = page.read_text()
    fenced = "\n".join(re.findall(r"^```\w*\n(.*?)^```$", text, re.DOTALL | re.MULTILINE))
    found = re.findall(r"^(?:\$ )?helm ((?:[^\n]*\\\n)*[^\n]*)$", fenced, re.MULTILINE)
    return [each.replace("\\\n", " ") for each in found]


COMMANDS = {
    f"{page.stem}-{number}-{each.split()[0]}": shlex.split(each)
    for page in PAGES
    for number, each in enumerate(commands(page))
}
RENDERED = {"install", "upgrade", "template"}


@pytest.fixture(scope="module")
def helm(tmp_path_factory: pytest.TempPathFactory) -> Helm:
    return Helm(binaries.helm(Progress()), tmp_path_factory.mktemp("helm"))


def test_the_pages_have_the_whole_life_of_a_release() -> None:
    verbs = {command[0] for command in COMMANDS.values()}
    assert verbs >= {"install", "test", "template", "upgrade", "history", "rollback", "uninstall"}


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_the_flags_are_those_of_helm(helm: Helm, command: list[str]) -> None:
    known = set(re.findall(r"--[a-z-]+", helm(command[0], "--help")))
    assert {word.partition("=")[0] for word in command if word.startswith("--")} <= known


@pytest.mark.parametrize("name", [name for name, words in COMMANDS.items() if words[0] in RENDERED])
def test_the_values_are_those_of_the_chart(helm: Helm, name: str, tmp_path: Path) -> None:
    command = COMMANDS[name]
    values = tmp_path / "values.yaml"
    values.write_text(yaml.safe_dump({"image": IMAGE}))
    mine = {CHART: str(ROOT / CHART), "values.yaml": str(values)}
    given = [mine.get(word, word) for word in command if word not in {"--wait", "--reuse-values"}]
    # What a release has already.
    if "--reuse-values" in command:
        given += ["--values", str(values)]
    given = [word.replace("YOUR/", "registry.example/") for word in given]
    # An upgrade asks the cluster first; an installation reads the same values.
    assert "kind: DaemonSet" in helm("install", *given[1:], "--dry-run=client")
