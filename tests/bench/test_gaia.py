"""The cases of the Gaia paper get the GPUs that the paper gives them, whatever came before."""

import random

import pytest
from bench.gaia import training

from kubeshare.simulator.figures.gaia.cases import CASES, Case
from kubeshare.simulator.figures.gaia.placement import SEED, play

RUNS = 5


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_each_request_always_gets_the_same_gpus_which_are_the_papers(case: Case) -> None:
    found = play(case, RUNS)
    assert [sum(counts.values()) for counts in found] == [RUNS] * len(case.requests)
    assert all(len(counts) == 1 for counts in found)
    for counts, paper in zip(found, case.paper, strict=bool(case.paper)):
        assert counts.keys() <= paper.keys()


def test_the_tables_of_the_paper_have_500_runs() -> None:
    assert all(sum(paper.values()) == 500 for case in CASES for paper in case.paper)


def test_gaia_keeps_both_pairs_of_experiment_6_and_stock_may_not() -> None:
    assert training.links_of(training.placed_by_gaia()) == ["PIX", "PXB"]
    draw = random.Random(SEED)
    drawn = [training.links_of(training.drawn(draw)) for _ in range(training.RUNS)]
    assert ["SYS", "SYS"] in drawn
    assert any(links != ["SYS", "SYS"] for links in drawn)


@pytest.mark.slow
def test_a_job_takes_its_computing_and_its_copies_over_the_link() -> None:
    """Or longer, where this machine was so busy that the GPU waited for it."""
    job = training.JOBS[0]
    with training.machine(training.of_the_paper(training.SPEEDS)) as gpus:
        for pair, link in (((2, 3), "PIX"), ((0, 2), "SYS")):
            step = training.COMPUTE_US / 1e6 + 2 * 4 * job.parameters / training.SPEEDS[link] / 1e6
            assert gpus.seconds(job, pair, 100) > 0.999 * 100 * step
