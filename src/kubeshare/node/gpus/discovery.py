"""Reads this node's GPUs, their health and links from NVML and sysfs.

What they do not report stays unknown instead of guessed: NUMA node -1, an empty CPU
list, no link. A GPU that does not answer is listed as unhealthy with NVML's message,
because a vGPU may still stand for it. All calls block: run them in a thread.
"""

import ctypes
import threading
from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from itertools import combinations
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pynvml
from msgspec import Struct

import kubeshare
from kubeshare.api.types.v1 import GPUDevice, GPULink, GPUNodeSpec
from kubeshare.node.gpus.driver_version import too_old
from kubeshare.node.gpus.sysfs import PciDevices, find_sysfs
from kubeshare.node.gpus.xids import Xids

Result = TypeVar("Result")

# The folders of driver installations for libraries, below the driver's root.
_LIBRARY_FOLDERS = (
    "usr/lib64",
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "usr/local/nvidia/lib64",
)
_NVML = "libnvidia-ml.so.1"

# The nearest common ancestor on PCIe, as `nvidia-smi topo` spells it.
_LINK_OF_ANCESTOR = {
    pynvml.NVML_TOPOLOGY_INTERNAL: "PIX",  # two GPUs of one board: no bridge is nearer
    pynvml.NVML_TOPOLOGY_SINGLE: "PIX",
    pynvml.NVML_TOPOLOGY_MULTIPLE: "PXB",
    pynvml.NVML_TOPOLOGY_HOSTBRIDGE: "PHB",
    pynvml.NVML_TOPOLOGY_NODE: "NODE",
    pynvml.NVML_TOPOLOGY_SYSTEM: "SYS",
}
_SWITCH = "switch"
_MPS_CLIENTS = pynvml.nvmlDeviceGetMPSComputeRunningProcesses_v3
_PROCESSES = (
    pynvml.nvmlDeviceGetComputeRunningProcesses_v3,
    pynvml.nvmlDeviceGetGraphicsRunningProcesses_v3,
)


class DiscoveryError(Exception):
    """NVML cannot be used on this node; the message says why, and which paths were tried."""


class GpuProcess(Struct, frozen=True):
    """A process on a GPU.

    Attributes:
        uuid: of the GPU.
        pid: on this machine.
        memory_bytes: None where the driver does not report it.
        mps: whether it uses the GPU through an MPS server.
    """

    uuid: str
    pid: int
    memory_bytes: int | None
    mps: bool = False


def find_nvml(driver_root: Path) -> Path:
    """The NVML library below a driver's root.

    Raises:
        DiscoveryError: none of the usual folders has it.
    """
    for folder in _LIBRARY_FOLDERS:
        candidate = driver_root / folder / _NVML
        if candidate.exists():
            return candidate
    folders = ", ".join(_LIBRARY_FOLDERS)
    raise DiscoveryError(
        f"no {_NVML} below {driver_root} (in {folders}): this node has no GPU driver, "
        "or --driver-root names another folder than the driver's"
    )


