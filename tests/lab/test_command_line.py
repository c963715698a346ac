"""`kubeshare lab` where there is no lab."""

import fcntl
import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from kubeshare.cli.lab import lab
from kubeshare.cli.main import main
from kubeshare.lab import cluster, layout


@pytest.fixture(autouse=True)
def _no_lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "STATE_ROOT", tmp_path)
    monkeypatch.setattr(cluster, "STATE_ROOT", tmp_path)


def test_status_says_none() -> None:
    result = CliRunner().invoke(lab, ["status"])

    assert (result.exit_code, result.output) == (0, "none\n")


def test_status_as_json_is_an_empty_list() -> None:
    assert CliRunner().invoke(lab, ["status", "-o", "json"]).output == "[]\n"


def test_kubectl_says_how_to_get_a_lab(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lab", "kubectl", "--name", "x", "--", "get", "pods"]) == 3

    assert "there is no lab x: `kubeshare lab up --name x`" in capsys.readouterr().err


def test_a_name_that_does_not_fit_is_wrong_use(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lab", "down", "--name", "../etc"]) == 2

    assert "is no name for a lab" in capsys.readouterr().err


def test_a_profile_that_is_none_is_wrong_use(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lab", "up", "--name", "x", "--gpus", "many"]) == 2

    assert "no profile many: use a name like V100x2" in capsys.readouterr().err


def test_more_dra_nodes_than_nodes_are_wrong_use(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lab", "up", "--name", "x", "--nodes", "1", "--dra", "2"]) == 2

    assert "of 1 nodes, 2 cannot be DRA nodes" in capsys.readouterr().err


def test_profiles_for_some_of_the_nodes_are_wrong_use(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lab", "up", "--name", "x", "--nodes", "3", "--gpus", "V100x2,none"]) == 2

    assert "3 nodes, and GPUs of 2: name one profile for all" in capsys.readouterr().err


def test_a_lab_that_is_there_is_not_made_anew_with_another_shape(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "lab.json").write_text('{"nodes": 1, "gpus": "none"}')

    assert main(["lab", "up", "--name", "x", "--nodes", "3"]) == 2

    assert (
        "lab x has 1 nodes with none each: `kubeshare lab down --name x`" in capsys.readouterr().err
    )


def test_two_at_once_do_not_disturb_each_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "x").mkdir()
    handle = os.open(tmp_path / "x", os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)

    assert main(["lab", "down", "--name", "x"]) == 3

    os.close(handle)
    assert "another `kubeshare lab up` or `down` of x is at work" in capsys.readouterr().err


def test_logs_of_an_unknown_component_name_those_there_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "lab.json").write_text('{"nodes": 1, "gpus": "none"}')

    assert main(["lab", "logs", "--name", "x", "node-9/kubelet"]) == 2

    assert "node-1/kubelet" in capsys.readouterr().err
