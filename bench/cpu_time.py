"""CPU time: that of a process, exact to the ns, and what this machine takes for a fixed work."""

import time
from contextlib import suppress
from pathlib import Path
from typing import Final

_NUMBERS: Final = 200_000


def reference_seconds(rounds: int) -> list[float]:
    """Seconds of CPU time that a fixed piece of Python takes here, in each of some rounds.

    It is 12 ms on the quicker ones of the machines that results are kept of, and 20 ms on others
    of the same name.
    """
    taken = []
    for _ in range(rounds):
        began = time.thread_time()
        sum([number * number for number in range(_NUMBERS)])
        taken.append(time.thread_time() - began)
    return taken


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