class NvmlGpus:
    """Reads the node's GPUs through NVML, which is loaded from below ``driver_root`` when found.

    Their NUMA nodes and CPUs are those of :func:`~kubeshare.node.gpus.sysfs.find_sysfs`.
    """

    def __init__(self, driver_root: Path) -> None:
        self._driver_root = driver_root
        self._started = False
        self._xids = Xids()
        self._lock = threading.Lock()  # readings may be in different threads

    def read(self) -> GPUNodeSpec:
        """Read the GPUs.

        Raises:
            DiscoveryError: NVML cannot be loaded or does not answer; it may later.
        """
        pci = PciDevices(find_sysfs(self._driver_root))
        return self._query(lambda: _read_node(self._xids, pci))

    def processes(self) -> list[GpuProcess]:
        """Read the processes on all GPUs, with the pids of this machine.

        Raises:
            DiscoveryError: as for ``read``.
        """
        return self._query(lambda: list(_read_processes()))

    def utilization(self) -> dict[str, float]:
        """Read the part of NVML's last sample period in which each GPU ran a kernel.

        Returns:
            UUID → 0 to 1; without the GPUs that do not report it.

        Raises:
            DiscoveryError: as for ``read``.
        """
        return self._query(lambda: dict(_read_utilization()))

    def addresses(self) -> dict[str, str]:
        """Read the PCI address of each GPU, by UUID, as NVML writes it.

        Raises:
            DiscoveryError: as for ``read``.
        """
        return self._query(lambda: dict(_read_addresses()))

    def _query(self, query: Callable[[], Result]) -> Result:
        with self._lock:
            try:
                self._start()
                return query()
            except pynvml.NVMLError as error:
                self.close()
                raise DiscoveryError(f"NVML does not answer: {error}") from error

    def close(self) -> None:
        """Shut NVML down; the next reading starts it again."""
        if self._started:
            self._started = False
            self._xids.forget()
            _optional(pynvml.nvmlShutdown)

    def _start(self) -> None:
        if self._started:
            return
        # Loaded by its path: pynvml itself would search the image's folders.
        if pynvml.nvmlLib is None:
            path = find_nvml(self._driver_root)
            try:
                pynvml.nvmlLib = ctypes.CDLL(str(path))
            except OSError as error:
                raise DiscoveryError(f"{path} cannot be loaded: {error}") from error
        pynvml.nvmlInit()
        self._started = True


def with_vanished(now: GPUNodeSpec, before: GPUNodeSpec, promised: AbstractSet[str]) -> GPUNodeSpec:
    """Add GPUs of ``before`` that have vanished and are ``promised`` to ``now``, as unhealthy.

    ``promised`` are the UUIDs of the GPUs behind vGPUs.
    """
    present = {device.uuid for device in now.devices}
    vanished = tuple(
        msgspec.structs.replace(device, healthy=False, message="the driver lists it no more")
        for device in before.devices
        if device.uuid in promised - present
    )
    return msgspec.structs.replace(now, devices=now.devices + vanished)


def _read_node(xids: Xids, pci: PciDevices) -> GPUNodeSpec:
    # A lost GPU may have no handle or no UUID any more: `with_vanished` adds it.
    found = [
        (index, handle, uuid)
        for index in range(pynvml.nvmlDeviceGetCount())
        if (handle := _optional(pynvml.nvmlDeviceGetHandleByIndex, index)) is not None
        and (uuid := _text(_optional(pynvml.nvmlDeviceGetUUID, handle) or ""))
    ]
    xids.read({uuid: handle for _, handle, uuid in found})
    driver = _text(pynvml.nvmlSystemGetDriverVersion())
    outdated = too_old(driver)
    return GPUNodeSpec(
        driver_version=driver,
        agent_version=kubeshare.__version__,
        supports_owned=True,
        supports_shares=True,
        devices=tuple(
            _with_message(
                _read_device(index, handle, uuid, _reported(xids.found.get(uuid)), pci), outdated
            )
            for index, handle, uuid in found
        ),
        links=tuple(_read_links({index: handle for index, handle, _ in found})),
    )


def _reported(xid: int | None) -> str:
    return f"its driver has reported XID {xid}" if xid is not None else ""


def _with_message(device: GPUDevice, outdated: str) -> GPUDevice:
    """The device with the message that its driver is too old; a fault of its own comes first."""
    return msgspec.structs.replace(device, message=device.message or outdated)


def _read_device(index: int, handle: Any, uuid: str, fault: str, pci: PciDevices) -> GPUDevice:
    memory = 0
    try:
        memory = int(pynvml.nvmlDeviceGetMemoryInfo(handle).total)
        rows = _optional(pynvml.nvmlDeviceGetRemappedRows, handle)
        if rows is not None and rows[3]:
            fault = "a faulty row of its memory could not be remapped"
        mig = _optional(pynvml.nvmlDeviceGetMigMode, handle)
        if mig is not None and mig[0] == pynvml.NVML_DEVICE_MIG_ENABLE:
            fault = "MIG is enabled on it, and only whole GPUs are shared"
    except pynvml.NVMLError as error:
        fault = str(error)
    bus_id = _bus(_optional(pynvml.nvmlDeviceGetPciInfo, handle))
    return GPUDevice(
        uuid=uuid,
        index=index,
        minor=_optional(pynvml.nvmlDeviceGetMinorNumber, handle) or 0,
        model=_text(_optional(pynvml.nvmlDeviceGetName, handle) or ""),
        memory_bytes=memory,
        numa_node=pci.numa_node(bus_id),
        cpu_list=pci.cpu_list(bus_id),
        healthy=not fault,
        message=fault,
    )


