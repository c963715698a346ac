"""Use of the GPUs and balance, whole GPUs beside topology: fewer jobs, the same order."""

import pytest

from kubeshare.core.units import MICROS
from kubeshare.simulator.figures.gaia import utilisation
from kubeshare.simulator.figures.gaia.utilisation import MixedJobs


def test_the_workload_has_fractions_single_gpus_and_pairs() -> None:
    jobs = list(MixedJobs(count=400, ratio=0.5).draw(1))
    demands = [job.demand for job in jobs if job.demand]
    fractions = [each for each in demands if each.request_micros < MICROS]
    assert 150 < len(fractions) < 250
    assert {each.count for each in fractions} == {1}
    assert {each.count for each in demands} == {1, 2}
    assert all(0 < job.need_micros <= MICROS for job in jobs)


def test_fractions_raise_use_and_balance(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(utilisation, "JOBS", 300)
    monkeypatch.setattr(utilisation, "RATIOS", (0.0, 0.5))
    done: list[int] = []
    figure = utilisation.figure(1, done.append)
    assert sum(done) == utilisation.jobs_of(1)
    used = [[point.y.mean for point in line] for line in figure.lines.values()][:2]
    assert used[0][0] == pytest.approx(used[1][0], rel=0.02)
    assert used[1][1] > 1.1 * used[0][1]
    assert figure.claims[1].holds
