"""What the daemon exports: names, units and labels of its metrics, and the entries behind them."""

from typing import Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry, generate_latest

from kubeshare.core.token import WAIT_BOUNDS_NS, MemberView
from kubeshare.tokens import snapshot
from kubeshare.tokens.files.counters import Usage
from kubeshare.tokens.files.grants import GrantedPod
from kubeshare.tokens.metrics import TokenCollector
from kubeshare.tokens.wire.protocol import GrantState
from tokens.helpers import GI, GPU_A, GPU_B, grant

VIEW = MemberView(
    name="c",
    gpu=GPU_A,
    request_micros=300_000,
    limit_micros=500_000,
    share=0.25,
    recent_share=0.125,
    charged_ns=1_500_000_000,
    grants=3,
    drains=4,
    drain_ns=500_000_000,
    overruns=5,
    bypasses=6,
    waits=7,
    waited_ns=2_500_000_000,
    longest_wait_ns=750_000_000,
    state="open",
    owes_report=False,
)


class FakeSession:
    """A session of two processes with a grant of two GPUs."""

    name = "c"
    state = GrantState.REFUSED
    processes = 2

    def __init__(self, **more: Any) -> None:
        asked = grant("c", 0.3, 0.5, gpus=(GPU_A, GPU_B), share="train", limit_alone=0.75)
        self.grant = msgspec.structs.replace(asked, **more)


USAGE = (Usage(11, 12, 15, 16), Usage(13, 14, 15, 16))


def entries(session: Any) -> list[dict[str, Any]]:
    return snapshot.entries(session, {("c", GPU_A): VIEW}, USAGE)


POD = GrantedPod(namespace="ns", name="p", uid="u")


def test_an_entry_has_what_a_member_was_granted_and_used() -> None:
    first, second = entries(FakeSession(pod=POD, container="main"))
    assert first == {
        "gpu": GPU_A,
        "model": "",
        "claim": "c",
        "namespace": "ns",
        "pod": "p",
        "container": "main",
        "holder": "ns/p/main",
        "shareName": "train",
        "state": "open",
        "processes": 2,
        "requestMicros": 300_000,
        "limitMicros": 500_000,
        "limitAloneMicros": 750_000,
        "latencySensitive": False,
        "share": 0.25,
        "recentShare": 0.125,
        "chargedNs": 1_500_000_000,
        "grants": 3,
        "drains": 4,
        "drainNs": 500_000_000,
        "overruns": 5,
        "bypasses": 6,
        "waits": 7,
        "waitedNs": 2_500_000_000,
        "longestWaitNs": 750_000_000,
        "memoryBytes": GI,
        "memoryLimitBytes": GI,
        "memoryUsedBytes": 11,
        "hostMemoryBytes": 15,
        "memorySpilledBytes": 16,
        "memoryTotalBytes": 16 * GI,
        "memoryPhysicalBytes": 16 * GI,
        "launches": 12,
    }
    used = ("memoryUsedBytes", "launches", "gpu", "state")
    assert [second[key] for key in used] == [13, 14, GPU_B, "refused"]
    assert {key: second[key] for key in NOT_COUNTED} == NOT_COUNTED


NOT_COUNTED = {
    "share": 0.0,
    "recentShare": 0.0,
    "chargedNs": 0,
    "grants": 0,
    "drains": 0,
    "drainNs": 0,
    "overruns": 0,
    "bypasses": 0,
    "waits": 0,
    "waitedNs": 0,
    "longestWaitNs": 0,
}


@pytest.mark.parametrize("container", [None, "main"])
def test_a_grant_without_a_pod_has_the_name_of_its_claim(container: str | None) -> None:
    first, _ = entries(FakeSession(container=container))
    assert (first["namespace"], first["pod"]) == ("", "")
    assert first["container"] == (container or "")
    assert first["holder"].startswith("c")


def test_the_limit_while_alone_is_at_least_the_limit() -> None:
    shares = tuple(
        msgspec.structs.replace(each, limit_alone_micros=0) for each in FakeSession().grant.gpus
    )
    assert entries(FakeSession(gpus=shares))[0]["limitAloneMicros"] == 500_000


