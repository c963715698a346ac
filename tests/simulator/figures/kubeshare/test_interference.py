"""Figure 13 of the KubeShare paper: fewer jobs than there, the same shape."""

import pytest

from kubeshare.simulator.experiment import no_progress
from kubeshare.simulator.figures.kubeshare import interference
from kubeshare.simulator.figures.kubeshare.interference import TwoKinds, figure_13, jobs_of


def test_the_workload_has_the_ratio_and_the_label_that_are_asked() -> None:
    drawn = list(TwoKinds(count=400, ratio=0.25, apart=True).draw(1))
    kinds = [job.kind for job in drawn]
    assert 60 < kinds.count("A") < 140
    assert {(job.kind, job.demand.anti_affinity) for job in drawn if job.demand} == {
        ("A", ""),
        ("B", "b"),
    }
    plain = TwoKinds(count=400, ratio=0.25, apart=False).draw(1)
    assert [job.kind for job in plain] == kinds


@pytest.mark.slow
def test_labels_pay_where_jobs_that_do_not_interfere_are_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(interference, "JOBS", 400)
    monkeypatch.setattr(interference, "RATIOS", (0.0, 0.6, 1.0))
    done = 0

    def progress(jobs: int, /) -> None:
        nonlocal done
        done += jobs

    figure = figure_13(1, progress)
    assert done == jobs_of(1)
    assert [claim.paper for claim in figure.claims if not claim.holds] == []


@pytest.mark.slow
def test_without_interference_labels_cost_throughput(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interference, "JOBS", 400)
    monkeypatch.setattr(interference, "RATIOS", (0.0, 0.6, 1.0))
    monkeypatch.setattr(interference, "_NEEDS", {"A": 0.3, "B": 0.45})
    failing = [claim.paper for claim in figure_13(1, no_progress).claims if not claim.holds]
    assert any("anti-affinity has the highest" in paper for paper in failing)
