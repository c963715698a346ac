"""``python -m bench.compare``: which numbers got worse beyond their spread."""

import json
from pathlib import Path

import pytest
from bench.compare import Number, main, read, verdict

MACHINE = json.dumps({"machine": {"cpu": "EPYC", "commit": "abc1234"}})


def line(what: str, value: float, low: float, high: float, better: str = "lower") -> str:
    entry = {"what": what, "value": value, "low": low, "high": high, "runs": 5, "better": better}
    return json.dumps(entry)


def write(path: Path, *lines: str) -> str:
    path.write_text("\n".join(lines) + "\n")
    return str(path)


@pytest.mark.parametrize(
    ("better", "new", "expected"),
    [
        ("lower", (12, 11.5, 13), "worse"),
        ("lower", (12, 11, 13), "same"),
        ("lower", (8, 7, 8.9), "better"),
        ("higher", (12, 11.5, 13), "better"),
        ("higher", (8, 7, 8.9), "worse"),
        ("higher", (8, 7, 9), "same"),
    ],
)
def test_only_a_change_beyond_the_spread_counts(
    better: str, new: tuple[float, float, float], expected: str
) -> None:
    old = Number(10, 9, 11, 5, better)
    assert verdict(old, Number(*new, 5, better)) == expected


def test_too_few_runs_have_no_spread_to_compare() -> None:
    assert verdict(Number(10, 10, 10, 2, "lower"), Number(99, 99, 99, 5, "lower")) == "no spread"


def test_a_worse_number_fails_and_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old = write(tmp_path / "old", MACHINE, line("decision, µs", 10, 9, 11))
    new = write(tmp_path / "new", MACHINE, line("decision, µs", 15, 14, 16))

    assert main([old, new]) == 1

    output = capsys.readouterr().out
    assert "1.500" in output
    assert "decision, µs" in output
    assert "1 of 1 numbers got worse beyond their spread" in output
    assert "processors differ" not in output


def test_numbers_of_one_output_only_are_listed_and_fail_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old = write(tmp_path / "old", MACHINE, line("both", 1, 1, 1), line("dropped", 1, 1, 1))
    new = write(tmp_path / "new", line("both", 1, 1, 1), line("added", 0, 0, 0))

    assert main([old, new]) == 0

    rows = [text.split() for text in capsys.readouterr().out.splitlines()]
    assert ["1.000", "1", "1", "same", "both"] in rows
    assert ["0", "new", "added"] in rows
    assert ["1", "gone", "dropped"] in rows
    assert any(row[:3] == ["The", "processors", "differ"] for row in rows)


def test_other_lines_are_skipped_and_repeated_numbers_add_up(tmp_path: Path) -> None:
    path = tmp_path / "output"
    write(
        path, "# make bench", "[]", line("a", 2, 1, 3), '{"goals": 1, "met": 1}', line("a", 4, 3, 5)
    )

    assert read(path).numbers == {"a": Number(3, 1, 5, 10, "lower")}


def test_old_outputs_without_a_spread_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "output"
    write(path, '{"what": "a", "goal": "<= 2", "value": 1.5, "met": true}')

    assert read(path).numbers == {"a": Number(1.5, 1.5, 1.5, 1, "lower")}


def test_a_file_without_numbers_is_unusable(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    empty = write(tmp_path / "empty", "nothing here")

    assert main([empty, empty]) == 2
    assert main([str(tmp_path / "absent"), empty]) == 2
    assert "holds no line of a bench" in capsys.readouterr().err
