"""The recording rules for dashboards of gpu-manager name metrics and labels that exist."""

import re
from pathlib import Path

import yaml

from kubeshare.core.units import MI
from kubeshare.tokens.metrics import TokenCollector
from kubeshare.tokens.snapshot import Totals

RULES = Path(__file__).parents[2] / "examples" / "vcuda" / "recording-rules.yaml"
GPU_MANAGERS = {
    "container_gpu_utilization": "gpu",
    "container_gpu_memory_total": "gpu_memory",
    "container_request_gpu_utilization": "req_of_gpu",
    "container_request_gpu_memory": "req_of_gpu_memory",
}
"""The name of a metric of gpu-manager -> its label for all GPUs of a container."""

ENTRY = {
    "gpu": "GPU-1",
    "claim": "c",
    "namespace": "team",
    "pod": "p",
    "container": "main",
    "shareName": "",
    "state": "idle",
    "recentShare": 0.5,
    "requestMicros": 500_000,
    "memoryLimitBytes": 1024 * MI,
    "memoryUsedBytes": 256 * MI,
}


class Entry(dict[str, object]):
    """An entry of the daemon, in which all other counters are 0."""

    def __missing__(self, key: str) -> int:
        return 0


def value_of(text: str) -> float:
    """A number, or two of them multiplied or divided."""
    match text.split():
        case [left, "*", right]:
            return float(left) * float(right)
        case [left, "/", right]:
            return float(left) / float(right)
    return float(text)


def test_each_rule_reads_a_metric_with_its_labels() -> None:
    collector = TokenCollector(lambda: [Entry(ENTRY)], Totals)
    served = {sample.name: sample for metric in collector.collect() for sample in metric.samples}
    found = {}
    for rule in yaml.safe_load(RULES.read_text())["groups"][0]["rules"]:
        assert rule["labels"] == {GPU_MANAGERS[rule["record"]]: "total"}
        [name] = re.findall(r"kubeshare_\w+", rule["expr"])
        read = set(re.findall(r'"\$1", "(\w+)"', rule["expr"])) | {"namespace"}
        assert read <= served[name].labels.keys()
        [inner] = re.findall(r'label_replace\( (.+?), "pod_name"', rule["expr"])
        found[rule["record"]] = value_of(inner.replace(name, str(served[name].value)))
    assert found == {
        "container_gpu_utilization": 50.0,  # percent
        "container_gpu_memory_total": 256.0,  # MiB
        "container_request_gpu_utilization": 0.5,  # GPUs
        "container_request_gpu_memory": 1024.0,  # MiB
    }
