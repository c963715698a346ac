"""What the runtime exports: names, labels and help are what dashboards are made of."""

from collections import Counter
from types import SimpleNamespace
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest

from kubeshare.kube.controller.metrics import RuntimeCollector, time_controllers


def queue(**more: Any) -> Any:
    values = {"adds": 5, "retries": 2, "unfinished_seconds": 1.5, "longest_seconds": 1.25}
    found = type("Queue", (), {"__len__": lambda _: 3})()
    vars(found).update(values | more)
    return found


def scrape(registry: CollectorRegistry) -> list[str]:
    return [
        line for line in generate_latest(registry).decode().splitlines() if "_created" not in line
    ]


def test_every_metric_of_the_runtime() -> None:
    pods = SimpleNamespace(
        resource=SimpleNamespace(plural="pods"),
        synced=True,
        store=[1, 2],
        relists=4,
        last_event_age=2.5,
        restarts=Counter({"expired": 6}),
    )
    nodes = SimpleNamespace(
        resource=SimpleNamespace(plural="nodes"),
        synced=False,
        store=[],
        relists=0,
        last_event_age=None,
        restarts=Counter(),
    )
    controller = SimpleNamespace(name="vgpus", queue=queue(), results=Counter({"success": 7}))
    collector: Any = RuntimeCollector
    registry = CollectorRegistry()
    registry.register(
        collector(
            SimpleNamespace(requests=Counter({("get", "pods"): 8})),
            [pods, nodes],
            [controller],
            [SimpleNamespace(name="lease", leading=True)],
        )
    )
    assert scrape(registry) == [
        "# HELP kube_runtime_requests_total Requests to the API server",
        "# TYPE kube_runtime_requests_total counter",
        'kube_runtime_requests_total{resource="pods",verb="get"} 8.0',
        "# HELP kube_runtime_synced 1 once all stores of these objects have been filled",
        "# TYPE kube_runtime_synced gauge",
        'kube_runtime_synced{resource="pods"} 1.0',
        'kube_runtime_synced{resource="nodes"} 0.0',
        "# HELP kube_runtime_objects Objects in the stores",
        "# TYPE kube_runtime_objects gauge",
        'kube_runtime_objects{resource="pods"} 2.0',
        'kube_runtime_objects{resource="nodes"} 0.0',
        (
            "# HELP kube_runtime_last_event_age_seconds "
            "Time since the quietest watch of these objects received anything"
        ),
        "# TYPE kube_runtime_last_event_age_seconds gauge",
        'kube_runtime_last_event_age_seconds{resource="pods"} 2.5',
        "# HELP kube_runtime_relists_total Lists of these objects after the first",
        "# TYPE kube_runtime_relists_total counter",
        'kube_runtime_relists_total{resource="pods"} 4.0',
        'kube_runtime_relists_total{resource="nodes"} 0.0',
        "# HELP kube_runtime_watch_restarts_total Watches that ended",
        "# TYPE kube_runtime_watch_restarts_total counter",
        'kube_runtime_watch_restarts_total{reason="expired",resource="pods"} 6.0',
        "# HELP workqueue_depth Keys that wait in the queue",
        "# TYPE workqueue_depth gauge",
        'workqueue_depth{name="vgpus"} 3.0',
        "# HELP workqueue_adds_total Keys added to the queue",
        "# TYPE workqueue_adds_total counter",
        'workqueue_adds_total{name="vgpus"} 5.0',
        "# HELP workqueue_retries_total Keys queued again after a failure",
        "# TYPE workqueue_retries_total counter",
        'workqueue_retries_total{name="vgpus"} 2.0',
        "# HELP workqueue_unfinished_work_seconds Time so far of all keys in process, together",
        "# TYPE workqueue_unfinished_work_seconds gauge",
        'workqueue_unfinished_work_seconds{name="vgpus"} 1.5',
        (
            "# HELP workqueue_longest_running_processor_seconds "
            "Time so far of the oldest key in process"
        ),
        "# TYPE workqueue_longest_running_processor_seconds gauge",
        'workqueue_longest_running_processor_seconds{name="vgpus"} 1.25',
        "# HELP kube_runtime_reconciles_total Reconciles by their result",
        "# TYPE kube_runtime_reconciles_total counter",
        'kube_runtime_reconciles_total{controller="vgpus",result="success"} 7.0',
        "# HELP leader_election_master_status 1 while this replica leads",
        "# TYPE leader_election_master_status gauge",
        'leader_election_master_status{name="lease"} 1.0',
    ]


def test_watches_of_one_kind_are_one_series() -> None:
    """Prometheus drops all but one of the samples with the same name and labels."""

    def watch(*, synced: bool, objects: int, age: float | None) -> Any:
        return SimpleNamespace(
            resource=SimpleNamespace(plural="pods"),
            synced=synced,
            store=range(objects),
            relists=1,
            last_event_age=age,
            restarts=Counter({"expired": 2}),
        )

    watches = [
        watch(synced=True, objects=2, age=1.5),
        watch(synced=False, objects=3, age=None),
        watch(synced=True, objects=0, age=4.5),
    ]
    registry = CollectorRegistry()
    nothing: Any = SimpleNamespace(requests=Counter())
    registry.register(RuntimeCollector(nothing, watches, [], []))
    assert [line for line in scrape(registry) if "{" in line] == [
        'kube_runtime_synced{resource="pods"} 0.0',
        'kube_runtime_objects{resource="pods"} 5.0',
        'kube_runtime_last_event_age_seconds{resource="pods"} 4.5',
        'kube_runtime_relists_total{resource="pods"} 3.0',
        'kube_runtime_watch_restarts_total{reason="expired",resource="pods"} 6.0',
    ]


def histogram(name: str, text: str, seconds: float) -> list[str]:
    """A histogram of one observation."""
    bounds = ("0.001", "0.005", "0.01", "0.05", "0.1", "0.5", "1.0", "5.0", "10.0", "30.0", "60.0")
    counts = [float(float(bound) >= seconds) for bound in bounds]
    return [
        f"# HELP {name} {text}",
        f"# TYPE {name} histogram",
        *(
            f'{name}_bucket{{le="{bound}",name="vgpus"}} {count}'
            for bound, count in zip((*bounds, "+Inf"), (*counts, 1.0), strict=True)
        ),
        f'{name}_count{{name="vgpus"}} 1.0',
        f'{name}_sum{{name="vgpus"}} {seconds}',
    ]


def test_the_times_of_keys_are_histograms() -> None:
    controller: Any = SimpleNamespace(name="vgpus", queue=queue())
    registry = CollectorRegistry()
    time_controllers(registry, [controller])
    controller.queue.on_taken(0.02)
    controller.queue.on_done(7.5)
    assert scrape(registry) == [
        *histogram("workqueue_queue_duration_seconds", "Time of a key in the queue", 0.02),
        *histogram("workqueue_work_duration_seconds", "Time of a reconcile", 7.5),
    ]
