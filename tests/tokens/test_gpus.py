"""What the list of GPUs makes of NVML's answers."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

from kubeshare.tokens import gpus as module
from kubeshare.tokens.gpus import Gpu, GpuMissingError, gpus, memory_of_processes

UNKNOWN = pynvml.NVMLError(pynvml.NVML_ERROR_UNKNOWN)
NOT_FOUND = pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)


class Driver:
    """NVML's functions. ``count`` is an error to be raised, or the number of GPUs."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count: int | pynvml.NVMLError = 2
        self.init: Exception | None = None
        self.running = 0
        self.loaded: list[str] = []
        monkeypatch.setattr(module, "ctypes", SimpleNamespace(CDLL=self._load))
        answers: dict[str, Callable[..., Any]] = {
            "Init": self._init,
            "Shutdown": self._shutdown,
            "DeviceGetCount": self._count,
            "DeviceGetHandleByIndex": lambda index: index,
            "DeviceGetUUID": lambda index: f"GPU-{index}",
            "DeviceGetMinorNumber": lambda index: index + 4,
            "DeviceGetName": lambda index: f"V{index}",
            "DeviceGetMemoryInfo": lambda index: SimpleNamespace(total=index + 10, free=1),
            "DeviceGetHandleByUUID": self._by_uuid,
            "DeviceGetComputeRunningProcesses_v3": lambda index: [
                SimpleNamespace(pid=index + 100, usedGpuMemory=index + 1),
                SimpleNamespace(pid=7, usedGpuMemory=None),
            ],
        }
        for name, answer in answers.items():
            monkeypatch.setattr(pynvml, f"nvml{name}", answer)

    def _load(self, library: str) -> None:
        self.loaded.append(library)

    def _init(self) -> None:
        if self.init:
            raise self.init
        self.running += 1

    def _shutdown(self) -> None:
        self.running -= 1

    def _count(self) -> int:
        if isinstance(self.count, int):
            return self.count
        raise self.count

    def _by_uuid(self, uuid: str) -> int:
        if not uuid.startswith("GPU-"):
            raise NOT_FOUND
        return int(uuid.removeprefix("GPU-"))


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    return Driver(monkeypatch)


def test_the_gpus_are_listed_by_index(driver: Driver) -> None:
    assert gpus() == (
        Gpu(uuid="GPU-0", index=0, minor=4, model="V0", memory_bytes=10),
        Gpu(uuid="GPU-1", index=1, minor=5, model="V1", memory_bytes=11),
    )
    assert (driver.running, driver.loaded) == (0, [])
    gpus(Path("/lib/nvml"))
    assert driver.loaded == ["/lib/nvml"]


@pytest.mark.parametrize("error", [UNKNOWN, OSError("no such library")])
def test_without_nvml_a_fake_gpu_is_offered(driver: Driver, error: Exception) -> None:
    driver.init = error
    with pytest.raises(GpuMissingError) as missing:
        gpus()
    assert str(missing.value) == (
        f"no GPU can be used here: the NVIDIA driver's NVML says: {error}; "
        "`kubeshare run --fake V100x1 …` brings a fake GPU"
    )
    assert missing.value.exit_code == 3


@pytest.mark.parametrize(
    ("count", "words"),
    [
        (UNKNOWN, f"NVML does not list the GPUs: {UNKNOWN}"),
        (0, "NVML works and knows no GPU on this machine"),
    ],
)
def test_nvml_that_lists_none_is_shut_down(driver: Driver, count: Any, words: str) -> None:
    driver.count = count
    with pytest.raises(GpuMissingError) as missing:
        gpus()
    assert str(missing.value) == words
    assert driver.running == 0


def test_the_memory_of_processes_is_by_gpu_and_skips_gpus_that_are_not_there(
    driver: Driver,
) -> None:
    assert memory_of_processes(["GPU-0", "other", "GPU-1"]) == {
        ("GPU-0", 100): 1,
        ("GPU-0", 7): None,
        ("GPU-1", 101): 2,
        ("GPU-1", 7): None,
    }
    assert driver.running == 1
