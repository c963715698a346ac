"""The CPU time of a process, exact to the ns."""

from contextlib import suppress
from pathlib import Path


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
