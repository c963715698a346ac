"""The cases of the Gaia paper get the GPUs that the paper gives them, whatever came before."""

import pytest
from bench.gaia.cases import CASES, Case
from bench.gaia.placement import play

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
