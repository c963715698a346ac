"""Tables align, CSV is safe to open, and colours stop where nobody wants them."""

import sys

import pytest

from kubeshare.cli import doctor
from kubeshare.cli.output import aligned, coloured, csv_text
from kubeshare.install.checks.finding import Finding, Level

ROWS = [["NAME", "N"], ["a", "10"], ["long", "1"]]


def test_columns_are_of_one_width() -> None:
    assert aligned(ROWS) == ["NAME  N", "a     10", "long  1"]
    assert aligned(ROWS, words=1) == ["NAME   N", "a     10", "long   1"]
    assert aligned([["x", "y"], ["1", ""]], words=0) == ["x  y", "1"]


def test_csv_marks_what_a_spreadsheet_would_calculate() -> None:
    rows: list[list[object]] = [
        ["a", "b"],
        ["=1+1", "-0.5"],
        ["-", "@x"],
        [True, None],
        [-1.5, 'say "x, y"'],
    ]
    assert csv_text(rows).splitlines() == [
        "a,b",
        "'=1+1,-0.5",
        "-,'@x",
        "true,",
        '-1.5,"say ""x, y"""',
    ]


@pytest.mark.parametrize(
    ("terminal", "environment", "colours"),
    [
        (True, {}, True),
        (False, {}, False),
        (True, {"NO_COLOR": "1"}, False),
        (True, {"NO_COLOR": ""}, True),
        (True, {"TERM": "dumb"}, False),
    ],
)
def test_colours_stop_when_piped_and_by_no_color(
    terminal: bool,
    environment: dict[str, str],
    colours: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert ("\x1b[" in coloured("FAIL", "red")) == colours
    found = [Finding(check="c", level=Level.FAIL, seen="s", fix="f")]
    assert ("\x1b[" in doctor._as_table(found)) == colours
