"""What nodes have left is kept up to date without going through all holders each time."""

import asyncio
import random
from typing import Any

import pytest

from fakes import manifests
from kubeshare.api.predicates.eligibility import Eligible
from kubeshare.api.predicates.node_resources import Mates, NodeResources
from kubeshare.api.state.cluster_state import ClusterState
from kubeshare.api.state.informers import start_cluster_informers
from kubeshare.api.types.core_v1 import Container, Pod, PodSpec, ResourceNeeds
from kubeshare.api.types.v1 import VGPUS
from kubeshare.kube.controller.events import EventRecorder
from kubeshare.kube.controller.runtime import Program
from kubeshare.kube.meta import Key, ObjectMeta
from kubeshare.kube.resources import NODES, PODS
from kubeshare.simulator.control import FakeApiServer, run_virtual

ASKS_2 = Pod(
    metadata=ObjectMeta(name="x", namespace="default", uid="x"),
    spec=PodSpec(containers=(Container("main", ResourceNeeds(requests={"cpu": "2"})),)),
)


def pod(uid: str, cpu: int) -> Pod:
    return Pod(
        metadata=ObjectMeta(name=uid, namespace="default", uid=uid),
        spec=PodSpec(containers=(Container("main", ResourceNeeds(requests={"cpu": str(cpu)})),)),
    )


def test_answers_that_are_kept_are_those_of_looking_anew() -> None:
    """Pods are placed and removed in any order; the same question is asked again and again."""
    draw = random.Random(5)
    server = FakeApiServer()
    names = [f"n{number}" for number in range(3)]
    for name in names:
        allocatable = {"cpu": "12", "pods": "6"}
        server.seed(NODES, {"metadata": {"name": name}, "status": {"allocatable": allocatable}})
    server.seed(VGPUS, manifests.vgpu("v", "n1", manifests.holder("p0", "p0"), phase="Active"))
    server.seed(PODS, manifests.pod("p0", {"cpu": "3"}, metadata={"namespace": "default"}))

    async def main() -> None:
        client = server.client()
        program = Program("test", client)
        recorder = EventRecorder(client, "test", "test")
        watched = start_cluster_informers(program, client, "test", recorder, lambda: None)
        resources = NodeResources(watched.nodes, watched.pods, watched.cluster_state)
        tasks = [
            asyncio.create_task(each.run()) for each in (watched.nodes, watched.pods, watched.vgpus)
        ]
        for each in (watched.nodes, watched.pods, watched.vgpus):
            await each.wait_for_sync()
        [holding] = server.all(PODS)
        pods = [pod(f"p{number}", 1 + number % 3) for number in range(1, 24)]
        pods.append(pod(holding["metadata"]["uid"], 3))
        mates, placed = Mates(), dict[str, str]()
        eligible = Eligible(nodes=frozenset(names), refusals={})
        refused = 0
        for _ in range(600):
            one = draw.choice(pods)
            uid = one.metadata.uid
            fresh = Mates()
            for other in pods:
                if other.metadata.uid in placed:
                    fresh.place(placed[other.metadata.uid], other)
            kept = resources.filter(eligible, one, mates=mates)
            assert kept == resources.filter(eligible, one, mates=fresh)
            refused += kept.nodes != eligible.nodes
            if uid in placed:
                mates.remove(uid)
                del placed[uid]
            else:
                placed[uid] = draw.choice(names)
                mates.place(placed[uid], one)
        assert 50 < refused < 550
        for task in tasks:
            task.cancel()

    run_virtual(main())


def test_a_pod_that_holds_a_share_counts_where_it_is_or_will_be(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two nodes with four cores; a pod with three of them holds a share of a GPU of the first."""
    read: list[Key] = []
    pod_of = ClusterState.pod

    def counting(state: ClusterState, key: Key) -> Pod | None:
        read.append(key)
        return pod_of(state, key)

    monkeypatch.setattr(ClusterState, "pod", counting)
    server = FakeApiServer()
    for name in ("n1", "n2"):
        allocatable = {"cpu": "4"}
        server.seed(NODES, {"metadata": {"name": name}, "status": {"allocatable": allocatable}})
    server.seed(VGPUS, manifests.vgpu("v1", "n1", manifests.holder("p", "p"), phase="Active"))
    server.seed(VGPUS, manifests.vgpu("v2", "n2", manifests.holder("q", "q"), phase="Active"))
    limits = {"cpu": "3"}
    server.seed(PODS, manifests.pod("p", limits, metadata={"namespace": "default"}))

    async def main() -> None:
        client = server.client()
        recorder = EventRecorder(client, "test", "test")
        program = Program("test", client)
        watched = start_cluster_informers(program, client, "test", recorder, lambda: None)
        resources = NodeResources(watched.nodes, watched.pods, watched.cluster_state)
        reflectors = (watched.nodes, watched.pods, watched.vgpus)
        tasks = [asyncio.create_task(each.run()) for each in reflectors]
        for each in reflectors:
            await each.wait_for_sync()

        def roomy() -> frozenset[str]:
            read.clear()
            eligible = Eligible(nodes=frozenset({"n1", "n2"}), refusals={})
            return resources.filter(eligible, ASKS_2).nodes

        assert roomy() == {"n2"}
        assert len(read) == 2
        assert roomy() == {"n2"}
        assert not read, "nothing has changed"
        server.change(PODS, "p", "default", lambda pod: pod["spec"].update(nodeName="n2"))
        await asyncio.sleep(1)
        assert roomy() == {"n1"}
        assert read == [Key("default", "p")]

        def change(vgpu: dict[str, Any]) -> None:
            vgpu["status"]["holders"] = [manifests.holder("r", "r")]

        server.seed(PODS, manifests.pod("r", limits, metadata={"namespace": "default"}))
        await asyncio.sleep(1)
        assert roomy() == {"n1"}
        assert not read, "it holds nothing"
        server.change(VGPUS, "v1", "", change)
        await asyncio.sleep(1)
        assert roomy() == frozenset()
        server.remove(VGPUS, "v1")
        await asyncio.sleep(1)
        assert roomy() == {"n1"}
        for task in tasks:
            task.cancel()

    run_virtual(main())
