"""What a large gang costs the scheduler while it has no room, and how long its steps are.

``python -m bench.placement.gang 512`` for so many members, beside an API server in memory. There is
room for all but eight of them, so all orders of the members are tried. Times are processor time.
"""

import asyncio
import sys
import time
from contextlib import suppress

from bench.placement.waiting import FullCluster, program_of
from bench.report import Met, print_machine, report, time_at_most

from kubeshare.api.configuration import Configuration
from kubeshare.api.types.v1 import SHAREPODS
from kubeshare.kube.resources import Raw
from kubeshare.simulator.control import until
from kubeshare.simulator.control.step_times import GOAL_SECONDS, StepTimes

_SHORT_OF = 8
_DEADLINE_SECONDS = 600.0


def run(members: int | None = None) -> list[Met]:
    """The numbers of one size; by default the largest gang that is accepted."""
    return asyncio.run(_measure(members or Configuration().gang_members))


async def _measure(members: int) -> list[Met]:
    cluster = FullCluster(members - _SHORT_OF, holders="a")
    program = program_of(cluster)
    running = asyncio.create_task(program.run())
    steps = StepTimes(at_least=0.0)
    steps.exclude(cluster.server, "_answer")
    try:
        await until(lambda: not list(program.not_ready()), seconds=_DEADLINE_SECONDS)
        began = time.process_time()
        with steps:
            for number in range(members):
                cluster.add_waiting(number, metadata=_labels(members))
            await until(lambda: _reported(cluster) == members, seconds=_DEADLINE_SECONDS)
            await cluster.settled()
        spent = time.process_time() - began
    finally:
        program.stop()
        with suppress(asyncio.CancelledError):
            await running
    [longest] = steps.longest(1)
    size = f"a gang of {members}, and room for {_SHORT_OF} less"
    goal = time_at_most(GOAL_SECONDS * 1e3)
    return [
        report(f"{size}: longest step, ms", goal, longest.seconds * 1e3, step=longest.what),
        report(
            f"{size}: to report all of them, ms a member", time_at_most(20), spent / members * 1e3
        ),
    ]


def _labels(members: int) -> Raw:
    return {"labels": {"sharedgpu/group_name": "g", "sharedgpu/min_available": str(members)}}


def _reported(cluster: FullCluster) -> int:
    """How many members have heard that there is no room."""
    return sum(
        each["reason"] == "GangNoRoom"
        for sharepod in cluster.server.all(SHAREPODS)
        for each in sharepod.get("status", {}).get("conditions", [])
    )


if __name__ == "__main__":
    print_machine()
    run(int(sys.argv[1]))
