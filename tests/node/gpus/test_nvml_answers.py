"""What discovery makes of NVML's answers, whole or missing."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

import kubeshare
from kubeshare.api.types.v1 import GPUDevice, GPULink
from kubeshare.node.device_plugin.units import divide
from kubeshare.node.gpus import discovery
from kubeshare.node.gpus.discovery import DiscoveryError, GpuProcess, NvmlGpus

UNSUPPORTED = pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
LOST = pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)
TIMEOUT = pynvml.NVMLError(pynvml.NVML_ERROR_TIMEOUT)


def gpu(number: int, **more: Any) -> dict[str, Any]:
    """The answers about a GPU by the query that gives them."""
    return {
        "UUID": f"GPU-{number}".encode(),
        "MemoryInfo": SimpleNamespace(total=(number + 1) << 30),
        "MinorNumber": number + 4,
        "Name": b"V100",
        "PciInfo": SimpleNamespace(busId=f"00000000:0{number}:00.0".encode()),
        "RemappedRows": (0, 0, 0, 0),
        "MigMode": UNSUPPORTED,
        "UtilizationRates": UNSUPPORTED,
        "nvlinks": [],
        "processes": {},
    } | more


def peer(number: int) -> Any:
    return SimpleNamespace(busId=f"00000000:0{number}:00.0")


class Driver:
    """NVML's functions, answering from what a test says; an error is raised.

    Attributes:
        gpus: the answers about each GPU; None has no handle.
        ancestors: pair of GPUs -> their nearest common ancestor.
        events: XIDs that were reported and not read: (GPU, XID).
        running: how often NVML was started and not shut down.
        version: of the driver.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.gpus: list[dict[str, Any] | None] = []
        self.ancestors: dict[tuple[int, int], int] = {}
        self.events: list[tuple[int, int]] = []
        self.recovered: set[int] = set()
        self.running = 0
        self.version = b"570.1"
        self.down = False
        monkeypatch.setattr(pynvml, "nvmlLib", object())
        functions = {
            "nvmlInit": self._init,
            "nvmlShutdown": self._shutdown,
            "nvmlSystemGetDriverVersion": lambda: self.version,
            "nvmlDeviceGetCount": self._count,
            "nvmlDeviceGetHandleByIndex": self._handle,
            "nvmlDeviceGetTopologyCommonAncestor": self._ancestor,
            "nvmlDeviceGetNvLinkState": lambda at, link: self._nvlink(at, link)[0],
            "nvmlDeviceGetNvLinkRemoteDeviceType": lambda at, link: self._nvlink(at, link)[1],
            "nvmlDeviceGetNvLinkRemotePciInfo": lambda at, link: self._nvlink(at, link)[2],
            "nvmlEventSetCreate": lambda: "events",
            "nvmlDeviceRegisterEvents": self._register,
            "nvmlEventSetWait_v2": self._event,
            "nvmlDeviceGetFieldValues": self._fields,
        }
        for query in gpu(0).keys() - {"nvlinks", "processes"}:
            functions[f"nvmlDeviceGet{query}"] = self._answer(query)
        for name, function in functions.items():
            monkeypatch.setattr(pynvml, name, function)
        lists = tuple(self._processes(kind) for kind in ("compute", "graphics"))
        monkeypatch.setattr(discovery, "_PROCESSES", lists)
        monkeypatch.setattr(discovery, "_MPS_CLIENTS", self._processes("mps"))
        self.registered: list[int] = []

    def _init(self) -> None:
        self.running += 1

    def _shutdown(self) -> None:
        self.running -= 1

    def _count(self) -> int:
        if self.down:
            raise LOST
        return len(self.gpus)

    def _handle(self, index: int) -> int:
        if self.gpus[index] is None:
            raise LOST
        return index + 100

    def _of(self, handle: int) -> dict[str, Any]:
        found = self.gpus[handle - 100]
        assert found is not None
        return found

    def _answer(self, query: str) -> Any:
        def ask(handle: int) -> Any:
            answer = self._of(handle)[query]
            if isinstance(answer, Exception):
                raise answer
            return answer

        return ask

    def _ancestor(self, one: int, other: int) -> int:
        if (one - 100, other - 100) not in self.ancestors:
            raise UNSUPPORTED
        return self.ancestors[one - 100, other - 100]

    def _nvlink(self, handle: int, link: int) -> Any:
        links = self._of(handle)["nvlinks"]
        if link >= len(links):
            raise UNSUPPORTED
        return links[link]

    def _processes(self, kind: str) -> Any:
        def ask(handle: int) -> list[Any]:
            listed = self._of(handle)["processes"].get(kind)
            if listed is None:
                raise UNSUPPORTED
            return [SimpleNamespace(pid=pid, usedGpuMemory=used) for pid, used in listed]

        return ask

    def _register(self, handle: int, kind: int, events: str) -> None:
        assert (kind, events) == (pynvml.nvmlEventTypeXidCriticalError, "events")
        self.registered.append(handle - 100)

    def _event(self, events: str, wait: int) -> Any:
        assert (events, wait) == ("events", 0)
        if not self.events:
            raise pynvml.NVMLError_Timeout
        at, xid = self.events.pop(0)
        return SimpleNamespace(device=at + 100, eventData=xid)

    def _fields(self, handle: int, _: Any) -> list[Any]:
        value = SimpleNamespace(uiVal=0 if handle - 100 in self.recovered else 1)
        return [SimpleNamespace(nvmlReturn=pynvml.NVML_SUCCESS, value=value)]


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    return Driver(monkeypatch)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A driver's root with the sysfs of the first GPU."""
    device = tmp_path / "sys/bus/pci/devices/0000:00:00.0"
    device.mkdir(parents=True)
    (device / "numa_node").write_text("1\n")
    (device / "local_cpulist").write_text("0-7\n")
    return tmp_path


