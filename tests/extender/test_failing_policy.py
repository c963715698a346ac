"""A placement policy that raises is named to kube-scheduler and to the pod's author."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from expectations.pods import expect_event
from fakes.cluster import FakeCluster, predicates, run_scenario
from fakes.cluster.extender import bind, call, fit, placed, pod, start
from fakes.cluster.state import the_pod
from kubeshare.core.policies.binpack import policy as binpack
from kubeshare.core.policies.topology import policy as topology
from kubeshare.kube.resources import NODES

WORDS = "raised ZeroDivisionError: oh"


def break_policy(module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """A policy that works until the answer is called."""
    working = True

    def broken(function: Any) -> Any:
        def decide(*arguments: Any) -> Any:
            if not working:
                raise ZeroDivisionError("oh")
            return function(*arguments)

        return decide

    def stop() -> None:
        nonlocal working
        working = False

    monkeypatch.setattr(module, "decide", broken(module.decide))
    monkeypatch.setattr(module, "score", broken(module.score))
    return stop


def failures(cluster: FakeCluster) -> float:
    text = cluster.scraped("extender").decode()
    name = "kubeshare_extender_policy_failures_total "
    [line] = [line for line in text.splitlines() if line.startswith(name)]
    return float(line.removeprefix(name))


def test_every_call_says_what_it_raised_and_the_pod_stays_pending(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stop = break_policy(binpack, monkeypatch)

    async def play(cluster: FakeCluster) -> None:
        await start(cluster)
        stop()
        pod(cluster, "p", 4)
        await cluster.quiet(1)
        before = failures(cluster)
        answer = await fit(cluster, "p", "n1")
        assert answer["Error"].startswith(f"policy binpack {WORDS} (line ")
        assert answer["NodeNames"] is None
        body = {"Pod": the_pod(cluster, "p"), "NodeNames": ["n1"]}
        status, ranked = await call(cluster, "prioritize", body)
        assert (status, WORDS in str(ranked)) == (500, True)
        victims = {"NodeNameToMetaVictims": {"n1": {"Pods": []}}, "Pod": body["Pod"]}
        status, left = await call(cluster, "preempt", victims)
        assert (status, WORDS in str(left)) == (500, True)
        status, refused = await bind(cluster, "p", "n1")
        assert (status, WORDS in refused) == (500, True)
        await expect_event(cluster, "p", "BindFailed", WORDS)
        assert failures(cluster) == before + 4
        assert not placed(cluster)
        label = {"new": "label"}
        cluster.server.change(
            NODES, "n1", "", lambda node: node["metadata"]["labels"].update(label)
        )
        await cluster.quiet()  # the extender keeps its index up to date meanwhile
        assert "extender" in cluster.programs
        assert failures(cluster) == before + 4

    run_scenario(play, n1=1)


def test_the_filter_of_gpu_admission_says_it_too(monkeypatch: pytest.MonkeyPatch) -> None:
    stop = break_policy(topology, monkeypatch)

    async def play(cluster: FakeCluster) -> None:
        await predicates.start(cluster)
        stop()
        predicates.pod(cluster, "p", "30")
        await cluster.quiet(1)
        answer = await predicates.fit(cluster, "p", "n1")
        assert answer["FailedNodes"]["n1"].startswith(f"policy topology (built in) {WORDS} (line ")
        assert not predicates.placed(cluster)

    run_scenario(play, n1=1)
