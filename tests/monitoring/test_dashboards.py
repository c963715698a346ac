"""Each panel of each dashboard shows something of what a real Prometheus has scraped."""

import json
import math
import re
from collections.abc import Iterator
from typing import Any

import pytest

from deadlines import eventually
from fakes.node import NODE
from monitoring.prometheus_server import MONITORING, Prometheus, prometheus
from monitoring.scrapes import NAMESPACE, scrapes

DASHBOARDS: dict[str, Any] = {
    path.stem: json.loads(path.read_text())
    for path in sorted((MONITORING / "dashboards").glob("*.json"))
}
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
CHOSEN = {"$node": NODE, "$namespace": NAMESPACE, "$__rate_interval": "1m"}
WIDTH = 24
"""Columns of Grafana's grid."""

QUERIES = [
    pytest.param(target["expr"], id=f"{name}: {panel['title']} {target['refId']}")
    for name, dashboard in DASHBOARDS.items()
    for panel in dashboard["panels"]
    for target in panel["targets"]
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """A Prometheus that has scraped all programs more than once."""
    with prometheus(scrapes(), tmp_path_factory.mktemp("prometheus")) as found:
        found.until("namespace:kubeshare_gpu_seconds:rate5m")
        for component in scrapes():
            found.until(f'count_over_time(up{{job="kubeshare-{component}"}}[1m]) > 1')
        yield found


@pytest.mark.slow
@pytest.mark.xdist_group("prometheus")
@pytest.mark.parametrize("expression", QUERIES)
def test_each_query_of_a_panel_returns_data(server: Prometheus, expression: str) -> None:
    for variable, value in CHOSEN.items():
        expression = expression.replace(variable, value)
    assert "$" not in expression
    assert all(math.isfinite(value) for value in server.until(expression))


@pytest.mark.slow
@pytest.mark.xdist_group("prometheus")
def test_figure_9_shows_the_active_gpus_and_their_utilization(server: Prometheus) -> None:
    assert server.until("cluster:kubeshare_active_gpus:count") == [1]
    assert server.until("cluster:kubeshare_gpus:count") == [2]
    assert server.until("cluster:kubeshare_active_gpu_utilization_ratio:avg") == [0.25]


@pytest.mark.slow
@pytest.mark.xdist_group("prometheus")
def test_each_variable_offers_what_there_is(server: Prometheus) -> None:
    offered = {}
    for dashboard in DASHBOARDS.values():
        for variable in dashboard["templating"]["list"][1:]:
            [(metric, label)] = re.findall(r"label_values\((\w+), (\w+)\)", variable["query"])
            offered[variable["name"]] = server.ask(f"label/{label}/values", **{"match[]": metric})
    assert offered == {"node": [NODE], "namespace": [NAMESPACE]}


@pytest.mark.slow
@pytest.mark.xdist_group("prometheus")
def test_no_program_is_down_and_no_sample_is_dropped(server: Prometheus) -> None:
    served = {
        f'{{job="kubeshare-{component}", __name__!~"up|scrape_.+|ALERTS.*|.+:.+"}}': [
            sum(not line.startswith("#") for line in text.splitlines())
        ]
        for component, text in scrapes().items()
    }

    def all_is_stored() -> bool:
        """Until the next scrape that takes longer than a second, as on a busy machine."""
        stored = {series: server.values(f"count({series})") for series in served}
        return server.values("up") == [1] * len(served) and stored == served

    eventually(all_is_stored, "all samples of the last scrape are stored")


@pytest.mark.parametrize("name", DASHBOARDS)
def test_the_panels_of_a_dashboard_fit_grafanas_grid(name: str) -> None:
    panels = DASHBOARDS[name]["panels"]
    cells = [
        (x, y)
        for panel in panels
        for at in [panel["gridPos"]]
        for x in range(at["x"], at["x"] + at["w"])
        for y in range(at["y"], at["y"] + at["h"])
    ]
    assert len(cells) == len(set(cells)), "two panels overlap"
    assert max(x for x, _ in cells) < WIDTH
    assert [panel["id"] for panel in panels] == list(range(1, len(panels) + 1))


@pytest.mark.parametrize("name", DASHBOARDS)
def test_a_dashboard_asks_the_data_source_that_is_chosen(name: str) -> None:
    dashboard = DASHBOARDS[name]
    assert dashboard["uid"] == f"kubeshare-{name}"
    first, *variables = dashboard["templating"]["list"]
    assert (first["name"], first["type"]) == ("datasource", "datasource")
    asked = [*dashboard["panels"], *variables]
    asked += [target for panel in dashboard["panels"] for target in panel["targets"]]
    assert all(each["datasource"] == SOURCE for each in asked)
    assert all(panel["description"] for panel in dashboard["panels"])
