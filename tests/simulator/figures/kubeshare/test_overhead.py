"""Figures 10 and 11 of the KubeShare paper: what is quoted is what was measured."""

import json
from pathlib import Path

import pytest

from kubeshare.simulator.experiment import no_progress
from kubeshare.simulator.figures.kubeshare import overhead

ROOT = Path(__file__).parents[4]
TOKEN = "pods with a service account's token"


def test_the_quoted_times_are_those_of_the_kept_result() -> None:
    lines = (ROOT / overhead.LAB_RESULTS.file).read_text().splitlines()
    kept = [json.loads(line) for line in lines if line.startswith('{"what": "create')]
    at_once = [each["native_and_sharing_s"] for each in kept if "native_and_sharing_s" in each]
    for place, quoted in enumerate(overhead.CREATE_S.values()):
        assert [[pair[place] for pair in run.values()] for run in at_once] == list(
            map(list, quoted)
        )
        assert all(tuple(map(int, run)) == overhead.AT_ONCE for run in at_once)
    by_what: dict[str, list[float]] = {}
    for each in kept:
        by_what.setdefault(each["what"].removeprefix("create to Running "), []).append(
            each["value"]
        )
    new, warm = "with a new vGPU, by that of a native pod, medians", "on a warm vGPU"
    assert tuple(by_what[new]) == overhead.NEW_VGPU
    assert tuple(by_what[f"{new}, {TOKEN}"]) == overhead.NEW_VGPU_WITH_TOKEN
    (warm,) = (key for key in by_what if key.startswith(warm) and key.endswith(TOKEN))
    assert tuple(by_what[warm]) == overhead.WITH_TOKEN


def test_figure_10_has_both_curves() -> None:
    figure = overhead.figure_10(1, no_progress)
    assert [len(points) for points in figure.lines.values()] == [6, 6]
    assert figure.holds
    assert figure.where == f"the lab, quoted from {overhead.LAB_RESULTS.file}"


@pytest.mark.slow
def test_figure_11_measures_each_number_of_sharepods() -> None:
    (points,) = overhead.figure_11(1, no_progress).lines.values()
    assert [point.x for point in points] == [10, 20, 40, 60, 80, 100]
    assert all(point.y.mean > 0 for point in points)
