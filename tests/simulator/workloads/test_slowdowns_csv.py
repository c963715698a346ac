"""Measured slowdowns: what the shares explain of them is not counted twice."""

from pathlib import Path

import pytest

from kubeshare.simulator.errors import SimulationError
from kubeshare.simulator.jobs import Job
from kubeshare.simulator.workloads.slowdowns_csv import read_slowdowns
from simulator.builders import Played, job

HEAD = "kind,need,request,beside,beside_need,beside_request,slowdown"
KEPT = Path(__file__).parents[3] / "bench/results/2026-11-28-slowdowns-fake-gpu.csv"
NEEDS = {"A": 0.3, "B": 0.75}


def written(folder: Path, *rows: str, head: str = HEAD) -> Path:
    path = folder / "slowdowns.csv"
    path.write_text("\n".join([head, *rows, ""]))
    return path


def of_kind(kind: str, name: str) -> Job:
    return job(name, request=0.45, need=NEEDS[kind], kind=kind)


def slowed(path: Path, first: str, second: str) -> float:
    """How much longer the first takes beside the second than alone."""
    beside = job("beside", work=1000, request=0.45, need=NEEDS[second], kind=second)
    found = Played([of_kind(first, "first"), beside], slowdowns=read_slowdowns(path))
    return found.finished_at["first"] / 10


@pytest.mark.parametrize(("measured", "simulated"), [(1.5, 1.5), (1.8, 1.8), (1.2, 1.5)])
def test_contention_is_not_counted_twice(tmp_path: Path, measured: float, simulated: float) -> None:
    # Half of the GPU instead of .75 makes 1.5; only what is measured beyond that is added.
    path = written(tmp_path, f"B,0.75,0.45,B,0.75,0.45,{measured}")
    assert slowed(path, "B", "B") == pytest.approx(simulated)


def test_the_pairs_of_figure_12_take_as_long_as_they_were_measured() -> None:
    pairs = {(row.split(",")[0], row.split(",")[3]): row for row in KEPT.read_text().split()[1:]}
    assert len(pairs) == 4
    for (kind, beside), row in pairs.items():
        assert slowed(KEPT, kind, beside) == pytest.approx(float(row.split(",")[-1]), abs=0.011)


def test_a_job_that_its_limit_holds_is_not_slowed_by_what_it_would_not_get(tmp_path: Path) -> None:
    head = f"{HEAD},limit,beside_limit"
    path = written(tmp_path, "B,1,0.4,B,1,0.4,1.2,0.5,0.5", head=head)
    assert read_slowdowns(path) == {("B", "B"): pytest.approx(1.2)}


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ("B,0.75,0.45,B,0.75,0.45,0", "slowdown: it is more than 0"),
        ("B,0.75,0.45,B,0.75,0.45,x", "slowdown: 'x' is not a number"),
        (",0.75,0.45,B,0.75,0.45,1", "kind, beside: one is missing"),
        ("B,0,0.45,B,0.75,0.45,1", "need: it is more than 0"),
        ("B,2,0.45,B,0.75,0.45,1", "need: 2 is more than 1"),
        ("B,1,0.7,B,0.75,0.45,1", "the two ask for more than a GPU"),
        ("A,1,0.1,A,0.75,0.45,1", "A beside A occurs twice"),
    ],
)
def test_an_invalid_line_is_named(tmp_path: Path, row: str, words: str) -> None:
    with pytest.raises(SimulationError, match=":3: ") as raised:
        read_slowdowns(written(tmp_path, "A,0.75,0.45,A,0.75,0.45,1", row))
    assert words in str(raised.value)
