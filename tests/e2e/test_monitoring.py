"""Prometheus scrapes the programs of a lab, and the dashboards show what it has."""

import base64
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e.space import BURN, Space
from e2e.stage import DEVICE_MANAGER, NODE_AGENT, SCHEDULER, TOKEN_DAEMON, Stage, eventually
from kubeshare.api.types.constants import NAMESPACE
from monitoring.prometheus_server import Prometheus, Target, scraping
from monitoring.test_dashboards import DASHBOARDS

pytestmark = pytest.mark.lab

COMPONENTS = (SCHEDULER, DEVICE_MANAGER, NODE_AGENT, TOKEN_DAEMON)
ALLOWED_POINTS = 0.15
"""Of NVML's utilization of one second, on a busy machine, from all of the GPU's time."""


def targets(stage: Stage) -> list[Target]:
    """All pods of the programs, through the API server."""
    address = stage.lab.settings.url.removeprefix("https://")
    return [
        Target(
            component,
            name := pod["metadata"]["name"],
            pod["spec"]["nodeName"],
            address,
            f"/api/v1/namespaces/{NAMESPACE}/pods/{name}:{port(pod)}/proxy/metrics",
        )
        for component in COMPONENTS
        for pod in stage.system_pods(component)
    ]


def port(pod: dict[str, Any]) -> int:
    """The port named metrics."""
    [found] = [
        int(each["containerPort"])
        for container in pod["spec"]["containers"]
        for each in container.get("ports", [])
        if each["name"] == "metrics"
    ]
    return found


def tls(kubeconfig: Path, folder: Path) -> dict[str, str]:
    """The administrator's certificates as files."""
    read = yaml.safe_load(kubeconfig.read_text())
    cluster, user = read["clusters"][0]["cluster"], read["users"][0]["user"]
    data = {
        "ca_file": cluster["certificate-authority-data"],
        "cert_file": user["client-certificate-data"],
        "key_file": user["client-key-data"],
    }
    for name, text in data.items():
        (folder / name).write_bytes(base64.b64decode(text))
    return {name: str(folder / name) for name in data}


@pytest.fixture
def server(stage: Stage, space: Space, tmp_path: Path) -> Iterator[Prometheus]:
    """A Prometheus that scrapes all programs while a SharePod has a GPU to itself."""
    space.share("busy", {"request": "0.5"}, BURN)
    stage.works_for(space.ready("busy"), "busy")
    job = {"scheme": "https", "tls_config": tls(stage.lab.kubeconfig, tmp_path)}
    with scraping(targets(stage), tmp_path, **job) as found:
        yield found


def test_the_dashboards_show_a_cluster_at_work(
    stage: Stage, space: Space, server: Prometheus
) -> None:
    def up() -> bool:
        return server.values("up") == [1] * len(targets(stage))

    eventually(up, "all programs to be scraped", explain=lambda: str(server.ask("targets")))
    server.until("namespace:kubeshare_gpu_seconds:rate5m")
    assert server.until("cluster:kubeshare_active_gpus:count") == [1]
    assert server.until("cluster:kubeshare_requested_gpus:sum") == [0.5]
    utilization = "cluster:kubeshare_active_gpu_utilization_ratio:avg"
    eventually(
        lambda: [value for value in server.values(utilization) if value > 1 - ALLOWED_POINTS],
        "the utilization of a GPU that is busy",
        explain=lambda: str(server.values(utilization)),
    )
    place = space.ready("busy")
    chosen = {"$node": place.node, "$namespace": space.name, "$__rate_interval": "1m"}
    for dashboard in DASHBOARDS.values():
        for panel in dashboard["panels"]:
            for target in panel["targets"]:
                query = target["expr"]
                for variable, value in chosen.items():
                    query = query.replace(variable, value)
                assert all(map(math.isfinite, server.until(query))), query
