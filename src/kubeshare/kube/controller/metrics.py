"""Exports the runtime's counters as Prometheus metrics at each scrape.

Metrics of work queues and leader election have the names of client-go, so existing dashboards
work; the names of all others begin with ``kube_runtime_``.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from kubeshare.kube.cache.reflector import Reflector
from kubeshare.kube.client.client import Client
from kubeshare.kube.controller.controller import Controller
from kubeshare.kube.controller.leader_election import LeaderElector

_BUCKETS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60)


class RuntimeCollector(Collector):
    """Collects the counters of a client, reflectors, controllers and electors."""

    def __init__(
        self,
        client: Client,
        reflectors: Sequence[Reflector[Any]],
        controllers: Sequence[Controller[Any]],
        electors: Sequence[LeaderElector],
    ) -> None:
        self._client = client
        self._reflectors = reflectors
        self._controllers = controllers
        self._electors = electors

    def collect(self) -> Iterator[Metric]:
        """The present values of all metrics."""
        yield from self._requests()
        yield from self._watches()
        yield from self._queues()
        leader = GaugeMetricFamily(
            "leader_election_master_status", "1 while this replica leads", labels=["name"]
        )
        for elector in self._electors:
            leader.add_metric([elector.name], float(elector.leading))
        yield leader

    def _requests(self) -> Iterator[Metric]:
        requests = CounterMetricFamily(
            "kube_runtime_requests", "Requests to the API server", labels=["verb", "resource"]
        )
        for (verb, resource), count in self._client.requests.items():
            requests.add_metric([verb, resource], count)
        yield requests

    def _watches(self) -> Iterator[Metric]:
        labels = ["resource"]
        synced = GaugeMetricFamily(
            "kube_runtime_synced",
            "1 once all stores of these objects have been filled",
            labels=labels,
        )
        objects = GaugeMetricFamily("kube_runtime_objects", "Objects in the stores", labels=labels)
        age = GaugeMetricFamily(
            "kube_runtime_last_event_age_seconds",
            "Time since the quietest watch of these objects received anything",
            labels=labels,
        )
        relists = CounterMetricFamily(
            "kube_runtime_relists", "Lists of these objects after the first", labels=labels
        )
        restarts = CounterMetricFamily(
            "kube_runtime_watch_restarts", "Watches that ended", labels=[*labels, "reason"]
        )
        for name, group in self._by_resource().items():
            synced.add_metric([name], float(all(each.synced for each in group)))
            objects.add_metric([name], sum(len(each.store) for each in group))
            relists.add_metric([name], sum(each.relists for each in group))
            ages = [each.last_event_age for each in group if each.last_event_age is not None]
            if ages:
                age.add_metric([name], max(ages))
            counts = sum((each.restarts for each in group), Counter[str]())
            for reason, count in counts.items():
                restarts.add_metric([name, reason], count)
        yield from (synced, objects, age, relists, restarts)

    def _by_resource(self) -> dict[str, list[Reflector[Any]]]:
        """The reflectors of each kind; a program may have several, with different selectors."""
        found = defaultdict(list)
        for reflector in self._reflectors:
            found[reflector.resource.plural].append(reflector)
        return found

    def _queues(self) -> Iterator[Metric]:
        depth = GaugeMetricFamily("workqueue_depth", "Keys that wait in the queue", labels=["name"])
        adds = CounterMetricFamily("workqueue_adds", "Keys added to the queue", labels=["name"])
        retries = CounterMetricFamily(
            "workqueue_retries", "Keys queued again after a failure", labels=["name"]
        )
        unfinished = GaugeMetricFamily(
            "workqueue_unfinished_work_seconds",
            "Time so far of all keys in process, together",
            labels=["name"],
        )
        longest = GaugeMetricFamily(
            "workqueue_longest_running_processor_seconds",
            "Time so far of the oldest key in process",
            labels=["name"],
        )
        results = CounterMetricFamily(
            "kube_runtime_reconciles", "Reconciles by their result", labels=["controller", "result"]
        )
        for controller in self._controllers:
            name, queue = controller.name, controller.queue
            depth.add_metric([name], len(queue))
            adds.add_metric([name], queue.adds)
            retries.add_metric([name], queue.retries)
            unfinished.add_metric([name], queue.unfinished_seconds)
            longest.add_metric([name], queue.longest_seconds)
            for result, count in controller.results.items():
                results.add_metric([name, result], count)
        yield from (depth, adds, retries, unfinished, longest, results)


def time_controllers(registry: CollectorRegistry, controllers: Sequence[Controller[Any]]) -> None:
    """Register histograms of the queue and work durations of controllers."""
    waited = Histogram(
        "workqueue_queue_duration_seconds",
        "Time of a key in the queue",
        ["name"],
        buckets=_BUCKETS,
        registry=registry,
    )
    worked = Histogram(
        "workqueue_work_duration_seconds",
        "Time of a reconcile",
        ["name"],
        buckets=_BUCKETS,
        registry=registry,
    )
    for controller in controllers:
        controller.queue.on_taken = waited.labels(controller.name).observe
        controller.queue.on_done = worked.labels(controller.name).observe