def test_a_gpu_has_what_nvml_and_sysfs_say(driver: Driver, root: Path) -> None:
    driver.gpus = [gpu(0)]
    found = NvmlGpus(root).read()
    assert (found.driver_version, found.agent_version) == ("570.1", kubeshare.__version__)
    assert found.supports_owned
    assert found.supports_shares
    assert found.devices == (
        GPUDevice(
            uuid="GPU-0",
            index=0,
            minor=4,
            model="V100",
            memory_bytes=1 << 30,
            numa_node=1,
            cpu_list="0-7",
            healthy=True,
            message="",
        ),
    )
    assert found.links == ()


def test_what_is_not_reported_stays_unknown(driver: Driver, root: Path) -> None:
    unknown = {"Name": UNSUPPORTED, "PciInfo": UNSUPPORTED, "MinorNumber": UNSUPPORTED}
    driver.gpus = [None, gpu(1, RemappedRows=UNSUPPORTED, **unknown), gpu(2, UUID=LOST)]
    (found,) = NvmlGpus(root).read().devices
    assert (found.uuid, found.index, found.minor, found.model) == ("GPU-1", 1, 0, "")
    assert (found.numa_node, found.cpu_list, found.healthy) == (-1, "", True)


@pytest.mark.parametrize(
    ("answers", "message", "memory"),
    [
        ({"RemappedRows": (0, 0, 0, 1)}, "a faulty row of its memory could not be remapped", 1),
        ({"MemoryInfo": LOST}, "GPU is lost", 0),
        ({"MigMode": [1, 0]}, "MIG is enabled on it, and only whole GPUs are shared", 1),
    ],
)
def test_a_faulty_gpu_is_listed_with_the_fault(
    driver: Driver, root: Path, answers: dict[str, Any], message: str, memory: int
) -> None:
    driver.gpus = [gpu(0, **answers)]
    (found,) = NvmlGpus(root).read().devices
    assert (found.healthy, found.message, found.memory_bytes) == (False, message, memory << 30)


@pytest.mark.parametrize(
    ("version", "message"),
    [
        (b"470.256.02", "its driver 470.256.02 is too old: shares need 525 or later (CUDA 12.0)"),
        (b"525.60.13", ""),
        (b"580.95.05", ""),
    ],
)
def test_gpus_of_a_driver_that_is_too_old_give_no_new_shares_and_are_healthy(
    driver: Driver, root: Path, version: bytes, message: str
) -> None:
    driver.version = version
    driver.gpus = [gpu(0)]
    (found,) = NvmlGpus(root).read().devices
    assert (found.gives_shares, found.healthy, found.message) == (not message, True, message)


def test_a_gpu_on_which_mig_will_be_enabled_is_still_a_whole_one(
    driver: Driver, root: Path
) -> None:
    driver.gpus = [gpu(0, MigMode=[0, 1])]
    (found,) = NvmlGpus(root).read().devices
    assert found.healthy


def test_an_xid_is_a_fault_until_the_gpu_has_recovered(driver: Driver, root: Path) -> None:
    driver.gpus = [gpu(0), gpu(1)]
    driver.events = [(1, 13), (1, 79), (0, 31)]
    gpus = NvmlGpus(root)
    first, second = gpus.read().devices
    assert (first.healthy, second.healthy) == (True, False)
    assert second.message == "its driver has reported XID 79"
    assert sorted(driver.registered) == [0, 1]
    driver.recovered = {1}
    assert all(device.healthy for device in gpus.read().devices)
    assert all(device.healthy for device in gpus.read().devices)
    assert len(driver.registered) == 2


def test_an_xid_of_a_gpu_makes_its_units_unhealthy_and_one_of_a_program_does_not(
    driver: Driver, root: Path
) -> None:
    """Case 35 of gpushare's published ones."""
    driver.gpus = [gpu(0), gpu(1)]
    gpus = NvmlGpus(root)
    for xid, healthy in ((31, [True, True]), (48, [True, False])):
        driver.events = [(1, xid)]
        units = divide(gpus.read().devices, 1 << 30, usable=True)
        assert [each.healthy for each in units] == healthy


