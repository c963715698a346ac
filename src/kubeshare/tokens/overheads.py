"""What the driver counts for a claim beyond what its library tracks: contexts and code.

In a cluster the node agent tells it, which knows whose a process is by its cgroup. Of
the commands of `kubeshare run` nobody does, so the daemon that serves them looks itself:
their processes are those that have an account or a connection.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Mapping
from typing import Final

import pynvml
import structlog

from kubeshare.tokens.files import counters
from kubeshare.tokens.files.grants import Grant
from kubeshare.tokens.files.run_folder import Paths
from kubeshare.tokens.gpus import memory_of_processes

log = structlog.get_logger(__name__)

SAMPLES_REQUIRED: Final = 2
"""How many looks in a row have to agree: what the driver and the library say is read one
after the other, and a process may allocate, fork or end in between."""

_PERIOD_S: Final = 1.0

Overheads = dict[tuple[str, str], int]
"""(claim, GPU) → bytes."""

Memory = Mapping[tuple[str, int], int | None]
"""(GPU, pid) → bytes; None where the driver does not say."""


class StableOverheads:
    """Overheads: less is believed at once, more when looks in a row agree on it."""

    def __init__(self) -> None:
        self._last: dict[tuple[str, str], deque[int]] = {}

    def add(self, overheads: Mapping[tuple[str, str], int]) -> Overheads:
        """Note a look's overheads; returns those of which enough is known."""
        self._last = {key: self._last.get(key, deque(maxlen=SAMPLES_REQUIRED)) for key in overheads}
        for key, overhead in overheads.items():
            self._last[key].append(overhead)
        return {
            key: min(looks)
            for key, looks in self._last.items()
            if len(looks) == SAMPLES_REQUIRED or looks[-1] == 0
        }


async def watch(
    paths: Paths,
    held: Callable[[], Mapping[str, tuple[Grant, Collection[int]]]],
    tell: Callable[[str, str, int], None],
) -> None:
    """Look again and again, and tell what has settled, until cancelled.

    Args:
        paths: of the run folder.
        held: the live grants of commands by claim, each with its connected processes.
        tell: told the claim, the GPU and the bytes.
    """
    settled = StableOverheads()
    trouble = ""
    while True:
        await asyncio.sleep(_PERIOD_S)
        commands = held()
        if not commands:
            continue
        try:
            found = await asyncio.to_thread(_look, paths, commands)
        except (pynvml.NVMLError, OSError) as error:
            if str(error) != trouble:
                trouble = str(error)
                log.warning("contexts are not charged: the driver does not answer", reason=trouble)
            continue
        for (claim, uuid), overhead in settled.add(found).items():
            tell(claim, uuid, overhead)


def _look(paths: Paths, commands: Mapping[str, tuple[Grant, Collection[int]]]) -> Overheads:
    """Ask the driver, and before and after that the accounts: the larger of them counts."""
    before = {claim: counters.processes(paths.counters(claim)) for claim in commands}
    used = memory_of_processes({gpu.uuid for grant, _ in commands.values() for gpu in grant.gpus})
    after = {claim: counters.processes(paths.counters(claim)) for claim in commands}
    found: Overheads = {}
    for claim, (grant, connected) in commands.items():
        pids = {one.pid for one in (*before[claim], *after[claim])} | set(connected)
        tracked = [_tracked(looked[claim], len(grant.gpus)) for looked in (before, after)]
        for cell, gpu in enumerate(grant.gpus):
            overhead = _held(used, gpu.uuid, pids)
            if overhead is not None:
                found[claim, gpu.uuid] = max(0, overhead - max(each[cell] for each in tracked))
    return found


def _tracked(processes: list[counters.Process], cells: int) -> list[int]:
    return [sum(process.memory[cell] for process in processes) for cell in range(cells)]


def _held(used: Memory, uuid: str, pids: Collection[int]) -> int | None:
    """What the driver counts for these processes; None where it does not say."""
    known = [used[uuid, pid] for pid in pids if (uuid, pid) in used]
    return None if None in known else sum(memory or 0 for memory in known)
