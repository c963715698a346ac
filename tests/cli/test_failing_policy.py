"""`plan` and `sim` name a policy of another package that fails."""

import json
from pathlib import Path

import pytest

from fakes.policy_package import FULL, HEAD, RAISING, WHO, install_policy
from kubeshare.cli.main import main

SCENARIO = """\
policy: house
nodes: [{name: n1, gpus: 2}]
events:
  - request: {name: a, request: 0.6}
  - request: {name: b, request: 0.6}
  - release: a
"""
RAISED = f"{WHO} raised ZeroDivisionError: oh (line 6 of house_policy)"
TOO_FULL = f"{WHO} chose n1/0, which does not fit: compute 0.4 left, 0.6 asked"


def plan(folder: Path, capsys: pytest.CaptureFixture[str], *options: str) -> list[str]:
    (folder / "scenario.yaml").write_text(SCENARIO)
    assert main(["plan", str(folder / "scenario.yaml"), *options]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    return captured.out.splitlines()


def test_plan_says_what_it_raised_and_decides_nothing_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    install_policy(tmp_path, monkeypatch, RAISING)
    assert plan(tmp_path, capsys, "--explain") == [
        "0: a: pending (policy)",
        f"    policy: {RAISED}",
        "1: b: pending (policy)",
        f"    policy: {RAISED}",
    ]


def test_plan_refuses_what_does_not_fit_and_asks_again_after_a_release(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    install_policy(tmp_path, monkeypatch, FULL)
    first, second, third = map(json.loads, plan(tmp_path, capsys, "-o", "json"))
    assert (first["decision"], first["gpus"]) == ("bound", ["0"])
    assert (second["decision"], second["reasons"]) == ("pending", {"policy": TOO_FULL})
    assert (third["event"], third["decision"], third["gpus"]) == (1, "bound", ["0"])


@pytest.mark.parametrize("tier", ["core", "control"])
@pytest.mark.parametrize(
    ("source", "words"), [(RAISING, RAISED), (f"{HEAD}    return 7\n", f"{WHO} answered with int")]
)
def test_sim_ends_because_the_numbers_would_mean_nothing(  # noqa: PLR0917 - fixtures
    source: str,
    words: str,
    tier: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    install_policy(tmp_path, monkeypatch, source)
    assert main(["sim", "--jobs", "5", "--policy", "house", "--tier", tier]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"kubeshare: {words}")
    assert "; it was asked about " in error
    assert "Traceback" not in error
