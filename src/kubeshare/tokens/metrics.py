"""Prometheus metrics of the tokens, read from the daemon at each scrape.

A claim's counters continue over a restart of the daemon and end with the claim's grant.
"""

from collections.abc import Callable, Iterator, Mapping
from itertools import accumulate
from typing import Any, Final

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from kubeshare.build_info import build_info
from kubeshare.core.token import WAIT_BOUNDS_NS
from kubeshare.tokens.snapshot import Totals

_NS: Final = 1e9
_LABELS: Final = ("gpu", "claim", "namespace", "pod", "container", "share")
_KEYS: Final = (*_LABELS[:-1], "shareName")

# Name, help, the entry's key, the divisor of its value.
_COUNTERS: Final = (
    ("gpu_seconds", "GPU time charged", "chargedNs", _NS),
    ("grants", "How often the gate was opened", "grants", 1),
    ("waits", "How often a launch had to wait for the token", "waits", 1),
    ("wait_seconds", "Time waited for the token", "waitedNs", _NS),
    ("drains", "How often the gate closed and the GPU came to be done", "drains", 1),
    ("drain_seconds", "Time from the closings to the ends of the drains", "drainNs", _NS),
    ("overruns", "Drains that took longer than the shortest grant", "overruns", 1),
    ("bypasses", "Drains that did not end in time", "bypasses", 1),
)
_GAUGES: Final = (
    ("share", "Share of the GPU's time of late, 0 to 1", "share", 1),
    ("share_10s", "Share of the GPU's time in the last 10 s, 0 to 1", "recentShare", 1),
    ("request", "Guaranteed share, 0 to 1", "requestMicros", 1e6),
    ("limit", "Largest share, 0 to 1", "limitMicros", 1e6),
    ("longest_wait_seconds", "The longest wait for the token that ended", "longestWaitNs", _NS),
    ("memory_limit_bytes", "Memory that may be held", "memoryLimitBytes", 1),
    ("memory_used_bytes", "Memory that the processes say they hold", "memoryUsedBytes", 1),
    ("processes", "Processes that are connected", "processes", 1),
)
_WAIT_BOUNDS: Final = (*(str(bound / _NS) for bound in WAIT_BOUNDS_NS), "+Inf")


class TokenCollector(Collector):
    """The daemon's metrics.

    Args:
        entries: the state of all sessions, as in `snapshot.entries`.
        totals: the daemon's own counts.
    """

    def __init__(
        self, entries: Callable[[], list[dict[str, Any]]], totals: Callable[[], Totals]
    ) -> None:
        self._entries = entries
        self._totals = totals

    def collect(self) -> Iterator[Metric]:
        """The current values of all metrics."""
        yield build_info()
        entries = [entry for entry in self._entries() if entry["state"] != "refused"]
        for name, text, key, unit in _COUNTERS:
            counter = CounterMetricFamily(f"kubeshare_token_{name}", text, labels=_LABELS)
            for entry in entries:
                counter.add_metric(_labels(entry), entry[key] / unit)
            yield counter
        for name, text, key, unit in _GAUGES:
            gauge = GaugeMetricFamily(f"kubeshare_token_{name}", text, labels=_LABELS)
            for entry in entries:
                gauge.add_metric(_labels(entry), entry[key] / unit)
            yield gauge
        totals = self._totals()
        yield HistogramMetricFamily(
            "kubeshare_token_wait_duration_seconds",
            "How long each wait for the token of a GPU took that ended, of all pods together; "
            "one that goes on for another GPU counts once, when that is given",
            buckets=list(zip(_WAIT_BOUNDS, accumulate(totals.wait_counts), strict=True)),
            sum_value=totals.waited_ns / _NS,
        )
        yield CounterMetricFamily(
            "kubeshare_token_connections_dropped",
            "Connections closed for what their processes did",
            value=totals.dropped,
        )
        yield CounterMetricFamily(
            "kubeshare_token_pauses",
            "How often a claim's messages were not read for a while, because it sent too many",
            value=totals.paused,
        )
        yield GaugeMetricFamily(
            "kubeshare_token_counters_skipped",
            "Claims whose memory is not shown, because reading their counters takes too long",
            value=totals.skipped,
        )


def _labels(entry: Mapping[str, Any]) -> list[str]:
    return [entry[key] for key in _KEYS]
