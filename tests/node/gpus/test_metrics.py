"""What is exported of the node's GPUs."""

import msgspec
from prometheus_client import CollectorRegistry

from fakes.node import A_GPU, NODE, OTHER_GPU, Cluster, FixedGpus
from kubeshare.node.gpus.inventory import Inventory
from kubeshare.node.gpus.metrics import GpuMetrics
from kubeshare.simulator.control import FakeApiServer, run_virtual


def test_each_gpu_has_its_health_memory_and_utilization_until_they_cannot_be_read(
    server: FakeApiServer, cluster: Cluster
) -> None:
    failed = msgspec.structs.replace(OTHER_GPU, healthy=False)
    gpus = FixedGpus(devices=(A_GPU, failed))
    registry = CollectorRegistry()

    def value(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(f"kubeshare_node_gpu_{name}", labels)

    async def main() -> None:
        async with server.client() as client:
            inventory = Inventory(client, NODE, gpus, set)
            GpuMetrics(inventory).register(registry)
            await inventory.refresh()
            one, other = A_GPU.uuid, failed.uuid
            assert value("healthy", gpu=one, model=A_GPU.model) == 1
            assert value("healthy", gpu=other, model=failed.model) == 0
            assert value("memory_bytes", gpu=other) == failed.memory_bytes
            assert value("utilization_ratio", gpu=one) == 0.25
            assert value("utilization_ratio", gpu=other) is None
            gpus.fault = "NVML does not answer"
            await inventory.refresh()
            assert not [sample for each in registry.collect() for sample in each.samples]

    run_virtual(main())
