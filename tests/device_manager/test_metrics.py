"""The device manager's own metrics, as they are scraped."""

from typing import Final

from prometheus_client import CollectorRegistry, generate_latest

from fakes.objects import holder, vgpu, with_degraded
from kubeshare.api.types.v1 import VGPU
from kubeshare.device_manager.metrics import Metrics

HELP: Final = {
    "placeholders_created": "Placeholder pods made",
    "pods_created": "Pods of SharePods made",
    "holders_released": "Holders removed whose pod never ran",
    "pods_moved": "Pods deleted unbound because their node had no room",
    "vgpus_deleted": "vGPUs given back to Kubernetes",
    "vgpus_warmed": "vGPUs made ahead of demand",
}


def degraded(name: str, reason: str, *, status: str = "True", held: bool = True) -> VGPU:
    found = vgpu(name, holders=(holder("a"),) if held else ())
    return with_degraded(found, reason, status=status)


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


def test_vgpus_are_counted_by_node_and_use_with_what_is_requested_of_them() -> None:
    vgpus = [
        vgpu("a", holders=(holder("x", 250_000), holder("y", 500_000))),
        vgpu("b", holders=(holder("z", 500_000),)),
        vgpu("c"),
        vgpu("d", "n2"),
    ]
    registry = CollectorRegistry()
    Metrics(registry, lambda: vgpus)
    lines = generate_latest(registry).decode().splitlines()
    for line in (
        'kubeshare_devices_vgpus{node="n1",state="used"} 2.0',
        'kubeshare_devices_vgpus{node="n1",state="idle"} 1.0',
        'kubeshare_devices_vgpus{node="n2",state="used"} 0.0',
        'kubeshare_devices_vgpus{node="n2",state="idle"} 1.0',
        'kubeshare_devices_requested_gpus{node="n1"} 1.25',
        'kubeshare_devices_requested_gpus{node="n2"} 0.0',
    ):
        assert line in lines


def test_each_counter_has_its_name_and_its_help() -> None:
    registry = CollectorRegistry()
    metrics = Metrics(registry)
    counters = (
        *(metrics.placeholders, metrics.pods, metrics.released),
        *(metrics.moved, metrics.deleted, metrics.warmed),
    )
    for number, counter in enumerate(counters, start=1):
        counter.inc(number)
    lines = generate_latest(registry).decode().splitlines()
    for number, (name, text) in enumerate(HELP.items(), start=1):
        assert f"# HELP kubeshare_devices_{name}_total {text}" in lines
        assert f"kubeshare_devices_{name}_total {number:.1f}" in lines
