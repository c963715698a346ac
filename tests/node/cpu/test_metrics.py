"""What is exported of containers that are bound to CPUs."""

from prometheus_client import CollectorRegistry, generate_latest

from kubeshare.node.cpu.metrics import BoundContainer, CpuMetrics


def test_each_bound_container_has_its_cpus_as_a_number_and_a_list() -> None:
    metrics = CpuMetrics()
    registry = CollectorRegistry()
    metrics.register(registry)
    assert "bound_cpus{" not in generate_latest(registry).decode()
    metrics.bound = (BoundContainer("ns", "p", "main", frozenset({0, 1, 2, 5})),)
    lines = generate_latest(registry).decode().splitlines()
    assert (
        "# HELP kubeshare_node_bound_cpus CPUs near its GPUs that a container is bound to" in lines
    )
    labels = 'container="main",cpus="0-2,5",namespace="ns",pod="p"'
    assert f"kubeshare_node_bound_cpus{{{labels}}} 4.0" in lines
