"""Which GPUs count as failed by the XIDs that the driver reports."""

from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

from kubeshare.node.gpus.xids import EVENTS_MAX, OF_PROGRAMS, Xids

UNSUPPORTED = pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
TIMEOUT = pynvml.NVMLError(pynvml.NVML_ERROR_TIMEOUT)
FALLEN_OFF = 79
HANDLES = {"GPU-0": "handle 0", "GPU-1": "handle 1"}


class Driver:
    """NVML's events. ``recovery`` is what the driver says of a GPU's recovery."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.watched: list[tuple[object, ...]] = []
        self.sets = 0
        self.events: list[tuple[str | bytes, int]] = []
        self.recovery: Any = pynvml.NVML_GPU_RECOVERY_ACTION_GPU_RESET
        self.returned = pynvml.NVML_SUCCESS
        monkeypatch.setattr(pynvml, "nvmlEventSetCreate", self._create)
        monkeypatch.setattr(pynvml, "nvmlDeviceRegisterEvents", self._watch)
        monkeypatch.setattr(pynvml, "nvmlEventSetWait_v2", self._wait)
        monkeypatch.setattr(pynvml, "nvmlDeviceGetUUID", lambda device: device)
        monkeypatch.setattr(pynvml, "nvmlDeviceGetFieldValues", self._fields)

    def _create(self) -> str:
        self.sets += 1
        return f"set {self.sets}"

    def _watch(self, *arguments: object) -> None:
        self.watched.append(arguments)

    def _wait(self, events: str, timeout: int) -> Any:
        assert (events, timeout) == (f"set {self.sets}", 0)
        if not self.events:
            raise TIMEOUT
        device, xid = self.events.pop(0)
        return SimpleNamespace(device=device, eventData=xid)

    def _fields(self, handle: str, fields: list[int]) -> list[Any]:
        assert handle in HANDLES.values()
        assert fields == [pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION]
        if isinstance(self.recovery, Exception):
            raise self.recovery
        value = SimpleNamespace(uiVal=self.recovery)
        return [SimpleNamespace(nvmlReturn=self.returned, value=value)]


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    return Driver(monkeypatch)


def test_each_gpu_is_watched_once_for_critical_xids(driver: Driver) -> None:
    xids = Xids()
    xids.read({"GPU-0": "handle 0"})
    xids.read(HANDLES)
    critical = pynvml.nvmlEventTypeXidCriticalError
    assert driver.watched == [("handle 0", critical, "set 1"), ("handle 1", critical, "set 1")]
    xids.forget()
    xids.read(HANDLES)
    assert (driver.sets, len(driver.watched)) == (2, 4)


def test_an_error_is_kept_until_the_driver_says_that_the_gpu_has_recovered(
    driver: Driver,
) -> None:
    xids = Xids()
    driver.events = [("GPU-0", FALLEN_OFF), (b"GPU-1", 95), ("GPU-1", min(OF_PROGRAMS))]
    xids.read(HANDLES)
    assert xids.found == {"GPU-0": FALLEN_OFF, "GPU-1": 95}
    for recovery in (UNSUPPORTED, pynvml.NVML_GPU_RECOVERY_ACTION_NODE_REBOOT):
        driver.recovery = recovery
        xids.read(HANDLES)
        assert set(xids.found) == {"GPU-0", "GPU-1"}
    driver.recovery, driver.returned = pynvml.NVML_GPU_RECOVERY_ACTION_NONE, 3
    xids.read(HANDLES)
    assert set(xids.found) == {"GPU-0", "GPU-1"}
    driver.returned = pynvml.NVML_SUCCESS
    xids.read({"GPU-1": "handle 1"})
    assert xids.found == {"GPU-0": FALLEN_OFF}, "nothing is known of a GPU without a handle"
    xids.forget()
    assert xids.found == {}


def test_one_reading_is_bounded(driver: Driver) -> None:
    xids = Xids()
    driver.events = [("GPU-0", FALLEN_OFF)] * (EVENTS_MAX + 3)
    xids.read(HANDLES)
    assert len(driver.events) == 3


def test_a_driver_without_events_reports_none(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unsupported(*_: object) -> None:
        raise UNSUPPORTED

    monkeypatch.setattr(pynvml, "nvmlDeviceRegisterEvents", unsupported)
    xids = Xids()
    driver.events = [("GPU-0", FALLEN_OFF)]
    xids.read({"GPU-0": "handle 0"})
    assert xids.found == {}
    xids.read({"GPU-0": "handle 0"})
    assert xids.found == {"GPU-0": FALLEN_OFF}, "the others are read all the same"
