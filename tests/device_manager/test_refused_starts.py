"""Nudges a refused pod when its kubelet says so, whoever else writes such events."""

import asyncio
import itertools
from collections.abc import Callable
from datetime import datetime

import pytest

from deadlines import DEADLINE_S
from fakes import manifests
from fakes.cluster import FakeCluster, scenario
from fakes.cluster.state import the_pod
from kubeshare.device_manager.refused_starts import RefusedStarts
from kubeshare.device_manager.sharepod.start_retry import (
    FIRST_RETRY_SECONDS,
    MAX_URGENT_RETRIES,
    URGENT_PAUSE_SECONDS,
)
from kubeshare.kube.client.client import Client
from kubeshare.kube.controller.runtime import Program
from kubeshare.kube.controller.workqueue import WorkQueue
from kubeshare.kube.meta import Key
from kubeshare.kube.resources import EVENTS, PODS, Raw, Resource
from kubeshare.lab.control_plane.api_server import ApiServer

NUDGED = "kubeshare.nthu/nudged"
REFUSED = "FailedPrepareDynamicResources"
AT_ONCE_SECONDS = URGENT_PAUSE_SECONDS / 2


def refuse(cluster: FakeCluster, pod: Raw, event: str = "refused", **regarding: str) -> None:
    """A kubelet, or somebody who may write events, says that a pod's claim was not prepared."""
    metadata = pod["metadata"]
    about = {key: metadata[key] for key in ("name", "namespace", "uid")} | {"kind": "Pod"}
    body = {
        "metadata": {"name": event, "namespace": metadata["namespace"]},
        "reason": REFUSED,
        "note": "claims is forbidden: no relationship found",
        "regarding": about | regarding,
    }
    cluster.server.seed(EVENTS, body)


def nudges(cluster: FakeCluster) -> list[tuple[str, float]]:
    """The pods that were annotated, and when."""
    return [
        (each.path.name, each.at)
        for each in cluster.server.requests
        if each.verb == "patch"
        and each.resource == "pods"
        and isinstance(each.body, dict)  # the gate of a plain pod is removed by operations
        and NUDGED in (each.body["metadata"].get("annotations") or {})
    ]


def now() -> float:
    return asyncio.get_running_loop().time()


async def _waiting(cluster: FakeCluster, name: str, create: Callable[[str], object]) -> Raw:
    """A pod that is named in its holders, on a node whose agent is down."""
    cluster.actors.node_agents = False
    create(name)
    uid = ""

    def is_named() -> bool:
        nonlocal uid
        uid = cluster.pod_uids().get(name, "")
        return bool(uid)

    await cluster.until(is_named)
    return the_pod(cluster, name)


async def _seconds_to_nudge(cluster: FakeCluster, pod: Raw, event: str) -> float:
    """How long after an event the pod is nudged once more."""
    known, refused_at = len(nudges(cluster)), now()
    refuse(cluster, pod, event)
    await cluster.until(lambda: len(nudges(cluster)) > known)
    return nudges(cluster)[-1][1] - refused_at


@scenario(n1=1)
async def test_a_refused_pod_is_nudged_at_once(cluster: FakeCluster) -> None:
    cluster.start()
    await cluster.run("a")
    pod = await _waiting(cluster, "b", cluster.share)
    refused_at = now()
    refuse(cluster, pod)
    await cluster.until(lambda: nudges(cluster))
    [(name, at)] = nudges(cluster)
    assert name == "b"
    assert at - refused_at < AT_ONCE_SECONDS


@scenario(n1=1)
async def test_a_refused_plain_pod_is_nudged_at_once_and_by_the_timer(cluster: FakeCluster) -> None:
    cluster.start()
    await cluster.run("a")
    pod = await _waiting(cluster, "b", cluster.plain)
    refused_at = now()
    refuse(cluster, pod)
    await cluster.until(lambda: nudges(cluster))
    assert nudges(cluster)[0][1] - refused_at < AT_ONCE_SECONDS
    await cluster.until(lambda: len(nudges(cluster)) == 2)
    assert nudges(cluster)[1][1] - refused_at > FIRST_RETRY_SECONDS / 2


