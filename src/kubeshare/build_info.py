"""Serves the version of a program as a metric."""

from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from kubeshare import __version__


def build_info() -> Metric:
    """``kubeshare_build_info``, whose value is 1 by convention."""
    words = "The version of the program, as a label; the value is 1"
    family = GaugeMetricFamily("kubeshare_build_info", words, labels=("version",))
    family.add_metric((__version__,), 1)
    return family


class BuildInfo(Collector):
    """Collects that one metric."""

    def collect(self) -> Iterator[Metric]:
        """The metric."""
        yield build_info()
