"""Jobs that fill a cluster."""

import pytest

from kubeshare.core.gang import Gang
from kubeshare.core.units import MICROS
from kubeshare.simulator.errors import SimulationError
from kubeshare.simulator.jobs import FOREVER, Job
from kubeshare.simulator.workloads.filled import Filled
from simulator.builders import Played, job

JOBS = [job("a", request=0.5), job("b", request=1, gpus=2), job("c", gpus=0)]


def test_jobs_ask_for_so_many_times_the_cluster() -> None:
    filled = Filled(JOBS, gpus=10, ratio=1.3)
    jobs = list(filled.draw(1))
    asked = sum(
        each.demand.request_micros * each.demand.count for each in jobs if each.demand is not None
    )
    assert 11 * MICROS < asked <= 13 * MICROS
    assert sorted(each.name for each in jobs[:3]) == ["a", "b", "c"]
    assert len({each.uid for each in jobs}) == len(jobs)
    assert {each.work_s for each in jobs} == {FOREVER}
    assert jobs == list(filled.draw(1))
    assert [each.name for each in jobs] != [each.name for each in filled.draw(2)]


def test_a_cluster_that_is_filled_keeps_its_jobs() -> None:
    filled = Filled(JOBS[:2], gpus=4, ratio=2)
    played = Played(filled.draw(1), nodes=2, gpus=2, owned=True)
    summary = played.measured.summary(4, played.simulation.running, played.simulation.waiting)
    assert summary.reserved_peak_fraction > 0.8
    assert summary.waiting > 0


def test_members_of_a_gang_are_placed_one_by_one() -> None:
    gang = Gang(name="g", min_available=9)
    filled = Filled([job("a", gang=gang), job("b", gang=gang)], gpus=2, ratio=1)
    played = Played(filled.draw(1), gpus=2, owned=True)
    assert (played.simulation.running, played.simulation.waiting) == (4, 0)


@pytest.mark.parametrize(("jobs", "ratio"), [(JOBS, 0), (JOBS, 101), (JOBS[2:], 1)])
def test_nothing_to_fill_with_is_an_error(jobs: list[Job], ratio: float) -> None:
    with pytest.raises(SimulationError, match="fill: "):
        Filled(jobs, gpus=1, ratio=ratio)
