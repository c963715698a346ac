"""Writes what the kernel's sysfs has about a profile's GPUs."""

import os
from pathlib import Path

from kubeshare.fakegpu.machines import gpus


def write_sysfs(profile: str | Path, sysfs: Path, seed: str = "") -> None:
    """Write ``bus/pci/devices`` with the NUMA node and the CPUs of each GPU.

    Args:
        profile: a profile's file, or a name like ``V100x2``.
        sysfs: the folder in place of ``/sys``; it is made.
        seed: as for the other readers of the profile.

    Raises:
        FakeGpuError: there is no such profile, or a line of it is wrong.
    """
    for gpu in gpus(profile, seed):
        folder = sysfs / "bus/pci/devices" / gpu.pci_address
        folder.mkdir(parents=True, exist_ok=True)
        cpus = gpu.cpu_list or f"0-{(os.cpu_count() or 1) - 1}"
        (folder / "numa_node").write_text(f"{gpu.numa_node}\n")
        (folder / "local_cpulist").write_text(f"{cpus}\n")
