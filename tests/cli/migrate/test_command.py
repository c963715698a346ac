"""The command line of ``kubeshare migrate``."""

import json
from pathlib import Path

import pytest
import yaml

from kubeshare.cli.main import main

POLICY = {
    "kind": "Policy",
    "extenders": [{"urlPrefix": "http://127.0.0.1:32766/gpushare-scheduler", "bindVerb": "bind"}],
}


@pytest.mark.parametrize("system", ["gpushare", "gpu-manager"])
def test_one_of_the_three_modes_is_needed(system: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["migrate", system]) == 2
    assert "give one of --plan, --apply and --back" in capsys.readouterr().err


def test_without_a_cluster_it_says_that_it_reached_none(tmp_path: Path) -> None:
    nowhere = tmp_path / "kubeconfig"
    assert main(["migrate", "gpushare", "--plan", "--kubeconfig", str(nowhere)]) == 3


@pytest.mark.parametrize("written", [json.dumps(POLICY), yaml.safe_dump(POLICY)])
def test_a_policy_file_becomes_a_configuration(
    written: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "policy"
    file.write_text(written)
    assert main(["migrate", "scheduler-policy", str(file)]) == 0
    found = yaml.safe_load(capsys.readouterr().out)
    assert found["kind"] == "KubeSchedulerConfiguration"
    assert found["extenders"][0]["bindVerb"] == "bind"


def test_what_is_left_out_is_named_and_the_answer_is_no(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "policy.json"
    file.write_text(json.dumps(POLICY | {"priorities": [{"name": "x", "weight": 1}]}))
    assert main(["migrate", "scheduler-policy", str(file)]) == 1
    assert "not translated: priorities: is set by plugins" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["{", "kind: [", "\0", "a: b: c", "kind: Pod"])
def test_another_file_is_wrong_use(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "policy.json"
    file.write_text(text)
    assert main(["migrate", "scheduler-policy", str(file)]) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith("kubeshare: ")


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    file = tmp_path / "policy.json"
    file.write_text(" " * (2 << 20))
    assert main(["migrate", "scheduler-policy", str(file)]) == 2
