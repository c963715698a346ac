"""What is exported of uses of a GPU past the device library."""

from prometheus_client import CollectorRegistry, generate_latest

from kubeshare.node.escapes.detection import Finding
from kubeshare.node.escapes.metrics import EscapeMetrics
from kubeshare.tokens.files.grants import GrantedPod


def finding(pod: str, reason: str) -> Finding:
    return Finding(
        reason=reason,  # type: ignore[arg-type]
        claim="c",
        pod=GrantedPod(namespace="ns", name=pod, uid="u"),
        container="main",
        pid=1,
        started=1,
        gpus=("GPU-1",),
        used_bytes=2,
        limit_bytes=1,
    )


def test_the_present_are_counted_by_pod_and_the_reported_by_reason() -> None:
    present = [finding("a", "Unheld"), finding("a", "Unheld"), finding("b", "Memory")]
    metrics = EscapeMetrics(lambda: present)
    registry = CollectorRegistry()
    metrics.register(registry)
    metrics.reported.labels("Unheld").inc(3)
    metrics.ended.labels("Unheld").inc()
    lines = generate_latest(registry).decode().splitlines()
    for line in (
        "# HELP kubeshare_node_escaping Uses of a GPU past the device library at present",
        'kubeshare_node_escaping{namespace="ns",pod="a",reason="Unheld"} 2.0',
        'kubeshare_node_escaping{namespace="ns",pod="b",reason="Memory"} 1.0',
        (
            "# HELP kubeshare_node_escapes_total Uses of a GPU past the device library that were "
            "reported"
        ),
        'kubeshare_node_escapes_total{reason="Unheld"} 3.0',
        (
            "# HELP kubeshare_node_escapes_ended_total Processes ended for using a GPU past the "
            "library"
        ),
        'kubeshare_node_escapes_ended_total{reason="Unheld"} 1.0',
    ):
        assert line in lines
