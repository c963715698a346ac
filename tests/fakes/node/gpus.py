"""GPUs that the test defines."""

from dataclasses import dataclass, field

from kubeshare.api.types.v1 import GPUDevice, GPUNodeSpec
from kubeshare.node.gpus.discovery import DiscoveryError, GpuProcess

A_GPU = GPUDevice(
    uuid="GPU-00000000-0000-0000-0000-00000000000a",
    index=0,
    model="V100",
    memory_bytes=16 << 30,
)
OTHER_GPU = GPUDevice(
    uuid="GPU-00000000-0000-0000-0000-00000000000b",
    index=1,
    minor=1,
    model="V100",
    memory_bytes=16 << 30,
)


@dataclass
class FixedGpus:
    """Stands for NVML; with a ``fault`` it raises that instead of answering."""

    devices: tuple[GPUDevice, ...] = (A_GPU, OTHER_GPU)
    fault: str = ""
    used_by: list[GpuProcess] = field(default_factory=list)
    readings: int = field(default=0, init=False)

    def read(self) -> GPUNodeSpec:
        self.readings += 1
        if self.fault:
            raise DiscoveryError(self.fault)
        return GPUNodeSpec(driver_version="550.1", agent_version="test", devices=self.devices)

    def utilization(self) -> dict[str, float]:
        return {gpu.uuid: 0.25 for gpu in self.devices if gpu.healthy}

    def processes(self) -> list[GpuProcess]:
        if self.fault:
            raise DiscoveryError(self.fault)
        return list(self.used_by)

    def addresses(self) -> dict[str, str]:
        if self.fault:
            raise DiscoveryError(self.fault)
        return {gpu.uuid: f"00000000:0{gpu.index}:00.0" for gpu in self.devices}
