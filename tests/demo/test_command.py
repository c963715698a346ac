"""`python -m kubeshare.demo`, where it cannot begin."""

import signal
import sys
from pathlib import Path

import pytest

from kubeshare.demo.__main__ import _run, _what_comes
from kubeshare.lab.images import binaries


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


@pytest.mark.parametrize(
    ("to_build", "words"),
    [
        ([], ("boots a Kubernetes", "two minutes")),
        (["kubernetes", "containerd"], ("builds kubernetes and containerd", "15 to 20 minutes")),
    ],
)
def test_it_says_first_what_it_will_do_and_how_long_that_takes(
    to_build: list[str], words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(binaries, "to_build", lambda: to_build)
    said = _what_comes(None)
    assert all(word in said for word in words)
    assert ("kubeshare run --fake" in said) == bool(to_build)


def test_an_empty_cache_has_all_to_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert binaries.to_build() == ["kubernetes", "containerd"]
    source = binaries.SOURCES / "go" / "kubernetes"
    (tmp_path / "kubeshare" / f"kubernetes-{binaries._key(source)}").mkdir(parents=True)
    assert binaries.to_build() == ["containerd"]
