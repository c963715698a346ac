"""What load costs an earlier commit beside this one."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from bench.cluster import beside, earlier, load

LOOK = {"what": "a look, ms", "value": 0.5, "met": True}


def test_each_number_is_beside_that_of_the_earlier_commit() -> None:
    [line] = load.beside([LOOK | {"value": 20.0, "met": False}], "", [LOOK])
    assert line == LOOK | {"before": 20.0, "ratio": 0.025}


def test_a_number_that_the_earlier_commit_does_not_give_is_null() -> None:
    [line] = load.beside([], "cut off", [LOOK])
    assert line == LOOK | {"before": None, "ratio": None, "why": "cut off"}


def test_no_ratio_is_made_of_nothing() -> None:
    [line] = load.beside([LOOK | {"value": 0.0}], "", [LOOK])
    assert (line["before"], line["ratio"]) == (0.0, None)


def answers(monkeypatch: pytest.MonkeyPatch, of_before: Any, of_this: Any) -> list[Path]:
    """Let each run end as given; returns the trees of the runs."""
    trees: list[Path] = []

    def run(argv: list[str], **more: Any) -> Any:
        if argv[0] in ("git", "tar"):
            return SimpleNamespace(stdout=b"")
        trees.append(Path(more["env"]["PYTHONPATH"]).parent)
        return of_this if trees[-1] == beside.ROOT else of_before

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(load, "ROWS", (("bench.some", "1"),))
    return trees


def ended(code: int, *lines: Any, log: bytes = b"") -> Any:
    output = "\n".join(json.dumps(line) for line in lines).encode()
    return SimpleNamespace(returncode=code, stdout=output, stderr=log)


def test_what_is_cut_off_keeps_the_numbers_it_has_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    more = {"what": "a share, s", "value": 1.0, "met": True}
    first = LOOK | {"value": 20.0}
    trees = answers(monkeypatch, ended(-24, {"machine": {}}, first), ended(0, LOOK, more))
    assert load.compare("c0ffee") == [True, True]
    assert len(trees) == 2
    assert trees[0] != trees[1] == beside.ROOT
    look, share = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert (look["before"], share["before"]) == (20.0, None)
    assert "processor time" in share["why"]


def test_this_commit_has_to_give_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    log = b"Traceback (most recent call last):\nValueError: no such size"
    answers(monkeypatch, ended(0, LOOK), ended(1, log=log))
    with pytest.raises(RuntimeError, match=r"bench.some 1 with this commit: ValueError: no such"):
        load.compare("c0ffee")


def test_what_a_commit_lacks_is_taken_from_this_one(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "kubeshare.simulator.control.step_times"
    assert earlier.add_modules((name,)) == []
    monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    assert earlier.add_modules((name,)) == [name]
    assert sys.modules[name].StepTimes().count == 0


def test_programs_that_have_the_names_keep_theirs() -> None:
    old, new = SimpleNamespace(), SimpleNamespace(collections_paused=1, wait_for_sync=2)
    earlier.add_names(old, old)
    assert callable(old.collections_paused)
    assert callable(old.wait_for_sync)
    earlier.add_names(new, new)
    assert (new.collections_paused, new.wait_for_sync) == (1, 2)
