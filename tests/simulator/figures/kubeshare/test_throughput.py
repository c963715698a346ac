"""Figures 8 and 9 of the KubeShare paper: fewer jobs than there, the same shape."""

import pytest

from kubeshare.simulator.experiment import no_progress
from kubeshare.simulator.figures.catalogue import FIGURES, make
from kubeshare.simulator.figures.figure import Figure
from kubeshare.simulator.figures.kubeshare import throughput
from kubeshare.simulator.figures.kubeshare.throughput import KUBERNETES, KUBESHARE


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(throughput, "JOBS", 300)
    monkeypatch.setattr(throughput, "_FREQUENCIES", (1, 4, 9))
    monkeypatch.setattr(throughput, "_MEANS", (0.1, 0.2, 0.6))
    monkeypatch.setattr(throughput, "_VARIANCES", (0, 2))


def failing(figure: Figure) -> list[str]:
    return [claim.paper for claim in figure.claims if not claim.holds]


@pytest.mark.slow
@pytest.mark.usefixtures("few")
def test_sharing_more_than_doubles_the_throughput_where_jobs_are_many() -> None:
    figure = throughput.figure_8a(1, no_progress)
    assert [point.x for point in figure.lines[KUBESHARE]] == [1, 4, 9]
    assert failing(figure) == []


@pytest.mark.slow
@pytest.mark.usefixtures("few")
def test_throughput_follows_the_mean_demand() -> None:
    figure = throughput.figure_8b(1, no_progress)
    # So few jobs end before the cluster is full, so the numbers of the paper are not reached.
    assert set(failing(figure)) <= {each.paper for each in figure.claims[1:3]}
    ours = [point.y.mean for point in figure.lines[KUBESHARE]]
    assert ours[0] > 1.4 * ours[-1]


@pytest.mark.usefixtures("few")
def test_the_variance_of_demands_matters_little() -> None:
    figure = throughput.figure_8c(1, no_progress)
    assert failing(figure) == []
    assert len({point.y.mean for point in figure.lines[KUBERNETES]}) == 1


@pytest.mark.usefixtures("few")
def test_sharing_uses_fewer_gpus_better_and_ends_earlier() -> None:
    figure = throughput.figure_9(1, no_progress)
    assert failing(figure) == []
    active = [point.y.mean for point in figure.lines["kubeshare: active GPUs"]]
    assert 0 < max(active) < 32


@pytest.mark.parametrize("name", ["8c", "9"])
@pytest.mark.usefixtures("few")
def test_the_progress_ends_at_the_stated_number_of_jobs(name: str) -> None:
    done = 0

    def progress(jobs: int, /) -> None:
        nonlocal done
        done += jobs

    make(name, 1, progress, {})
    assert done == FIGURES[name].jobs(1) > 0
