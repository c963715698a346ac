"""The page of all metrics is that of the programs, and no label of theirs is unbounded."""

import asyncio
import re
from collections import Counter
from functools import cache

import pytest

from kubeshare import __version__
from monitoring.prometheus_tools import promtool
from monitoring.scrapes import scrapes
from tools import metrics_page

COMPONENTS = ("scheduler", "device-manager", "extender", "node-agent", "token-daemon")


@cache
def described() -> dict[str, list[metrics_page.Metric]]:
    return asyncio.run(metrics_page.described())


def everywhere() -> list[metrics_page.Metric]:
    return [metric for metrics in described().values() for metric in metrics]


def test_the_page_is_that_of_the_programs() -> None:
    assert metrics_page.PAGE.read_text() == metrics_page.page(described()), (
        "run tools/metrics_page.py"
    )


def test_each_label_that_is_described_is_one_of_a_metric() -> None:
    used = {
        metrics_page.label_of(metric.name, name)
        for metric in everywhere()
        for name in metric.labels
    }
    assert used == set(metrics_page.LABELS)


def test_a_label_that_is_not_described_is_an_error() -> None:
    metric = metrics_page.Metric(
        "kubeshare_token_pauses_total", "counter", ("user",), "", keeps_series=False
    )
    with pytest.raises(LookupError, match="kubeshare_token_pauses_total has the label user"):
        metrics_page.page(described() | {"scheduler": [metric]})


def test_series_that_stay_have_only_labels_whose_values_the_programs_know() -> None:
    """Else a label of pods, nodes or GPUs would add a series for each that there ever was."""
    kept = [metric for metric in everywhere() if metric.keeps_series]
    assert {metrics_page.label_of(one.name, name).fixed for one in kept for name in one.labels} == {
        True
    }


@pytest.mark.parametrize("component", COMPONENTS)
def test_each_program_serves_its_version(component: str) -> None:
    line = f'kubeshare_build_info{{version="{__version__}"}} 1.0'
    assert line in scrapes()[component].splitlines()


@pytest.mark.slow  # so that `make test-fast` needs no promtool
@pytest.mark.parametrize("component", COMPONENTS)
def test_what_is_scraped_is_on_the_page_and_keeps_prometheus_conventions(component: str) -> None:
    text = scrapes()[component]
    on_page = {metric.name: metric for metric in described()[component]}
    served = dict(re.findall(r"^# TYPE (\S+) (\w+)$", text, re.MULTILINE))
    served = {name: kind for name, kind in served.items() if not name.endswith("_created")}
    assert served == {name: metric.type for name, metric in on_page.items()}
    promtool("check", "metrics", text=text)


@pytest.mark.parametrize("component", COMPONENTS)
def test_no_series_is_served_twice(component: str) -> None:
    """Prometheus keeps one sample of a series in each scrape, and drops the others."""
    lines = [line for line in scrapes()[component].splitlines() if not line.startswith("#")]
    counts = Counter(line.rpartition(" ")[0] for line in lines)
    assert [series for series, count in counts.items() if count > 1] == []
