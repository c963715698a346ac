"""A ledger that is kept by events equals one that is built from the objects, whatever comes."""

import asyncio
import gc
import operator
import sys
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import samples
from fakes.objects import GIB, gpunode, holder, node, pod, vgpu
from kubeshare.api.state import ledger_builder
from kubeshare.api.state.ledger_cache import ENTRIES_AT_ONCE, MIN_MARKS, LedgerCache, Upkeep
from kubeshare.api.state.vgpu_store import VGPUStore
from kubeshare.api.types import v1
from kubeshare.api.types.core_v1 import (
    NODES,
    PODS,
    Node,
    Pod,
)
from kubeshare.core.decision import Decision
from kubeshare.core.demand import Demand, LabelScope, Memory
from kubeshare.core.errors import LedgerError
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.policies import policy
from kubeshare.core.policies.indexes import attach_indexes
from kubeshare.kube.cache.reflector import Reflector
from kubeshare.kube.meta import Key
from kubeshare.simulator.control import FakeApiServer, run_virtual, until

POLICIES = tuple(policy(name) for name in ("locality", "binpack", "topology"))
Object = v1.VGPU | v1.GPUNode | Node | Pod


class Cluster:
    """Stores that a test fills as watches would, and the ledger that is kept of them."""

    def __init__(self) -> None:
        client = FakeApiServer().client()
        vgpus: Reflector[v1.VGPU] = Reflector(client, v1.VGPUS.into(v1.VGPU))
        gpunodes: Reflector[v1.GPUNode] = Reflector(client, v1.GPUNODES.into(v1.GPUNode))
        nodes: Reflector[Node] = Reflector(client, NODES)
        pods: Reflector[Pod] = Reflector(client, PODS)
        self.reflectors: dict[type, Reflector[Any]] = {
            v1.VGPU: vgpus,
            v1.GPUNode: gpunodes,
            Node: nodes,
            Pod: pods,
        }
        self.builds = 0
        self.pool = VGPUStore(client, vgpus, "test")
        self.scope: LabelScope = "cluster"
        self.kept = LedgerCache(
            self.pool,
            gpunodes=gpunodes,
            nodes=nodes,
            pods=pods,
            label_scope=lambda: self.scope,
            built=self._count,
        )

    def _count(self) -> None:
        self.builds += 1

    def watched(self, *objects: Object) -> None:
        for obj in objects:
            reflector = self.reflectors[type(obj)]
            reflector._notify(reflector.store.put(obj))

    def gone(self, kind: type, key: Key) -> None:
        reflector = self.reflectors[kind]
        reflector._notify(reflector.store.remove(key))

    def listed(self, kind: type, *objects: Object) -> None:
        reflector = self.reflectors[kind]
        reflector._notify(reflector.store.replace(objects))

    def built(self) -> Ledger:
        """The ledger from scratch."""
        found = {kind: each.store.snapshot().values() for kind, each in self.reflectors.items()}
        return ledger_builder.build(self.pool.all(), found[v1.GPUNode], found[Node], found[Pod])


def changed(cluster: Cluster) -> set[str]:
    """The vGPUs whose entries are to be built again."""
    state = cluster.kept._state
    return set() if state is None else state.vgpus


