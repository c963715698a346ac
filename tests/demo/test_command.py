"""`python -m kubeshare.demo`, where it cannot begin."""

import signal
import sys
from pathlib import Path

import pytest

from kubeshare.demo.__main__ import _run


@pytest.mark.slow
def test_a_kubeconfig_that_is_none_is_no_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "config"
    path.write_text("[]")
    monkeypatch.setattr(sys, "argv", ["demo", "--kubeconfig", str(path)])
    monkeypatch.setattr(signal, "signal", lambda *_: None)  # this process is the tests'
    assert _run() == 3
    assert capsys.readouterr().err == (
        f"demo: kubeconfig {path} cannot be used: it is not a kubeconfig\n"
    )
