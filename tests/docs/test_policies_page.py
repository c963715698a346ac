"""What the page about policies shows is what happens."""

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from kubeshare.cli.plan.command import plan
from kubeshare.core.errors import UnknownPolicyError
from kubeshare.core.policies import policy
from kubeshare.core.policies.guard import GuardedPolicy
from kubeshare.policy_testing import PolicyContractError, check_policy

PAGE = (Path(__file__).parents[2] / "docs" / "policies.md").read_text()
SOURCES = str(Path(__file__).parents[2] / "src")


def block(language: str, beginning: str = "") -> str:
    """The first code block of a language that begins so."""
    blocks: list[str] = re.findall(rf"```{language}\n(.*?)```", PAGE, flags=re.DOTALL)
    return next(text for text in blocks if text.startswith(beginning))


def install(folder: Path, entry_points: str, name: str = "spread") -> None:
    """What `pip install` leaves of a package that brings a policy."""
    metadata = folder / f"{name}-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(f"[kubeshare.policies]\n{entry_points}\n")


def plan_with(folder: Path, name: str, code: str, scenario: str, command: str) -> str:
    """What ``kubeshare plan`` prints where a package with this policy is installed."""
    (folder / f"{name}.py").write_text(code)
    install(folder, f"{name} = {name}:decide", name)
    (folder / "scenario.yaml").write_text(scenario)
    result = subprocess.run(
        [sys.executable, "-m", "kubeshare.cli.main", *command.split()[2:]],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": f"{folder}:{SOURCES}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.stderr == ""
    return result.stdout


def test_the_fourth_policy_is_thirty_lines_and_answers_as_the_page_says(tmp_path: Path) -> None:
    code = block("python")
    assert len(code.splitlines()) <= 34
    assert 'spread = "spread:decide"' in block("toml")
    command, _, expected = block(
        "console", "$ kubeshare plan scenario.yaml --explain\n0"
    ).partition("\n")
    scenario = block("yaml", "policy: spread")
    assert plan_with(tmp_path, "spread", code, scenario, command) == expected


def test_the_fourth_policy_keeps_the_contract_by_the_test_of_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "spread.py").write_text(block("python"))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "spread", raising=False)
    test: dict[str, Any] = {}
    exec(block("python", "from kubeshare.policy_testing"), test)
    test["test_spread_keeps_the_contract"]()
    code = block("python").replace("allowed.why_not(device)", "None")
    (tmp_path / "unfiltered.py").write_text(code)
    unfiltered: Any = importlib.import_module("unfiltered").decide
    with pytest.raises(PolicyContractError, match=r"^it chose .*, which does not fit: "):
        check_policy(unfiltered)


def test_the_policy_that_fails_is_named_as_the_page_says(tmp_path: Path) -> None:
    code, scenario = (
        block("python", '"""Place each share on the first'),
        block("yaml", "policy: cr"),
    )
    expected = block("console", "$ kubeshare plan scenario.yaml\n0: a: bound n1/0")
    command, _, expected = expected.partition("\n")
    assert plan_with(tmp_path, "crowd", code, scenario, command) == expected


@pytest.mark.slow
def test_the_gang_of_the_page_is_placed_as_the_page_says() -> None:
    command, _, expected = block("console", "$ kubeshare plan scenario.yaml\n").partition("\n")
    result = subprocess.run(
        [sys.executable, "-m", "kubeshare.cli.main", *command.split()[2:-1], "-"],
        input=block("yaml", "policy: locality"),
        env=os.environ | {"PYTHONPATH": SOURCES},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (result.stdout, result.stderr) == (expected, "")


def test_the_shares_of_the_page_are_placed_as_the_page_says(tmp_path: Path) -> None:
    begin = "$ kubeshare plan scenario.yaml\n"
    expected = block("console", f"{begin}0: trainer: bound n1/A n1/B n1/C").removeprefix(begin)
    section = PAGE[PAGE.index("## Several different shares") :]
    scenario = tmp_path / "scenario.yaml"
    scenario.write_text(section.split("```yaml\n")[1].split("```")[0])
    result = CliRunner().invoke(plan, [str(scenario)], catch_exceptions=False)
    assert (result.exit_code, result.stdout) == (0, expected)


def test_the_moves_of_the_page_are_found_as_the_page_says(tmp_path: Path) -> None:
    command, _, expected = block("console", "$ kubeshare plan scenario.yaml --def").partition("\n")
    section = PAGE[PAGE.index("## Free whole GPUs") :]
    scenario = tmp_path / "scenario.yaml"
    scenario.write_text(section.split("```yaml\n")[1].split("```")[0])
    result = CliRunner().invoke(plan, [str(scenario), command.split()[-1]], catch_exceptions=False)
    assert (result.exit_code, result.stdout) == (0, expected)
    result = CliRunner().invoke(plan, [str(scenario), "--defragment", "-o", "json"])
    first, _ = result.stdout.splitlines()
    assert f"`{first}`" in section


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("nowhere:decide", r"policy spread \(nowhere:decide\) cannot be loaded: No module named"),
        ("spread:missing", r"policy spread \(spread:missing\) cannot be loaded: module 'spread'"),
        ("spread:__name__", r"policy spread \(spread:__name__\) is not a function"),
    ],
)
def test_a_package_that_is_broken_is_named(
    target: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "spread.py").write_text("")
    install(tmp_path, f"spread = {target}")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "spread", raising=False)
    with pytest.raises(UnknownPolicyError, match=words):
        policy("spread")


def test_a_built_in_name_cannot_be_taken_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, "locality = os:getcwd")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert policy("locality").__module__ == "kubeshare.core.policies.locality.policy"


def test_a_policy_from_outside_is_listed_where_a_name_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, "spread = spread:decide")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(UnknownPolicyError, match="these are: binpack, locality, spread, topology"):
        policy("sprad")


def test_a_policy_from_outside_is_the_function_that_it_brings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, "spread = os:getcwd")
    monkeypatch.syspath_prepend(str(tmp_path))
    brought = policy("spread")
    assert isinstance(brought, GuardedPolicy)
    decide: object = brought.decide
    assert decide is os.getcwd


@pytest.mark.parametrize("targets", [("os:getcwd", "os:getpid"), ("os:getpid", "os:getcwd")])
def test_of_two_of_one_name_the_one_whose_target_sorts_first_is_taken(
    targets: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, target in enumerate(targets):
        folder = tmp_path / str(number)
        folder.mkdir()
        install(folder, f"spread = {target}", f"spread{number}")
        monkeypatch.syspath_prepend(str(folder))
    brought = policy("spread")
    assert isinstance(brought, GuardedPolicy)
    decide: object = brought.decide
    assert decide is os.getcwd


def test_an_error_without_words_is_named_by_its_kind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "wordless.py").write_text("raise ArithmeticError\n")
    install(tmp_path, "spread = wordless:decide")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(UnknownPolicyError, match=r"cannot be loaded: ArithmeticError$"):
        policy("spread")