@scenario(n1=1)
async def test_each_nudge_is_news_to_the_kubelet(cluster: FakeCluster) -> None:
    cluster.start()
    await cluster.run("a")
    pod = await _waiting(cluster, "b", cluster.share)
    refuse(cluster, pod)
    await cluster.until(lambda: len(nudges(cluster)) == 1)
    first = the_pod(cluster, "b")["metadata"]["annotations"][NUDGED]
    refuse(cluster, pod)
    await cluster.until(lambda: len(nudges(cluster)) == 2)
    second = the_pod(cluster, "b")["metadata"]["annotations"][NUDGED]
    assert datetime.fromisoformat(second) > datetime.fromisoformat(first)


@scenario(n1=1)
async def test_a_flood_of_events_causes_few_nudges_with_growing_pauses(
    cluster: FakeCluster,
) -> None:
    cluster.start()
    await cluster.run("a")
    pod = await _waiting(cluster, "b", cluster.share)
    first = now()
    for number in range(300):
        refuse(cluster, pod, f"forged-{number}")
        await asyncio.sleep(0.01)
    times = [at - first for _, at in nudges(cluster)]
    # Upon events 0, 0.1, 0.3, 0.7 and 1.5 s after the first; by the timer one in three seconds.
    pauses = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert len(times) == MAX_URGENT_RETRIES + 1
    assert min(pauses) >= URGENT_PAUSE_SECONDS
    assert times[MAX_URGENT_RETRIES - 1] < FIRST_RETRY_SECONDS


@scenario(n1=1)
async def test_forged_events_touch_no_other_pod(cluster: FakeCluster) -> None:
    cluster.start()
    await cluster.run("running")
    bystander = manifests.pod("other", metadata={"namespace": "default"})
    other = cluster.server.seed(PODS, bystander | {"status": {"phase": "Pending"}})
    [placeholder] = cluster.server.all(PODS, "kubeshare-system")
    waiting = await _waiting(cluster, "waits", cluster.share)
    refuse(cluster, the_pod(cluster, "running"), "one")
    refuse(cluster, other, "two")
    refuse(cluster, placeholder, "three")
    refuse(cluster, waiting, "four", uid="of-another-pod")
    refuse(cluster, waiting, "five", name="none")
    refuse(cluster, waiting, "six", namespace="none")
    await cluster.quiet(FIRST_RETRY_SECONDS / 2)
    assert nudges(cluster) == []


@scenario(n1=1)
async def test_a_refusal_before_the_pod_is_named_is_answered_when_it_is(
    cluster: FakeCluster,
) -> None:
    cluster.start("scheduler", "devices")
    await cluster.run("a")
    cluster.actors.node_agents = False
    cluster.share("b")
    await cluster.until(lambda: cluster.pod("b"))
    refuse(cluster, the_pod(cluster, "b"))
    await cluster.until(lambda: nudges(cluster))
    assert "b" in cluster.pod_uids()


@scenario(n1=1)
async def test_a_refusal_that_is_known_before_the_binding_is_answered_when_that_is(
    cluster: FakeCluster,
) -> None:
    cluster.start("scheduler", "devices")
    await cluster.run("a")
    cluster.actors.node_agents = False
    for watcher in cluster.server.storage.watchers:
        watcher.mute = watcher.plural == "pods"  # until 75 s of silence have passed
    cluster.share("b")
    await cluster.until(lambda: cluster.pod("b"))
    await cluster.until(lambda: the_pod(cluster, "b")["spec"].get("nodeName"))
    refuse(cluster, the_pod(cluster, "b"))
    await cluster.quiet(FIRST_RETRY_SECONDS)
    assert not cluster.pod_uids().get("b")
    assert nudges(cluster) == []
    refuse(cluster, the_pod(cluster, "b"))  # one event that has changed
    await cluster.until(lambda: cluster.pod_uids().get("b"), 120)
    named = now()
    await cluster.until(lambda: nudges(cluster))
    assert nudges(cluster)[0][1] - named < AT_ONCE_SECONDS


