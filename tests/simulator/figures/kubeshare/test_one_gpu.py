"""Figures 5, 6, 7 and 12 from what bench/gpu measures, and how it is run."""

from pathlib import Path
from typing import Any

import pytest

from kubeshare.simulator.experiment import no_progress
from kubeshare.simulator.figures.figure import NotReproducedError
from kubeshare.simulator.figures.kubeshare import one_gpu

USAGE = {
    "rises_with_rate": True,
    "points": [
        {"rate": 10, "used": 0.11, "needed": 0.1},
        {"rate": 80, "used": 0.78, "needed": 0.8},
    ],
}
TWO = {"a": 0.5, "b": 0.495}
THREE = {"a": 0.3, "b": 0.4, "c": 0.29}
STAGES = [
    {"title": "A alone", "charged": {"a": 0.6}, "target": {"a": 0.6}},
    {"title": "B comes", "charged": TWO, "target": {"a": 0.5, "b": 0.5}},
    {"title": "C comes", "charged": THREE, "target": {"a": 0.3, "b": 0.4, "c": 0.3}},
    {"title": "C ends", "charged": TWO, "target": {"a": 0.5, "b": 0.5}},
]


def points(*rows: tuple[int, float, float]) -> dict[str, Any]:
    return {
        "points": [
            {
                "quota_ms": quota,
                "drained_lost": lost,
                "turns_lost": lost,
                "share_deviation": deviation,
            }
            for quota, lost, deviation in rows
        ]
    }


def pairs(both: float, mixed: float) -> dict[str, Any]:
    return {
        "pairs": [
            {"pair": ["A", "A"], "slowdown": [1, 1]},
            {"pair": ["A", "B"], "slowdown": [1, mixed]},
            {"pair": ["B", "B"], "slowdown": [both, both]},
        ]
    }


def test_what_agrees_with_the_paper_holds() -> None:
    assert one_gpu.usage_by_rate(USAGE).holds
    assert one_gpu.shares_by_stage({"stages": STAGES}).holds
    assert one_gpu.cost_by_quota(points((30, 0.02, 0.01), (160, 0.01, 0.04))).holds
    assert one_gpu.slowdown_by_pair(pairs(1.5, 1.07)).holds


@pytest.mark.parametrize(
    ("rows", "holds"),
    [
        (((30, 0.06, 0.01), (160, 0.01, 0.04)), [False, True, True]),
        (((30, 0.01, 0.01), (160, 0.02, 0.04)), [True, False, True]),
        (((30, 0.02, 0.04), (160, 0.01, 0.01)), [True, True, False]),
    ],
)
def test_each_claim_about_the_quota_can_fail(
    rows: tuple[tuple[int, float, float], ...], holds: list[bool]
) -> None:
    assert [claim.holds for claim in one_gpu.cost_by_quota(points(*rows)).claims] == holds


def test_pairs_and_shares_that_differ_fail() -> None:
    assert [each.holds for each in one_gpu.slowdown_by_pair(pairs(1.3, 1.2)).claims] == [False] * 2
    off = [*STAGES[:2], STAGES[2] | {"charged": {"a": 0.4, "b": 0.3, "c": 0.3}}, STAGES[3]]
    assert [each.holds for each in one_gpu.shares_by_stage({"stages": off}).claims] == [
        True,
        True,
        False,
        True,
    ]
    assert not one_gpu.usage_by_rate(USAGE | {"rises_with_rate": False}).holds


def stub(folder: Path, code: str) -> Path:
    """A clone whose bench.gpu is this code; `out` is its folder."""
    package = folder / "bench" / "gpu"
    package.mkdir(parents=True)
    for each in (package.parent, package):
        (each / "__init__.py").touch()
    begin = "import json, pathlib, sys\nout = pathlib.Path(sys.argv[sys.argv.index('--out') + 1])\n"
    (package / "__main__.py").write_text(begin + code)
    return folder


def test_the_result_of_the_bench_is_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    write = f"(out / 'results.json').write_text(json.dumps({{'results': {{'figure-5': {USAGE}}}}}))"
    monkeypatch.setattr(one_gpu, "CLONE", stub(tmp_path, write))
    assert one_gpu.figure_5(1, no_progress).holds


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("sys.exit(3)", "exit code 3"),
        (
            "broken = {'results': {'figure-5': {'error': 'no library'}}}\n"  # noqa: ISC004
            "(out / 'results.json').write_text(json.dumps(broken))",
            "no library",
        ),
    ],
)
def test_a_bench_that_fails_says_why(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, code: str, why: str
) -> None:
    monkeypatch.setattr(one_gpu, "CLONE", stub(tmp_path, code))
    with pytest.raises(NotReproducedError, match=f"figure-5: {why}"):
        one_gpu.figure_5(1, no_progress)


def test_without_a_clone_it_says_what_is_needed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(one_gpu, "CLONE", tmp_path)
    with pytest.raises(NotReproducedError, match="run it in a clone, after `make native`"):
        one_gpu.figure_12(1, no_progress)
