"""Files of `kubeshare sim`: the report, and Parquet."""

import csv
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, NoReturn

import click
import polars as pl
import pytest
from click.testing import CliRunner, Result

from kubeshare.cli.main import main
from kubeshare.cli.simulate.chart import chart, ticks
from kubeshare.cli.simulate.command import simulate
from kubeshare.cli.simulate.files import check_parquet_output
from kubeshare.simulator import systems
from kubeshare.simulator.systems import System

SMALL = ["--jobs", "40", "--nodes", "1", "--gpus", "2"]


def sim(*arguments: str) -> Result:
    return CliRunner().invoke(simulate, arguments, catch_exceptions=False, standalone_mode=False)


class Page(HTMLParser):
    """The tables, all other text, and what elements load."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.tables: list[list[list[str]]] = []
        self.text = ""
        self.loads: list[str] = []
        self.tags: list[str] = []
        self._open: list[str] = []
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self._open.append(tag)
        self.loads += [f"{tag} {value}" for name, value in attrs if name in ("src", "href")]
        if tag == "table":
            self.tables.append([])
        if tag == "tr":
            self.tables[-1].append([])
        if tag in ("td", "th"):
            self.tables[-1][-1].append("")

    def handle_endtag(self, tag: str) -> None:
        del tag
        self._open.pop()

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] in ("td", "th"):
            self.tables[-1][-1][-1] += data
        self.text += data


def stopping_after(decisions: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Register a policy `stopped`, at which the user presses Ctrl-C."""
    inner = systems.system("locality", systems.Setting(0)).policy
    made = 0

    def decide(ledger: Any, demand: Any) -> Any:
        nonlocal made
        made += 1
        if made > decisions:
            raise KeyboardInterrupt
        return inner(ledger, demand)

    monkeypatch.setitem(
        systems.BASELINES, "stopped", lambda _: System(name="stopped", policy=decide)
    )


def test_the_report_has_the_table_the_course_each_run_and_the_options(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    policies = ["--policy", "locality", "--policy", "whole", "--seeds", "2"]
    printed = sim(*SMALL, *policies, "--report", str(path)).stdout.splitlines()
    page = Page(path)
    means, runs, options = page.tables
    assert [" ".join(row).split() for row in means] == [line.split() for line in printed[1:4]]
    assert [row[:2] for row in runs[1:]] == [
        *(["locality", "0"], ["locality", "1"], ["whole", "0"], ["whole", "1"])
    ]
    assert ["--policy", "locality, whole"] in options
    assert f"kubeshare sim: {printed[0]}" in page.text
    assert page.tags.count("polyline") == 4 * 2
    assert "Partial" not in page.text
    # Tables align: each row has as many cells as its head.
    assert all(len({len(row) for row in table}) == 1 for table in page.tables)


def test_a_browser_loads_nothing_for_the_report(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    sim(*SMALL, "--report", str(path))
    page = Page(path)
    assert page.loads == []
    assert {"script", "link", "img", "iframe", "object"}.isdisjoint(page.tags)
    assert "url(" not in path.read_text()
    assert "@import" not in path.read_text()
    assert "default-src 'none'" in path.read_text()


def test_names_are_no_html(tmp_path: Path) -> None:
    jobs, path = tmp_path / "<b>&.csv", tmp_path / "report.html"
    jobs.write_text("arrival,duration,gpus\n0,1,1\n1,1,9\n")
    sim(str(jobs), "--report", str(path))
    assert "b" not in Page(path).tags
    assert f"{tmp_path}/<b>&.csv" in Page(path).text


def test_an_interrupted_run_has_a_report_that_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stopping_after(10, monkeypatch)
    report, ended = tmp_path / "report.html", tmp_path / "ended.parquet"
    many = ["--jobs", "40", "--interarrival", "30", "--duration", "5", "--policy", "stopped"]
    assert main(["sim", *many, "--report", str(report), "--ended", str(ended)]) == 130
    capsys.readouterr()
    assert "Partial: it was interrupted." in Page(report).text
    assert "stopped (partial)" in Page(report).text
    assert 5 <= len(pl.read_parquet(ended)) <= 10


def test_a_policy_that_fails_is_named_in_the_report(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(ledger: Any, demand: Any) -> NoReturn:
        raise KeyError("house")

    monkeypatch.setitem(systems.BASELINES, "broken", lambda _: System(name="broken", policy=broken))
    path = tmp_path / "report.html"
    policies = ["--policy", "locality", "--policy", "broken"]
    assert main(["sim", *SMALL, *policies, "--report", str(path)]) == 2
    capsys.readouterr()
    assert "Partial: policy broken failed at job-0: KeyError: 'house'." in Page(path).text


def test_parquet_has_the_rows_of_the_csv_files(tmp_path: Path) -> None:
    for ending in ("csv", "parquet"):
        names = [f"--{name}={tmp_path / name}.{ending}" for name in ("ended", "series")]
        sim(*SMALL, "--seeds", "2", *names)
    for name in ("ended", "series"):
        with (tmp_path / f"{name}.csv").open() as file:
            rows = list(csv.DictReader(file))
        frame = pl.read_parquet(tmp_path / f"{name}.parquet")
        assert [{key: str(value) for key, value in row.items()} for row in frame.to_dicts()] == rows
        assert frame["seed"].dtype == pl.Int64
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [*[".csv"] * 2, *[".parquet"] * 2]


def test_the_runs_are_printed_as_parquet() -> None:
    found = sim(*SMALL, "--seeds", "2", "-o", "parquet")
    frame = pl.read_parquet(found.stdout_bytes)
    lines = sim(*SMALL, "--seeds", "2", "-o", "csv").stdout.splitlines()
    assert frame.columns == lines[0].split(",")
    assert [str(value) for value in frame.row(1)] == lines[2].replace("false", "False").split(",")


@pytest.mark.parametrize("options", [["-o", "parquet"], ["--ended", "{}"], ["--series", "{}"]])
def test_without_polars_it_says_what_to_install_before_anything_runs(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    options: list[str],
) -> None:
    monkeypatch.setitem(sys.modules, "polars", None)
    given = [each.format(tmp_path / "x.parquet") for each in options]
    assert main(["sim", *SMALL, *given]) == 3
    shown = capsys.readouterr()
    assert "pip install 'kubeshare[simulator]'" in shown.err
    assert shown.out == ""
    assert not list(tmp_path.iterdir())


def test_parquet_is_not_printed_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal:
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stdout", Terminal())
    with pytest.raises(click.UsageError, match="redirect it to a file"):
        check_parquet_output()


@pytest.mark.parametrize(
    ("most", "expected"),
    [
        (0, [0, 1]),
        (1, [0, 0.2, 0.4, 0.6, 0.8, 1]),
        (32, [0, 10, 20, 30, 40]),
        (500, range(0, 501, 100)),
    ],
)
def test_axes_have_round_numbers(most: float, expected: list[float]) -> None:
    assert ticks(most) == pytest.approx(list(expected))


def test_a_chart_of_days_is_in_days_and_keeps_to_its_frame() -> None:
    svg = chart("A <title>", {"a": [(0, 0), (400_000, 7)], "b": []})
    assert ">days</text>" in svg
    assert 'aria-label="A &lt;title&gt;"' in svg
    points = svg.split('points="')[1].split('"')[0]
    assert points.startswith("56.0,180.0 ")
    assert all(0 <= float(number) <= 640 for pair in points.split() for number in pair.split(","))
