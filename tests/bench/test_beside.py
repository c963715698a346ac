"""A commit beside an earlier one: both are run in turns, and their rates are compared."""

import json
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from bench.cluster import beside
from bench.cluster.rate import Size

SIZE = Size(2, 10, 1.0)


def lines(rate: float) -> bytes:
    """What a run prints, with a goal that is missed."""
    each: dict[str, Any] = {"to_running_a_second": rate}
    whats = (
        "10 SharePods, applied to pod created: rate",
        "CPU of the control plane a SharePod, ms",
        "writes of our programs a SharePod up to Ready",
    )
    found = [{"what": what, "value": 3.0, "each": [each]} for what in whats]
    return "\n".join(json.dumps(one) for one in [{"machine": {}}, *found]).encode()


def test_the_earlier_commit_runs_from_its_own_sources_in_turns(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    trees: list[Path] = []

    def run(argv: list[str], **more: Any) -> Any:
        if argv[0] == "git":
            return SimpleNamespace(stdout=b"")
        if argv[0] == "tar":
            return None
        trees.append(Path(more["env"]["PYTHONPATH"]).parent)
        here = trees[-1] == Path(beside.__file__).parents[2]
        return SimpleNamespace(stdout=lines(30.0 if here else 20.0), returncode=1)

    monkeypatch.setattr(subprocess, "run", run)
    results = beside.compare("c0ffee", SIZE, 2)
    assert len(trees) == 4
    assert trees[0] == trees[2] != trees[1] == trees[3]
    assert results[-1] is True
    ratio = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (ratio["value"], ratio["before"], ratio["after"]) == (1.5, [20, 20], [30, 30])


def test_a_run_that_ends_without_numbers_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(argv: list[str], **_: Any) -> Any:
        return subprocess.CompletedProcess(argv, 1 if "-m" in argv else 0, stdout=b"")

    monkeypatch.setattr(subprocess, "run", run)
    with pytest.raises(subprocess.CalledProcessError):
        beside.compare("c0ffee", SIZE, 1)
