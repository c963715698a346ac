"""Jobs as SharePods."""

from typing import Any

import msgspec
import pytest

from kubeshare.core.gang import Gang
from kubeshare.core.units import GI, Memory
from kubeshare.dialects.priority_and_gang import standing_of
from kubeshare.dialects.sharepod import demand_of
from kubeshare.simulator.control_tier.objects import sharepod_of
from kubeshare.simulator.errors import SimulationError
from kubeshare.simulator.jobs import HostRequest, Job
from simulator.builders import job


def of_bytes() -> Job:
    made = job("a")
    assert made.demand is not None
    return msgspec.structs.replace(
        made, demand=msgspec.structs.replace(made.demand, memory=Memory(bytes=3 * GI))
    )


@pytest.mark.parametrize(
    "made",
    [
        job("a", request=0.25),
        job("a", request=0.123456, limit=0.5),
        job("a", request=1, gpus=3),
        job("a", labels={"affinity": "x", "anti_affinity": "y", "exclusion": "z"}),
        job("a", labels={"model": "V100", "namespace": "team"}),
        of_bytes(),
    ],
)
def test_the_sharepod_asks_for_what_the_job_asks_for(made: Job) -> None:
    sharepod = sharepod_of(made, 7)
    read = demand_of(sharepod)
    assert read is not None
    assert made.demand is not None
    ours = {"name": "job-0000007", "namespace": made.demand.namespace or "default"}
    assert read == msgspec.structs.replace(made.demand, **ours)


def test_it_has_the_priority_and_the_gang_of_the_job() -> None:
    gang = Gang(name="g", min_available=2, headcount=3, near="node")
    standing = standing_of(sharepod_of(job("a", priority=5, gang=gang), 0))
    assert (standing.priority, standing.gang) == (5, gang)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"gpus": 0}, "GPU"),
        ({"host": HostRequest(cpu_millis=500)}, "CPU"),
        ({"preemptible": True}, "preemptible"),
    ],
)
def test_what_only_the_core_tier_simulates_is_refused(more: dict[str, Any], words: str) -> None:
    with pytest.raises(SimulationError, match=rf"job a .*{words}.*--tier core"):
        sharepod_of(job("a", **more), 0)


def test_requests_are_only_in_the_core_tier() -> None:
    with pytest.raises(SimulationError, match=r"job a serves requests, .* --tier core"):
        sharepod_of(msgspec.structs.replace(job("a"), service_s=0.01), 0)
