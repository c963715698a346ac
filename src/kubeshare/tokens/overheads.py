"""Measures memory that the driver counts and the library does not.

In a cluster the node agent reports it, which finds a process's pod by its cgroup. For the
commands of `kubeshare run` the daemon that serves them measures it itself: their
processes are those that have a slot in the counters or a connection.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Mapping
from typing import Final, TypeAlias

import pynvml
import structlog

from kubeshare.tokens.files.counters import CountersReader, Process
from kubeshare.tokens.files.grants import Grant
from kubeshare.tokens.files.run_folder import Paths
from kubeshare.tokens.gpus import memory_of_processes

log = structlog.get_logger(__name__)

SAMPLES_REQUIRED: Final = 2
"""Consecutive samples that have to agree: driver and library are read one after the other,
and a process may allocate, fork or end in between."""

_PERIOD_S: Final = 1.0

Overheads: TypeAlias = dict[tuple[str, str], int]
"""(claim, GPU) → bytes."""

Memory: TypeAlias = Mapping[tuple[str, int], int | None]
"""(GPU, pid) → bytes; None where the driver does not report them."""


class StableOverheads:
    """Believes a smaller overhead at once, a larger one when consecutive samples agree."""

    def __init__(self) -> None:
        self._last: dict[tuple[str, str], deque[int]] = {}

    def add(self, overheads: Mapping[tuple[str, str], int]) -> Overheads:
        """Add a sample; returns the overheads that are confirmed."""
        self._last = {key: self._last.get(key, deque(maxlen=SAMPLES_REQUIRED)) for key in overheads}
        for key, overhead in overheads.items():
            self._last[key].append(overhead)
        return {
            key: min(samples)
            for key, samples in self._last.items()
            if len(samples) == SAMPLES_REQUIRED or samples[-1] == 0
        }


async def watch(
    paths: Paths,
    held: Callable[[], Mapping[str, tuple[Grant, Collection[int]]]],
    report: Callable[[str, str, int], None],
) -> None:
    """Sample once a second and report what is confirmed, until cancelled.

    Args:
        paths: of the run folder.
        held: the live grants of commands by claim, each with its connected processes.
        report: called with the claim, the GPU and the bytes.
    """
    stable, counters = StableOverheads(), CountersReader(paths)
    last_error = ""
    while True:
        await asyncio.sleep(_PERIOD_S)
        commands = held()
        if not commands:
            continue
        try:
            found = await asyncio.to_thread(_sample, counters, commands)
        except (pynvml.NVMLError, OSError) as error:
            if str(error) != last_error:
                last_error = str(error)
                log.warning(
                    "contexts are not charged: the driver does not answer", reason=last_error
                )
            continue
        for (claim, uuid), overhead in stable.add(found).items():
            report(claim, uuid, overhead)


def _sample(
    counters: CountersReader, commands: Mapping[str, tuple[Grant, Collection[int]]]
) -> Overheads:
    """Read the driver, and the counters before and after it: the larger of those counts."""
    before = {claim: counters.processes(claim) for claim in commands}
    used = memory_of_processes({gpu.uuid for grant, _ in commands.values() for gpu in grant.gpus})
    after = {claim: counters.processes(claim) for claim in commands}
    found: Overheads = {}
    for claim, (grant, connected) in commands.items():
        pids = {one.pid for one in (*before[claim], *after[claim])} | set(connected)
        tracked = [_tracked(read[claim], len(grant.gpus)) for read in (before, after)]
        for cell, gpu in enumerate(grant.gpus):
            overhead = _held(used, gpu.uuid, pids)
            if overhead is not None:
                found[claim, gpu.uuid] = max(0, overhead - max(each[cell] for each in tracked))
    return found


def _tracked(processes: list[Process], cells: int) -> list[int]:
    return [sum(process.memory_bytes[cell] for process in processes) for cell in range(cells)]


def _held(used: Memory, uuid: str, pids: Collection[int]) -> int | None:
    """The bytes that the driver counts for these processes; None if one is not reported."""
    known = [used[uuid, pid] for pid in pids if (uuid, pid) in used]
    return None if None in known else sum(memory or 0 for memory in known)
