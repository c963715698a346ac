"""`kubeshare reproduce all`: what is kept, the summary, and the exit codes."""

import csv
import json
import subprocess
from pathlib import Path

import pytest

from kubeshare.cli.main import main
from kubeshare.cli.reproduce import command, everything, provenance
from kubeshare.simulator.experiment import Progress
from kubeshare.simulator.figures import catalogue
from kubeshare.simulator.figures.catalogue import Entry, Make
from kubeshare.simulator.figures.figure import Claim, Figure, NotReproducedError, Quoted, bars


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


def test_results_of_an_earlier_run_are_removed_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert run(monkeypatch, tmp_path, one=made("one"), two=made("two")) == 0
    (tmp_path / "notes.txt").write_text("mine")
    assert run(monkeypatch, tmp_path, one=missing, two=interrupted) == 130
    left = sorted(path.name for path in tmp_path.iterdir())
    assert left == ["README.md", "notes.txt", "summary.csv", "summary.json"]


def test_a_quoted_figure_is_not_of_this_commit_and_machine(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = Quoted(file="results/old.txt", date="2020-02-02", commit="abc", machine="two cores")
    claim = Claim(paper="says so", here="was so", holds=True)
    quoted = Figure(name="old", title="", table=[["a"], ["b"]], claims=[claim], quoted=kept)
    makes = {"one": made("one"), "old": lambda *_: quoted}
    assert run(monkeypatch, tmp_path, "-o", "csv", **makes) == 0
    rows = list(csv.DictReader(capsys.readouterr().out.splitlines()))
    assert rows[0]["ours"] == "is so"
    assert rows[1]["ours"] == "was so (measured 2020-02-02, commit abc, two cores)"
    old, new = (json.loads((tmp_path / f"{name}.json").read_text()) for name in ("old", "one"))
    made_of = [old[key] for key in ("date", "commit", "machine", "python", "version")]
    assert made_of == ["2020-02-02", "abc", "two cores", "", ""]
    assert "" not in (new["date"], new["machine"], new["python"])
    assert "Ran: simulation, quoted from results/old.txt" in (tmp_path / "old.txt").read_text()


def test_a_changed_tree_is_marked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def git(*words: str) -> None:
        of = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b.c", *words]
        subprocess.run(of, check=True, capture_output=True)

    file = tmp_path / "kept.txt"
    file.write_text("1")
    git("init", "-q")
    git("add", ".")
    git("commit", "-q", "-m", "first")
    monkeypatch.setattr(provenance, "CLONE", tmp_path)
    clean = provenance.Provenance.here(1)
    assert clean.commit.isalnum()
    file.write_text("2")
    changed = provenance.Provenance.here(1)
    assert changed.commit == f"{clean.commit}-dirty"


@pytest.mark.parametrize("options", [["all", "--plot", "x.png"], ["9", "--out", "x"]])
def test_options_of_the_other_kind_are_wrong_use(options: list[str]) -> None:
    assert main(["reproduce", *options]) == 2