def test_the_link_of_each_pair_is_nvlink_before_pcie(driver: Driver, root: Path) -> None:
    switch, direct = pynvml.NVML_NVLINK_DEVICE_TYPE_SWITCH, pynvml.NVML_NVLINK_DEVICE_TYPE_GPU
    on, off = 1, 0
    driver.gpus = [
        gpu(0, nvlinks=[(on, direct, peer(1)), (off, direct, peer(1)), (on, direct, peer(1))]),
        gpu(1, nvlinks=[(on, direct, peer(0)), (on, direct, peer(0))]),
        gpu(2, nvlinks=[(on, switch, None)] * 3),
        gpu(3, nvlinks=[(on, switch, None)] * 4),
    ]
    driver.ancestors = dict.fromkeys(((0, 1), (0, 2), (2, 3)), pynvml.NVML_TOPOLOGY_SYSTEM)
    driver.ancestors[1, 2] = pynvml.NVML_TOPOLOGY_HOSTBRIDGE
    assert NvmlGpus(root).read().links == (
        GPULink(a=0, b=1, link="NV2"),
        GPULink(a=0, b=2, link="SYS"),
        GPULink(a=1, b=2, link="PHB"),
        GPULink(a=2, b=3, link="NV3"),
    )


@pytest.mark.parametrize(
    ("ancestor", "link"),
    [
        (pynvml.NVML_TOPOLOGY_INTERNAL, "PIX"),
        (pynvml.NVML_TOPOLOGY_SINGLE, "PIX"),
        (pynvml.NVML_TOPOLOGY_MULTIPLE, "PXB"),
        (pynvml.NVML_TOPOLOGY_HOSTBRIDGE, "PHB"),
        (pynvml.NVML_TOPOLOGY_NODE, "NODE"),
        (pynvml.NVML_TOPOLOGY_SYSTEM, "SYS"),
    ],
)
def test_pcie_links_have_the_names_of_nvidia_smi(
    driver: Driver, root: Path, ancestor: int, link: str
) -> None:
    # Without a bus id no NVLink is known to lead anywhere.
    end = (1, pynvml.NVML_NVLINK_DEVICE_TYPE_GPU, peer(1))
    driver.gpus = [gpu(0, nvlinks=[end]), gpu(1, PciInfo=UNSUPPORTED)]
    driver.ancestors = {(0, 1): ancestor}
    assert NvmlGpus(root).read().links == (GPULink(a=0, b=1, link=link),)


def test_the_processes_of_all_kinds_are_listed_once(driver: Driver, root: Path) -> None:
    first = {"compute": [(7, 100), (8, None)], "graphics": [(7, 100), (9, 5)]}
    driver.gpus = [
        gpu(0, processes=first),
        None,
        gpu(2, UUID=LOST, processes=first),
        gpu(3, processes={"mps": [(7, 30)]}),
    ]
    assert NvmlGpus(root).processes() == [
        GpuProcess("GPU-0", 7, 100),
        GpuProcess("GPU-0", 8, None),
        GpuProcess("GPU-0", 9, 5),
        GpuProcess("GPU-3", 7, 30, mps=True),
    ]


def test_the_utilization_of_each_gpu_that_reports_it_is_a_ratio(driver: Driver, root: Path) -> None:
    rates = SimpleNamespace(gpu=35, memory=10)
    driver.gpus = [
        gpu(0, UtilizationRates=rates),
        None,
        gpu(2, UUID=LOST, UtilizationRates=rates),
        gpu(3),
    ]
    assert NvmlGpus(root).utilization() == {"GPU-0": 0.35}


def test_the_address_of_each_gpu_that_answers_is_known(driver: Driver, root: Path) -> None:
    driver.gpus = [gpu(0), None, gpu(2, UUID=LOST), gpu(3, PciInfo=UNSUPPORTED), gpu(4)]
    assert NvmlGpus(root).addresses() == {
        "GPU-0": "00000000:00:00.0",
        "GPU-4": "00000000:04:00.0",
    }


def test_a_name_that_is_no_text_is_shown_as_far_as_it_is(driver: Driver, root: Path) -> None:
    driver.gpus = [gpu(0, Name=b"V\xff100")]
    (found,) = NvmlGpus(root).read().devices
    assert found.model == "V\ufffd100"


def test_nvml_is_started_once_and_anew_after_an_error(driver: Driver, root: Path) -> None:
    gpus = NvmlGpus(root)
    driver.gpus = [gpu(0)]
    driver.events = [(0, 79)]
    gpus.read()
    gpus.read()
    assert driver.running == 1
    driver.down = True
    with pytest.raises(DiscoveryError, match="NVML does not answer: GPU is lost"):
        gpus.read()
    assert driver.running == 0
    driver.down = False
    # What was reported before is forgotten with the watch.
    assert gpus.read().devices[0].healthy
    assert driver.registered == [0, 0]
    gpus.close()
    gpus.close()
    assert driver.running == 0
