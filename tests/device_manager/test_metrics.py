"""The device manager's metrics of what is wrong now."""

from msgspec import structs
from prometheus_client import CollectorRegistry, generate_latest

from fakes.objects import holder, vgpu
from kubeshare.api.types.constants import CONDITION_DEGRADED
from kubeshare.api.types.v1 import VGPU
from kubeshare.device_manager.metrics import Metrics
from kubeshare.kube.meta import Condition


def degraded(name: str, reason: str, *, status: str = "True", held: bool = True) -> VGPU:
    found = vgpu(name, holders=(holder("a"),) if held else ())
    condition = Condition(type=CONDITION_DEGRADED, status=status, reason=reason)
    return structs.replace(found, status=structs.replace(found.status, conditions=(condition,)))


def test_vgpus_in_use_that_are_degraded_are_counted_by_node_and_reason() -> None:
    vgpus = [
        degraded("a", "GPUsOffered"),
        degraded("b", "GPUsOffered"),
        degraded("c", "GPUsOffered", held=False),
        degraded("d", "Healthy", status="False"),
        degraded("e", "GPUUnhealthy"),
    ]
    registry = CollectorRegistry()
    Metrics(registry, lambda: vgpus)
    lines = generate_latest(registry).decode().splitlines()
    assert [line for line in lines if line.startswith("kubeshare_devices_degraded_vgpus{")] == [
        'kubeshare_devices_degraded_vgpus{node="n1",reason="GPUsOffered"} 2.0',
        'kubeshare_devices_degraded_vgpus{node="n1",reason="GPUUnhealthy"} 1.0',
    ]
