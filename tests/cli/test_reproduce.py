"""`kubeshare reproduce`: text, JSON, plot and exit code."""

import json
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kubeshare.cli.main import main
from kubeshare.cli.reproduce.output import as_csv, as_text, draw
from kubeshare.simulator.experiment import Progress
from kubeshare.simulator.figures.catalogue import FIGURES, Entry
from kubeshare.simulator.figures.figure import Claim, Figure, Point, bars, stated
from kubeshare.simulator.measurements import Estimate

SMALL = Figure(
    name="8a",
    title="Throughput",
    x="frequency",
    y="jobs a minute",
    lines={
        "kubernetes": [Point(1, Estimate(16.4, 0.3)), Point(9, Estimate(48.5, None))],
        "kubeshare": [Point(1, Estimate(16.5, 0.3)), Point(9, Estimate(110.0, 2.0))],
    },
    paper={"kubernetes at most": stated((3, 50), (9, 50)), "kubeshare": stated((9, 110))},
    claims=[
        Claim(paper="no difference at low load", here="16.4 and 16.5", holds=True),
        Claim(paper="2.2 times at frequency 9", here="2.1 times", holds=False, why="a reason"),
    ],
    chosen=["a job runs for 38.4 s"],
)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    def figure(seeds: int, progress: Progress) -> Figure:
        del seeds, progress
        return SMALL

    monkeypatch.setitem(FIGURES, "8a", Entry(figure))


@pytest.mark.usefixtures("small")
def test_a_claim_that_fails_is_shown_and_is_exit_code_1(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["reproduce", "8a"]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "Figure 8a: Throughput (jobs a minute)",
        "frequency  kubernetes   kubeshare",
        "        1   16.4 ±0.3   16.5 ±0.3",
        "        9        48.5  110.0 ±2.0",
        "In the paper: kubernetes at most 50 at 3, 50 at 9; kubeshare 110 at 9",
        "holds: no difference at low load",
        "       here: 16.4 and 16.5",
        "FAILS: 2.2 times at frequency 9",
        "       here: 2.1 times",
        "       why: a reason",
        "Ran: simulation",
        "Chosen here, where the paper is silent:",
        "  a job runs for 38.4 s",
    ]


@pytest.mark.slow
@pytest.mark.usefixtures("small")
def test_the_json_has_the_lines_and_the_plot_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "8a.png"
    assert main(["reproduce", "8a", "-o", "json", "--plot", str(path)]) == 1
    answer = json.loads(capsys.readouterr().out)
    assert answer["lines"]["kubeshare"][1] == {"x": 9, "y": {"mean": 110, "half_width": 2}}
    assert [claim["holds"] for claim in answer["claims"]] == [True, False]
    assert (answer["holds"], answer["seeds"], answer["ran"]) == (False, 10, "simulation")
    assert {"commit", "version", "machine", "python"} <= answer.keys()
    assert path.read_bytes().startswith(b"\x89PNG")


@pytest.mark.usefixtures("small")
def test_the_csv_has_a_row_for_each_point(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "8a", "-o", "csv"]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "line,x,mean,half_width",
        "kubernetes,1,16.4,0.3",
        "kubernetes,9,48.5,",
        "kubeshare,1,16.5,0.3",
        "kubeshare,9,110.0,2.0",
        "paper: kubernetes at most,3,50,",
        "paper: kubernetes at most,9,50,",
        "paper: kubeshare,9,110,",
    ]


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The drawings, when they are saved."""
    kept: list[Any] = []
    save = "matplotlib.figure.Figure.savefig"  # by name: only what draws waits for its import
    monkeypatch.setattr(save, lambda drawing, *_, **__: kept.append(drawing))
    return kept


def test_the_numbers_of_the_paper_are_in_the_picture(drawn: list[Any], tmp_path: Path) -> None:
    draw(SMALL, tmp_path / "8a.png")
    (axes,) = drawn[0].axes
    points = {line.get_label(): list(line.get_xydata().flat) for line in axes.get_lines()}
    assert points["paper: kubernetes at most"] == [3, 50, 9, 50]
    assert points["paper: kubeshare"] == [9, 110]
    assert (axes.get_xlabel(), axes.get_yscale()) == ("frequency", "linear")


def test_a_picture_says_that_the_paper_has_no_number(drawn: list[Any], tmp_path: Path) -> None:
    silent = msgspec.structs.replace(SMALL, paper={})
    draw(silent, tmp_path / "8a.png")
    assert drawn[0].axes[0].get_xlabel() == "frequency (the text states no number of it)"
    assert "In the paper: the text states no number of it" in as_text(silent)


def test_numbers_far_from_those_of_the_paper_have_a_logarithmic_axis(
    drawn: list[Any], tmp_path: Path
) -> None:
    draw(msgspec.structs.replace(SMALL, paper={"less than": stated((9, 400_000))}), tmp_path / "p")
    assert drawn[0].axes[0].get_yscale() == "log"


@pytest.mark.parametrize(
    "figure",
    [
        Figure(name="3", title="Bars", lines={"a": bars([1, 0.5])}, ticks=["p", "q"], claims=[]),
        Figure(name="table-1", title="Rows", table=[["a", "b"], ["c", "d"]], claims=[]),
    ],
)
def test_bars_and_tables_have_text_csv_and_a_picture(figure: Figure, tmp_path: Path) -> None:
    path = tmp_path / "picture.png"
    draw(figure, path)
    assert path.read_bytes().startswith(b"\x89PNG")
    words = {"Bars": ["p", "1.00", "q", "0.50"], "Rows": ["c", "d"]}[figure.title]
    shown = [line for line in as_text(figure).splitlines()[2:-1] if "paper" not in line]
    assert [word for line in shown for word in line.split()] == words
    assert len(as_csv(figure).splitlines()) == {"Bars": 3, "Rows": 2}[figure.title]


def test_a_plot_without_matplotlib_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main(["reproduce", "9", "--plot", str(tmp_path / "9.png")]) == 3
    assert "pip install 'kubeshare[sim]'" in capsys.readouterr().err


def test_a_figure_that_is_not_there_is_wrong_use(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "99"]) == 2
    said = capsys.readouterr().err
    assert "'8a', '8b', '8c', '9', '10', '11', '12', '13'" in said
    assert said.count("8a") == 1  # in the usage it was a second time
