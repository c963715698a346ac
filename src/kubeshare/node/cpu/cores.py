"""Reads from sysfs which CPUs are SMT siblings."""

from pathlib import Path

from kubeshare.core.errors import InvalidValueError
from kubeshare.core.topology.cpus import Cpus, read_cpu_list


def read_cores(folder: Path) -> set[Cpus]:
    """The CPUs of each core of this machine that is online; blocks.

    Args:
        folder: ``/sys/devices/system/cpu``.
    """
    found = set()
    for file in folder.glob("cpu[0-9]*/topology/thread_siblings_list"):
        try:
            found.add(read_cpu_list(file.read_text(), str(file)))
        except (OSError, InvalidValueError):
            continue  # it has just gone offline; a CPU in no core is a core of its own
    return found
