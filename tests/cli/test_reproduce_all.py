"""`kubeshare reproduce all`: what is kept, the summary, and the exit codes."""

import csv
import json
from pathlib import Path

import pytest

from kubeshare.cli.main import main
from kubeshare.cli.reproduce import command, everything
from kubeshare.simulator.experiment import Progress
from kubeshare.simulator.figures import catalogue
from kubeshare.simulator.figures.catalogue import Entry, Make
from kubeshare.simulator.figures.figure import Claim, Figure, NotReproducedError, bars


def made(name: str, *, holds: bool = True) -> Make:
    def make(seeds: int, progress: Progress) -> Figure:
        del seeds, progress
        claim = Claim(paper="says so", here="is so", holds=holds, why="" if holds else "a reason")
        return Figure(name=name, title="Title", lines={"a": bars([1])}, ticks=["t"], claims=[claim])

    return make


def missing(seeds: int, progress: Progress) -> Figure:
    raise NotReproducedError("needs a clone")


def interrupted(seeds: int, progress: Progress) -> Figure:
    raise KeyboardInterrupt


def run(monkeypatch: pytest.MonkeyPatch, folder: Path, *output: str, **makes: Make) -> int:
    entries = {name: Entry(make) for name, make in makes.items()}
    for module in (catalogue, command, everything):
        monkeypatch.setattr(module, "FIGURES", entries)
    return main(["reproduce", "all", "--out", str(folder), *output])


def test_every_figure_is_kept_with_its_picture_and_a_page_shows_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "results"
    table = Figure(name="table", title="Rows", table=[["a"], ["b"]], claims=[])
    assert run(monkeypatch, out, one=made("one"), table=lambda *_: table) == 0
    assert (out / "one.png").read_bytes().startswith(b"\x89PNG")
    assert json.loads((out / "one.json").read_text())["holds"] is True
    page = (out / "README.md").read_text()
    assert "| One | holds | says so | is so |" in page
    assert "![One](one.png)" in page
    assert "table.png" not in page
    summary = json.loads((out / "summary.json").read_text())
    assert (summary["partial"], summary["missing"]) == (False, {})
    shown = capsys.readouterr()
    head = shown.out.splitlines()[0]
    assert head.split() == ["figure", "paper", "ours", "why", "they", "differ"]
    assert "1 of 1 claims hold, 2 figures and tables" in shown.out
    assert "[2/2] table" in shown.err


def test_a_claim_that_fails_is_exit_code_1_with_its_reason(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    makes = {"one": made("one", holds=False), "two": missing}
    assert run(monkeypatch, tmp_path, "-o", "csv", **makes) == 1
    rows = list(csv.DictReader(capsys.readouterr().out.splitlines()))
    assert [(row["result"], row["why"]) for row in rows] == [("FAILS", "a reason"), ("-", "")]
    assert rows[1]["ours"] == "needs a clone"


def test_what_cannot_be_made_is_exit_code_3_and_does_not_end_the_rest(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, tmp_path, "-o", "json", two=missing, one=made("one")) == 3
    summary = json.loads(capsys.readouterr().out)
    assert summary["missing"] == {"two": "needs a clone"}
    assert summary["claims"][0]["figure"] == "One"


def test_an_interruption_keeps_what_is_made_and_marks_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    makes = {"one": made("one"), "two": interrupted, "three": made("three")}
    assert run(monkeypatch, tmp_path, **makes) == 130
    assert json.loads((tmp_path / "summary.json").read_text())["partial"] is True
    assert "partial: it was interrupted" in (tmp_path / "README.md").read_text()
    assert (tmp_path / "one.json").exists()
    assert not (tmp_path / "three.json").exists()
    assert "partial" in capsys.readouterr().out


@pytest.mark.parametrize("options", [["all", "--plot", "x.png"], ["9", "--out", "x"]])
def test_options_of_the_other_kind_are_wrong_use(options: list[str]) -> None:
    assert main(["reproduce", *options]) == 2
