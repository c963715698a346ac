"""`kubeshare must-gather` writes an archive, or says why not."""

from pathlib import Path

import pytest

from kubeshare.cli.main import main


def test_a_name_of_something_else_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["must-gather", "-o", str(tmp_path / "a.zip")]) == 2
    assert "--output: 'a.zip' does not end with .tar.gz" in capsys.readouterr().err


def test_a_cluster_that_is_not_configured_leaves_no_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    archive = tmp_path / "a.tar.gz"
    missing = str(tmp_path / "none")
    assert main(["must-gather", "-o", str(archive), "--kubeconfig", missing]) == 3
    assert missing in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_the_archive_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["must-gather"]) == 2
    assert "--output" in capsys.readouterr().err