def _read_processes() -> Iterator[GpuProcess]:
    for index in range(pynvml.nvmlDeviceGetCount()):
        handle = _optional(pynvml.nvmlDeviceGetHandleByIndex, index)
        uuid = _text(_optional(pynvml.nvmlDeviceGetUUID, handle) or "") if handle else ""
        if not uuid:
            continue
        clients = _memory_of_processes(_MPS_CLIENTS, handle)
        used: dict[int, int | None] = {}
        for query in _PROCESSES:
            # A process that also draws is in more than one list, with the same memory.
            used |= _memory_of_processes(query, handle)
        for pid, memory in (used | clients).items():
            yield GpuProcess(uuid, pid, memory, mps=pid in clients)


def _memory_of_processes(query: Any, handle: Any) -> dict[int, int | None]:
    return {each.pid: each.usedGpuMemory for each in _optional(query, handle) or ()}


def _read_utilization() -> Iterator[tuple[str, float]]:
    for index in range(pynvml.nvmlDeviceGetCount()):
        handle = _optional(pynvml.nvmlDeviceGetHandleByIndex, index)
        uuid = _optional(pynvml.nvmlDeviceGetUUID, handle) if handle else None
        rates = _optional(pynvml.nvmlDeviceGetUtilizationRates, handle) if handle else None
        if uuid and rates is not None:
            yield _text(uuid), rates.gpu / 100


def _read_addresses() -> Iterator[tuple[str, str]]:
    for index in range(pynvml.nvmlDeviceGetCount()):
        handle = _optional(pynvml.nvmlDeviceGetHandleByIndex, index)
        uuid = _optional(pynvml.nvmlDeviceGetUUID, handle) if handle else None
        info = _optional(pynvml.nvmlDeviceGetPciInfo, handle) if handle else None
        if uuid and info is not None:
            yield _text(uuid), _text(info.busId)


def _read_links(handles: dict[int, Any]) -> Iterator[GPULink]:
    buses = {
        index: _bus(_optional(pynvml.nvmlDeviceGetPciInfo, handle))
        for index, handle in handles.items()
    }
    nvlinks = {index: _nvlink_peers(handle) for index, handle in handles.items()}
    for (a, one), (b, other) in combinations(handles.items(), 2):
        direct = nvlinks[a].count(buses[b]) if buses[b] else 0
        through_switch = min(nvlinks[a].count(_SWITCH), nvlinks[b].count(_SWITCH))
        ancestor = _optional(pynvml.nvmlDeviceGetTopologyCommonAncestor, one, other)
        if direct or through_switch:
            yield GPULink(a=a, b=b, link=f"NV{direct or through_switch}")
        elif ancestor in _LINK_OF_ANCESTOR:
            yield GPULink(a=a, b=b, link=_LINK_OF_ANCESTOR[ancestor])


def _nvlink_peers(handle: Any) -> list[str]:
    """The other ends of a GPU's active NVLinks: PCI addresses of GPUs, or switches."""
    peers = []
    for link in range(pynvml.NVML_NVLINK_MAX_LINKS):
        state = _optional(pynvml.nvmlDeviceGetNvLinkState, handle, link)
        if state is None:
            break
        if not state:
            continue
        kind = _optional(pynvml.nvmlDeviceGetNvLinkRemoteDeviceType, handle, link)
        if kind == pynvml.NVML_NVLINK_DEVICE_TYPE_SWITCH:
            peers.append(_SWITCH)
        else:
            peers.append(_bus(_optional(pynvml.nvmlDeviceGetNvLinkRemotePciInfo, handle, link)))
    return peers


def _bus(info: Any) -> str:
    return "" if info is None else _text(info.busId).lower()


def _optional(query: Any, *arguments: Any) -> Any:
    """NVML's answer, or None if this GPU or driver does not support the query."""
    try:
        return query(*arguments)
    except pynvml.NVMLError:
        return None


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
