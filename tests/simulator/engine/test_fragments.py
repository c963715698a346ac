"""The fragmentation of a run, on clusters small enough to count."""

import pytest

from kubeshare.core.units import GI
from kubeshare.simulator.engine.host_room import HostCapacity
from kubeshare.simulator.jobs import FOREVER, HostRequest, Job
from simulator.builders import Played, job


def jobs(*requests: float, work: float = FOREVER) -> list[Job]:
    return [
        job(f"j{number}", arrival=number, request=request, work=work)
        for number, request in enumerate(requests)
    ]


def test_it_is_measured_each_time_when_so_much_was_asked_for() -> None:
    points = Played(jobs(0.6, 0.6, 0.6, 0.8), gpus=2).simulation.fragments.points
    # Before the second job one of .6 is there, and the kind is .6: .4 is a fragment.
    measured = [(point.requested, point.idle, point.fragmented) for point in points]
    expected = [(0.6, 0.7, 0.2), (0.9, 0.4, 0.4), (1.3, 0.4, 0.4)]
    assert measured == [pytest.approx(each) for each in expected]


def test_it_is_measured_at_the_end_where_one_more_job_would_be_too_much() -> None:
    points = Played(jobs(*[0.645] * 4), gpus=2).simulation.fragments.points
    assert [point.requested for point in points] == [
        pytest.approx(0.645),
        pytest.approx(0.9675),
        pytest.approx(1.29),
    ]
    assert len(Played(jobs(0.2, 0.2)).simulation.fragments.points) == 0


def test_what_is_left_beside_too_few_cpus_is_a_fragment() -> None:
    host = HostCapacity(cpu_millis=3000, memory_bytes=GI)
    asked = HostRequest(cpu_millis=2000)
    filled = [
        job("a", request=0.5, work=FOREVER, host=asked),
        job("b", request=0.5, work=FOREVER, host=asked),
    ]
    last = Played(filled, "best-fit", host=host).simulation.fragments.points[-1]
    assert (last.idle, last.fragmented) == (0.5, 0.5)


def test_nothing_is_measured_after_a_job_has_ended() -> None:
    assert not Played(jobs(0.4, 0.4, 0.4, work=0.5)).simulation.fragments.points