@scenario(n1=1)
async def test_a_refusal_is_answered_at_once_however_long_there_was_none(
    cluster: FakeCluster,
) -> None:
    """A quiet watch of events gets no bookmarks, so it is silent as a lost connection is."""
    cluster.start()
    await cluster.run("a", "0.05")
    for number in range(6):
        for _ in range(16):
            await cluster.quiet(50 + number)
            cluster.server.bookmark()
            cluster.server.compact()
        cluster.actors.node_agents = False
        pod = await _waiting(cluster, f"c-{number}", lambda name: cluster.share(name, "0.05"))
        assert await _seconds_to_nudge(cluster, pod, f"refused-{number}") < AT_ONCE_SECONDS
        cluster.actors.node_agents = True


@scenario(n1=1)
async def test_a_new_leader_reads_only_what_is_reported_from_then_on(cluster: FakeCluster) -> None:
    cluster.start()
    await cluster.run("a")
    pod = await _waiting(cluster, "b", cluster.share)
    await cluster.kill("devices")
    for number in range(1000):
        refuse(cluster, pod, f"old-{number}")
    cluster.start("devices")
    restarted = now()
    await cluster.quiet(FIRST_RETRY_SECONDS / 2)
    assert nudges(cluster) == []
    listed = [each for each in cluster.server.requests if each.verb == "list"]
    [*_, last] = [each for each in listed if each.resource == "events"]
    assert last.query == {"limit": "1"}
    refuse(cluster, pod, "new")
    await cluster.until(lambda: nudges(cluster))
    assert nudges(cluster)[0][1] - restarted < FIRST_RETRY_SECONDS


@scenario(n1=1)
async def test_the_timer_nudges_where_events_cannot_be_watched(cluster: FakeCluster) -> None:
    cluster.start()
    await cluster.run("a")
    pod = await _waiting(cluster, "b", cluster.share)
    cluster.server.freeze_watches()
    bound = now()
    refuse(cluster, pod)
    await cluster.until(lambda: nudges(cluster))
    assert nudges(cluster)[0][1] - bound >= FIRST_RETRY_SECONDS / 2


@pytest.mark.apiserver
def test_the_events_of_a_kubelet_are_selected(apiserver: ApiServer) -> None:
    """A kubelet writes events of the core group; they are read as those of events.k8s.io."""
    of_kubelets: Resource[Raw] = Resource("", "v1", "events", "Event")

    async def main() -> Key:
        async with (
            asyncio.timeout(DEADLINE_S),
            Client.connect(apiserver.kubeconfig) as client,
        ):
            program, queue = Program("test", client), WorkQueue[Key]()
            starts = RefusedStarts(client)
            starts.register(program)
            starts.feed(queue, lambda _, uid: uid == "uid-of-b")
            running = asyncio.create_task(program.run())
            taken = asyncio.create_task(queue.get())
            number = 0
            while not taken.done():  # the watch begins when it does
                number += 1
                for reason, uid in (("Killing", "uid-of-b"), (REFUSED, "u"), (REFUSED, "uid-of-b")):
                    about = {"kind": "Pod", "namespace": "default", "name": f"{reason}-{uid}"}
                    event = {
                        "metadata": {"name": f"{reason.lower()}-{uid}-{number}"},
                        "involvedObject": about | {"uid": uid},
                        "reason": reason,
                        "source": {"component": "kubelet", "host": "n1"},
                    }
                    await client.create(of_kubelets, event, "default")
                await asyncio.wait([taken], timeout=0.1)
            program.stop()
            await running
            return taken.result()

    assert asyncio.run(main()) == Key("default", f"{REFUSED}-uid-of-b")
