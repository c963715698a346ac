"""CPU time: that of a process, exact to the ns, and what this machine takes for a fixed work."""

import statistics
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

QUICK_SECONDS: Final = 0.007
"""What the fixed work takes on the quickest of the machines that results are kept of."""

_NUMBERS: Final = 200_000


def reference_seconds(rounds: int) -> list[float]:
    """Seconds of CPU time that a fixed piece of Python takes here, in each of some rounds.

    Machines of the same name take from 7 to 22 ms, and the same one half as much more when others
    use its memory.
    """
    taken = []
    for _ in range(rounds):
        began = time.thread_time()
        sum([number * number for number in range(_NUMBERS)])
        taken.append(time.thread_time() - began)
    return taken


def slowness() -> float:
    """How many times as long as a quick machine this one takes just now; at least 1."""
    return max(1.0, statistics.median(reference_seconds(9)) / QUICK_SECONDS)


def cpu_seconds(pid: int) -> float:
    """Seconds of a core that all threads of a process have used which still run.

    The sampled times of ``/proc/PID/stat`` count short runs twice or not at all, and
    ``/proc/PID/schedstat`` has those of the main thread alone.
    """
    total_ns = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
            total_ns += int((task / "schedstat").read_text().split()[0])
    return total_ns / 1e9