TOTALS = snapshot.Totals(
    9, 3, 2, wait_counts=(0, 0, 2, *(0,) * (len(WAIT_BOUNDS_NS) - 3), 1), waited_ns=31_500_000_000
)
LABELS = f'claim="c",container="main",gpu="{GPU_A}",namespace="ns",pod="p",share="train"'


@pytest.mark.parametrize(
    ("name", "kind", "text", "value"),
    [
        ("gpu_seconds_total", "counter", "GPU time charged", "1.5"),
        ("grants_total", "counter", "How often the gate was opened", "3.0"),
        ("waits_total", "counter", "How often a launch had to wait for the token", "7.0"),
        ("wait_seconds_total", "counter", "Time waited for the token", "2.5"),
        ("drains_total", "counter", "How often the gate closed and the GPU came to be done", "4.0"),
        (
            "drain_seconds_total",
            "counter",
            "Time from the closings to the ends of the drains",
            "0.5",
        ),
        ("overruns_total", "counter", "Drains that took longer than the shortest grant", "5.0"),
        ("bypasses_total", "counter", "Drains that did not end in time", "6.0"),
        ("share", "gauge", "Share of the GPU's time of late, 0 to 1", "0.25"),
        ("share_10s", "gauge", "Share of the GPU's time in the last 10 s, 0 to 1", "0.125"),
        ("request", "gauge", "Guaranteed share, 0 to 1", "0.3"),
        ("limit", "gauge", "Largest share, 0 to 1", "0.5"),
        ("longest_wait_seconds", "gauge", "The longest wait for the token that ended", "0.75"),
        ("memory_limit_bytes", "gauge", "Memory that may be held", "1.073741824e+09"),
        ("memory_used_bytes", "gauge", "Memory that the processes say they hold", "11.0"),
        ("processes", "gauge", "Processes that are connected", "2.0"),
    ],
)
def test_a_metric_of_a_session(name: str, kind: str, text: str, value: str) -> None:
    lines = scrape()
    at = lines.index(f"# HELP kubeshare_token_{name} {text}")
    assert lines[at + 1 : at + 3] == [
        f"# TYPE kubeshare_token_{name} {kind}",
        f"kubeshare_token_{name}{{{LABELS}}} {value}",
    ]


def test_refused_sessions_have_no_metrics_and_dropped_connections_are_counted() -> None:
    lines = scrape()
    assert not [line for line in lines if GPU_B in line]
    assert len([line for line in lines if line.startswith("# HELP")]) == 21
    name = "kubeshare_token_connections_dropped_total"
    assert lines[-9:-6] == [
        f"# HELP {name} Connections closed for what their processes did",
        f"# TYPE {name} counter",
        f"{name} 9.0",
    ]
    assert lines[-4] == "kubeshare_token_pauses_total 3.0"
    assert lines[-1] == "kubeshare_token_counters_skipped 2.0"


def test_waits_are_a_histogram_of_the_node() -> None:
    name = "kubeshare_token_wait_duration_seconds"
    lines = [line for line in scrape() if line.startswith(name)]
    buckets = [line.partition(" ") for line in lines[:-2]]
    assert [each for each, _, count in buckets if count == "0.0"] == [
        f'{name}_bucket{{le="0.001"}}',
        f'{name}_bucket{{le="0.002"}}',
    ]
    assert f'{name}_bucket{{le="0.005"}} 2.0' in lines
    assert f'{name}_bucket{{le="30.0"}} 2.0' in lines
    assert f'{name}_bucket{{le="+Inf"}} 3.0' in lines
    assert lines[-2:] == [f"{name}_count 3.0", f"{name}_sum 31.5"]


def scrape() -> list[str]:
    registry = CollectorRegistry()
    found = entries(FakeSession(pod=POD, container="main"))
    registry.register(TokenCollector(lambda: found, lambda: TOTALS))
    return generate_latest(registry).decode().splitlines()