def with_cluster(scenario: Callable[[Cluster], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        await scenario(Cluster())

    run_virtual(main())


NODE_NAMES = st.sampled_from(["n1", "n2"])
GPUIDS = st.sampled_from(["a", "b", "c"])
STAMPS = st.fixed_dictionaries(
    {"version": st.integers(1, 9), "uid": st.sampled_from(["u", "v"])},
    optional={"deletion_timestamp": st.just("2026-01-01T00:00:00Z")},
)
HOLDERS = st.lists(
    st.builds(holder, st.sampled_from(["x", "y", "z"]), st.sampled_from([300_000, 500_000])),
    max_size=3,
).map(tuple)


def objects_of(kind: type) -> st.SearchStrategy[Any]:
    """Any state of any object of a kind, of any age."""
    if kind is Node:
        return st.builds(
            lambda name, gpus, of: node(name, gpus, **of), NODE_NAMES, st.integers(1, 3), STAMPS
        )
    if kind is v1.GPUNode:
        return st.builds(
            lambda name, healthy, link, of: gpunode(
                name, unhealthy=range(healthy, 2), link=link, **of
            ),
            NODE_NAMES,
            st.integers(0, 2),
            st.sampled_from(["NV2", "SYS", "strange"]),
            STAMPS,
        )
    if kind is v1.VGPU:
        return st.builds(
            lambda name, where, number, phase, held, of: vgpu(
                name, where, number and f"GPU-{where}-{number}", phase=phase, holders=held, **of
            ),
            GPUIDS,
            NODE_NAMES,
            st.sampled_from(["", "0", "1", "9"]),
            st.sampled_from(["Creating", "Active", "Deleting"]),
            HOLDERS,
            STAMPS,
        )
    return st.builds(
        lambda name, where, of, phase, gpus, more: pod(
            name, where, placeholder_of=of, phase=phase, gpus=gpus, **more
        ),
        st.sampled_from(["p", "q", "r"]),
        st.sampled_from(["", "n1", "n2"]),
        st.sampled_from(["", "a", "b"]),
        st.sampled_from(["Running", "Failed"]),
        st.integers(0, 2),
        STAMPS,
    )


KINDS = (v1.VGPU, v1.GPUNode, Node, Pod)
KEYS: dict[type, st.SearchStrategy[Key]] = {
    v1.VGPU: GPUIDS.map(lambda name: Key("", name)),
    v1.GPUNode: NODE_NAMES.map(lambda name: Key("", name)),
    Node: NODE_NAMES.map(lambda name: Key("", name)),
    Pod: st.sampled_from(["p", "q", "r"]).map(lambda name: Key("kubeshare-system", name)),
}
Step = Callable[[Cluster], None]


def changes_of(kind: type) -> st.SearchStrategy[Step]:
    """What a watch, or a new list, reports of a kind."""

    def watched(obj: Object) -> Step:
        return lambda cluster: cluster.watched(obj)

    def gone(key: Key) -> Step:
        return lambda cluster: cluster.gone(kind, key)

    def listed(objects: list[Object]) -> Step:
        return lambda cluster: cluster.listed(kind, *objects)

    objects = objects_of(kind)
    return st.one_of(
        objects.map(watched), KEYS[kind].map(gone), st.lists(objects, max_size=3).map(listed)
    )


# A lively cluster to begin with, so that each change has something to change.
BEGINNING: tuple[Object, ...] = (
    node("n1", 2),
    node("n2", 2),
    gpunode("n1", link="PIX"),
    gpunode("n2", link="PIX"),
    vgpu("a", "n1", "GPU-n1-0", phase="Active", holders=(holder("x"),)),
    vgpu("b", "n2", "GPU-n2-1", phase="Active", holders=(holder("y", 500_000),)),
    pod("p", "n1", placeholder_of="a"),
    pod("q", "n2", placeholder_of="b"),
)


STEPS: st.SearchStrategy[Step] = st.one_of(
    *map(changes_of, KINDS),
    objects_of(v1.VGPU).map(lambda obj: lambda cluster: cluster.pool._latest.assume(obj)),
    objects_of(v1.VGPU).map(lambda obj: lambda cluster: cluster.pool._latest.forget(obj)),
)
DEMANDS = st.builds(
    lambda request, memory, count, nodes: Demand(
        uid="new",
        name="new",
        namespace="d",
        request_micros=request,
        memory=Memory(bytes=memory * GIB),
        count=count,
        nodes=nodes,
    ),
    st.sampled_from([200_000, 600_000, 1_000_000]),
    st.sampled_from([1, 15]),
    st.integers(1, 2),
    st.sampled_from([None, frozenset(["n1"])]),
)


def described(decision: Decision) -> tuple[object, ...]:
    return (
        decision.outcome,
        decision.node,
        decision.devices,
        decision.new,
        decision.field,
        dict(decision.reasons),
    )


@pytest.mark.slow
@given(
    st.lists(
        st.tuples(st.lists(STEPS, min_size=1, max_size=2), st.sampled_from([0, 0, 0, 70]), DEMANDS),
        min_size=1,
        max_size=6,
    )
)
@settings(max_examples=samples.count(whole=600, sample=120), deadline=None)
def test_whatever_comes_in_whatever_order_it_equals_one_that_is_built(
    rounds: list[tuple[list[Step], int, Demand]],
) -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.watched(*BEGINNING)
        cluster.kept.now()
        for steps, seconds, demand in rounds:
            for step in steps:
                step(cluster)
            await asyncio.sleep(seconds)
            kept, built = cluster.kept.now(), cluster.built()
            assert kept == built
            for uid in "xyz":
                assert kept.held_by(uid) == built.held_by(uid)
            for decide in POLICIES:
                assert described(decide(kept, demand)) == described(decide(built, demand))
        assert cluster.builds == 1, "it was built anew, not kept"

    with_cluster(scenario)


def test_one_ledger_is_kept_and_built_once() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.watched(node(), gpunode(link="PIX"), vgpu("a"))
        first = cluster.kept.now()
        cluster.watched(vgpu("b", version=2), pod("p", gpus=2))
        assert cluster.kept.now() is first
        assert set(first.devices) == {"a", "b"}
        assert cluster.builds == 1

    with_cluster(scenario)


def test_a_sign_of_life_of_a_node_changes_nothing_that_an_index_has_to_hear_of() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.watched(node(), gpunode(link="PIX"), vgpu("a"))
        before = cluster.kept.now().nodes["n1"]
        cluster.watched(node(version=2), gpunode(version=2, link="PIX"))
        assert cluster.kept.now().nodes["n1"] is before

    with_cluster(scenario)


def test_what_this_program_wrote_is_in_it_before_the_watch_tells() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.watched(node(), gpunode(link="PIX"), vgpu("a"))
        assert cluster.kept.now().devices["a"].idle
        cluster.pool._latest.assume(vgpu("a", version=2, holders=(holder("x"),)))
        assert cluster.kept.now().held_by("x") == {"a"}
        cluster.watched(vgpu("a", version=3))
        assert cluster.kept.now().devices["a"].idle

    with_cluster(scenario)


def test_an_entry_that_cannot_be_replaced_has_the_ledger_built_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(_ledger: Ledger, gpuid: str) -> None:
        raise LedgerError(f"no vGPU {gpuid}")

    async def scenario(cluster: Cluster) -> None:
        cluster.watched(node(), gpunode(link="PIX"), vgpu("a"), vgpu("b"))
        cluster.kept.now()
        monkeypatch.setattr(ledger_builder, "remove_device", refuse)
        cluster.gone(v1.VGPU, Key("", "a"))
        cluster.watched(vgpu("b", version=2, holders=(holder("x"),)))
        assert cluster.kept.now() == cluster.built()
        assert cluster.builds == 2

    with_cluster(scenario)


def test_what_changes_while_nobody_asks_is_remembered_up_to_a_bound() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.watched(node(), gpunode(link="PIX"), vgpu("a"))
        cluster.kept.now()
        for number in range(MIN_MARKS + 10):
            cluster.watched(vgpu(f"b{number}"))
            cluster.gone(v1.VGPU, Key("", f"b{number}"))
        assert len(changed(cluster)) <= MIN_MARKS
        assert cluster.kept.now() == cluster.built()
        assert cluster.builds == 2

    with_cluster(scenario)


def _many(cluster: Cluster, first: int = 0) -> None:
    """Nodes with a vGPU each, more than are built in one step."""
    for number in range(first, first + 2 * ENTRIES_AT_ONCE):
        name = f"m{number}"
        cluster.watched(node(name), gpunode(name), vgpu(f"g{number}", name))


async def _steps(task: "asyncio.Task[None]") -> int:
    """How often other tasks run until a task has ended."""
    steps = 0
    while not task.done():
        steps += 1
        await asyncio.sleep(0)
    return steps


def test_built_in_steps_it_equals_one_that_is_built_at_once() -> None:
    async def scenario(cluster: Cluster) -> None:
        _many(cluster)
        attached: list[int] = []
        task = asyncio.create_task(
            cluster.kept.prepare(Upkeep(lambda ledger: attached.append(len(ledger.devices))))
        )
        assert await _steps(task) >= 4
        assert attached == [0]
        assert cluster.builds == 1
        assert cluster.kept.now() == cluster.built()
        assert cluster.builds == 1

    with_cluster(scenario)


def test_nothing_is_collected_while_it_is_built() -> None:
    """Each collection of what was built so far once kept all else from running."""

    async def scenario(cluster: Cluster) -> None:
        collects: list[bool] = []
        upkeep = Upkeep(lambda _: None, lambda _: collects.append(gc.isenabled()))
        _many(cluster)
        await cluster.kept.prepare(upkeep)
        assert gc.isenabled()
        keeping = asyncio.create_task(cluster.kept.keep_up(upkeep))
        await asyncio.sleep(0)
        built = len(collects)
        cluster.scope = "namespace"
        await until(lambda: cluster.kept.now().label_scope == "namespace")
        assert collects[:built].count(False) == built >= 4
        # The last entries are built when it is in use.
        assert collects[built:].count(False) >= built - 2
        assert gc.isenabled()
        keeping.cancel()

    with_cluster(scenario)


def test_whoever_reads_it_before_it_is_built_gets_all_of_it() -> None:
    async def scenario(cluster: Cluster) -> None:
        _many(cluster)
        task = asyncio.create_task(cluster.kept.prepare(Upkeep(lambda _: None)))
        await asyncio.sleep(0)
        cluster.watched(vgpu("late", "m0"))
        assert cluster.kept.now() == cluster.built()
        await task
        assert cluster.kept.now() == cluster.built()

    with_cluster(scenario)


def test_what_nobody_reads_is_brought_up_to_date_in_steps() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.kept.prepare(Upkeep(lambda _: None))
        keeping = asyncio.create_task(cluster.kept.keep_up(Upkeep(lambda _: None)))
        await asyncio.sleep(0)
        _many(cluster)
        assert len(changed(cluster)) == 2 * ENTRIES_AT_ONCE
        await asyncio.sleep(1)
        assert not changed(cluster)
        assert cluster.kept.now() == cluster.built()
        keeping.cancel()

    with_cluster(scenario)


def test_a_ledger_of_another_scope_is_built_in_steps_beside_the_one_in_use() -> None:
    async def scenario(cluster: Cluster) -> None:
        attached: list[int] = []
        upkeep = Upkeep(lambda ledger: attached.append(len(ledger.devices)))
        _many(cluster)
        await cluster.kept.prepare(upkeep)
        keeping = asyncio.create_task(cluster.kept.keep_up(upkeep))
        await asyncio.sleep(0)
        before = cluster.kept.now()
        cluster.scope = "namespace"
        steps = 0
        while (now := cluster.kept.now()) is before:
            cluster.watched(vgpu(f"during-{steps}", "m0"))
            steps += 1
            await asyncio.sleep(0)
        assert steps >= 4
        assert (now.label_scope, attached) == ("namespace", [0, 0])
        now = cluster.kept.now()
        cluster.scope = "cluster"
        assert (now.devices, now.nodes) == (cluster.built().devices, cluster.built().nodes)
        keeping.cancel()

    with_cluster(scenario)


def test_the_ledger_that_was_replaced_is_freed_in_steps() -> None:
    """At once, that of 40 000 GPUs kept all else from running for 0.09 s."""

    async def scenario(cluster: Cluster) -> None:
        upkeep = Upkeep(partial(attach_indexes, policy("locality")))
        _many(cluster)
        await cluster.kept.prepare(upkeep)
        keeping = asyncio.create_task(cluster.kept.keep_up(upkeep))
        await asyncio.sleep(0)
        devices = list(cluster.kept.now().devices.values())
        cluster.scope = "namespace"
        cluster.kept.now()
        references = [[sys.getrefcount(each) for each in devices]]
        for _ in devices:
            await asyncio.sleep(0)
            references.append([sys.getrefcount(each) for each in devices])
        last = references[-1]
        assert all(map(operator.lt, last, references[0]))
        freed = [sum(map(operator.eq, each, last)) for each in references]
        assert max(map(operator.sub, freed[1:], freed)) <= ENTRIES_AT_ONCE
        keeping.cancel()

    with_cluster(scenario)


def test_whoever_still_reads_the_ledger_that_was_replaced_finds_it_whole() -> None:
    async def scenario(cluster: Cluster) -> None:
        upkeep = Upkeep(lambda _: None)
        _many(cluster)
        await cluster.kept.prepare(upkeep)
        keeping = asyncio.create_task(cluster.kept.keep_up(upkeep))
        await asyncio.sleep(0)
        former = cluster.kept.now()
        found = former.devices, former.nodes
        before = dict(former.devices), dict(former.nodes)
        cluster.scope = "namespace"
        await until(lambda: cluster.kept.now() is not former)
        await asyncio.sleep(1)
        assert found == before
        keeping.cancel()

    with_cluster(scenario)
