"""Reads the NUMA node and the nearby CPUs of GPUs from sysfs.

NVML's ``nvmlDeviceGetNumaNodeId`` is something else: the NUMA node that a GPU's own memory forms,
on machines such as Grace Hopper. Ordinary drivers do not support it.
"""

from pathlib import Path

from kubeshare.core.errors import InvalidValueError
from kubeshare.core.topology.cpus import read_cpu_list

UNKNOWN_NODE = -1
"""The kernel's own value for a device whose NUMA node the firmware does not report."""

_DEVICES = "bus/pci/devices"
_MAX_CPU_LIST = 1024  # characters, as in the GPUNode's schema
_MAX_NODE_DIGITS = 4  # the kernel counts to 1024


class PciDevices:
    """The PCI devices of a sysfs.

    Args:
        sysfs: where it is mounted.
    """

    def __init__(self, sysfs: Path) -> None:
        self._devices = sysfs / _DEVICES

    def numa_node(self, bus_id: str) -> int:
        """The NUMA node of the device with this NVML bus id; -1 if unknown."""
        text = self._read(bus_id, "numa_node")
        is_node = text.isdecimal() and len(text) <= _MAX_NODE_DIGITS
        return int(text) if is_node else UNKNOWN_NODE

    def cpu_list(self, bus_id: str) -> str:
        """The CPUs near this device in the kernel's format, ``0-7,16-23``; "" if unknown."""
        text = self._read(bus_id, "local_cpulist")
        try:
            read_cpu_list(text, "local_cpulist")
        except InvalidValueError:
            return ""
        return text if len(text) <= _MAX_CPU_LIST else ""

    def _read(self, bus_id: str, name: str) -> str:
        try:
            return (self._devices / _address(bus_id) / name).read_text().strip()
        except (OSError, ValueError):
            return ""


def find_sysfs(driver_root: Path) -> Path:
    """The sysfs that belongs to a driver's root: its own if it has one, else this machine's."""
    own = driver_root / "sys"
    return own if (own / _DEVICES).is_dir() else Path("/sys")


def _address(bus_id: str) -> str:
    """The kernel's spelling, ``0000:3b:00.0``, of NVML's ``00000000:3B:00.0``.

    Raises:
        ValueError: it is no bus id.
    """
    domain, colon, rest = bus_id.lower().partition(":")
    return f"{int(domain, 16):04x}{colon}{rest}"
