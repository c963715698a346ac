"""`kubeshare doctor` prints a table or JSON, and its exit code is the answer."""

import json
from pathlib import Path

import pytest

from kubeshare.cli.main import main


def test_a_node_without_anything_fails_with_what_mends_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["doctor", "--node", "--root", str(tmp_path)]) == 1
    lines = capsys.readouterr().out.splitlines()
    at = next(index for index, line in enumerate(lines) if line.startswith("CDI specs"))
    assert lines[at].split()[2] == "fail"
    assert "to mend: nvidia-ctk cdi generate" in lines[at + 1]
    assert lines[-1] == "1 of 7 checks fail"


def test_json_has_each_check_and_whether_all_is_well(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = tmp_path / "etc/cdi/gpus.json"
    spec.parent.mkdir(parents=True)
    spec.write_text('{"kind": "a/b", "devices": [{"name": "0"}]}')
    assert main(["doctor", "--node", "--root", str(tmp_path), "-o", "json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["ok"] is True
    assert {"check", "level", "seen", "fix"} == set(answer["findings"][0])
    assert answer["findings"][-1]["seen"] == "it is not installed on this node"


def test_a_cluster_that_does_not_answer_is_code_3(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "config"
    config.write_text(
        json.dumps(
            {
                "current-context": "c",
                "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
                "clusters": [{"name": "k", "cluster": {"server": "http://127.0.0.1:1"}}],
                "users": [{"name": "u", "user": {"token": "t"}}],
            }
        )
    )
    assert main(["doctor", "--kubeconfig", str(config)]) == 3
    assert "cannot connect to the API server" in capsys.readouterr().err


def test_a_root_is_for_a_node(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--root", "/host"]) == 2
    assert "--node" in capsys.readouterr().err
