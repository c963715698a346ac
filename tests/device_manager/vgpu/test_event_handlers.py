"""Which vGPUs a change of a vGPU, a pod, a SharePod or a node concerns."""

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from fakes import manifests, objects
from kubeshare.api.types.core_v1 import Pod, PodStatus, SchedulingGate
from kubeshare.api.types.v1 import VGPU, Holder
from kubeshare.device_manager.vgpu.event_handlers import VGPUEventHandlers
from kubeshare.kube.cache.store import ADDED, DELETED, MODIFIED, Change, Store
from kubeshare.kube.meta import Key, OwnerReference
from kubeshare.kube.resources import Raw

X, Y = Key("", "x"), Key("", "y")


def holder(demand: str, **fields: Any) -> Holder:
    return objects.holder(demand, namespace="default", **fields)


def held(*holders: Holder, name: str = "x", **more: Any) -> VGPU:
    return objects.vgpu(name, holders=holders, **more)


class Stage:
    """Handlers of vGPUs ``x``, held by ``a`` and ``b``, and ``y``, held by ``b``, on ``n1``."""

    def __init__(self) -> None:
        self.must_leave = ""
        vgpus = {
            "x": held(holder("a"), holder("b", pod_uid="pod-of-b")),
            "y": held(holder("b"), name="y"),
        }
        self.sharepods: Store[Raw] = Store()
        self.nodes: Store[Any] = Store()
        self.nodes.put(objects.node("n1"))
        pool = SimpleNamespace(
            get=vgpus.get,
            all=vgpus.values,
            held_by=lambda uid: [
                vgpu
                for vgpu in vgpus.values()
                if any(each.demand == uid for each in vgpu.status.holders)
            ],
            on_node=lambda node: vgpus.values() if node == "n1" else (),
        )
        cluster_state: Any = SimpleNamespace(pool=pool)
        evictions: Any = SimpleNamespace(reason=lambda _: self.must_leave)
        self.handlers = VGPUEventHandlers(cluster_state, self.sharepods, self.nodes, evictions)

    def want(self, *names: str) -> None:
        self.sharepods.replace([sharepod(name, {"request": "0.3"}) for name in names])

    def vgpu(self, old: VGPU | None, new: VGPU, kind: str = MODIFIED) -> list[Key]:
        return list(self.handlers.on_vgpu(Change(kind, new, old)))

    def pod(self, old: Pod | None, new: Pod, kind: str = MODIFIED) -> list[Key]:
        return list(self.handlers.on_pod(Change(kind, new, old)))

    def sharepod(self, raw: Raw, kind: str = MODIFIED) -> list[Key]:
        return list(self.handlers.on_sharepod(Change(kind, raw, raw)))


@pytest.fixture
def stage() -> Stage:
    return Stage()


def sharepod(name: str, gpu: Raw | None = None, status: Raw | None = None, **spec: Any) -> Raw:
    metadata = {"namespace": "default", "uid": name}
    return manifests.sharepod(name, gpu, metadata=metadata, **spec) | {"status": status or {}}


def test_another_wanted_holder_and_a_pod_uid_concern_nobody(stage: Stage) -> None:
    stage.want("a", "b")
    one, two = held(holder("a")), held(holder("a"), holder("b"))
    assert stage.vgpu(one, two) == []
    assert stage.vgpu(one, held(holder("a", pod_uid="p"))) == []
    stage.must_leave = "its GPU has failed"
    assert stage.vgpu(one, two) == [X]
    stage.must_leave = ""
    stage.nodes.remove(Key("", "n1"))
    assert stage.vgpu(one, two) == [X]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (None, held(holder("a"))),
        (held(), held(holder("a"))),
        (held(holder("a")), held()),
        (held(holder("a"), holder("b")), held(holder("b"))),
        (held(holder("a")), held(holder("a"), holder("unwanted"))),
        (held(holder("a")), held(holder("a"), uid="new")),
        (held(holder("a")), held(holder("a"), deletion_timestamp="t")),
        (held(holder("a")), held(holder("a"), labels={"k": "v"})),
        (held(holder("a")), held(holder("a"), annotations={"k": "v"})),
        (held(holder("a")), held(holder("a"), uuid="GPU-1")),
        (held(holder("a")), held(holder("a"), phase="Active")),
    ],
)
def test_every_other_change_concerns_the_vgpu(stage: Stage, old: VGPU | None, new: VGPU) -> None:
    stage.want("a", "b")
    assert stage.vgpu(old, new) == [X]


def test_a_vgpu_that_is_gone_is_concerned(stage: Stage) -> None:
    stage.want("a")
    assert stage.vgpu(held(holder("a")), held(holder("a")), DELETED) == [X]


def pod(uid: str, *, vgpu: str = "", owner: str = "", node: str = "n1", **more: Any) -> Pod:
    """A pod without whole GPUs."""
    owners = () if not owner else (_owner(owner),)
    labels = {"kubeshare.nthu/vgpu": vgpu} if vgpu else {}
    metadata = objects.metadata(
        "p", uid=uid, namespace="default", labels=labels, owner_references=owners, **more
    )
    return msgspec.structs.replace(objects.pod("p", node, gpus=0), metadata=metadata)


def _owner(uid: str) -> OwnerReference:
    return OwnerReference(
        api_version="kubeshare.nthu/v1", kind="SharePod", name="s", uid=uid, controller=True
    )


def test_a_deleted_pod_concerns_what_it_was_labelled_with_and_what_it_and_its_owner_hold(
    stage: Stage,
) -> None:
    assert stage.pod(pod("other"), pod("other"), DELETED) == []
    assert stage.pod(pod("other", vgpu="z"), pod("other", vgpu="z"), DELETED) == [Key("", "z")]
    assert stage.pod(pod("a"), pod("a"), DELETED) == [X]
    assert stage.pod(pod("p", owner="b"), pod("p", owner="b"), DELETED) == [X, Y]
    assert stage.pod(pod("b", vgpu="x"), pod("b"), DELETED) == [X, Y]


def test_a_pod_that_holds_shares_concerns_them_when_where_or_whether_it_runs_changes(
    stage: Stage,
) -> None:
    assert stage.pod(None, pod("a"), ADDED) == [X]
    assert stage.pod(pod("a"), pod("a")) == []
    assert stage.pod(pod("a", node=""), pod("a")) == [X]
    assert stage.pod(pod("a"), pod("a", deletion_timestamp="t")) == [X]
    assert stage.pod(pod("a"), pod("a", annotations={"kubeshare.nthu/gpuids": "x"})) == [X]
    gated = msgspec.structs.replace(
        pod("a").spec, scheduling_gates=(SchedulingGate(name="kubeshare.nthu/gpu"),)
    )
    assert stage.pod(msgspec.structs.replace(pod("a"), spec=gated), pod("a")) == [X]
    ended = msgspec.structs.replace(pod("a"), status=PodStatus(phase="Failed"))
    assert stage.pod(pod("a"), ended) == [X]


def test_the_pod_of_a_sharepod_concerns_its_vgpu_when_it_ends_or_belongs_to_another(
    stage: Stage,
) -> None:
    mine = pod("pod-of-b", owner="b", vgpu="x")
    assert stage.pod(mine, mine) == []
    assert stage.pod(mine, pod("pod-of-b", owner="b", vgpu="y")) == [X, Y]
    assert stage.pod(mine, pod("pod-of-b", owner="else", vgpu="x")) == [X]
    assert stage.pod(pod("pod-of-b", owner="b", vgpu="x", node=""), mine) == []


def test_a_new_pod_concerns_the_vgpu_only_if_it_is_recorded_there(stage: Stage) -> None:
    assert stage.pod(None, pod("pod-of-b", vgpu="x"), ADDED) == [X]
    assert stage.pod(None, pod("another", vgpu="x"), ADDED) == []
    assert stage.pod(None, pod("pod-of-b"), ADDED) == []
    assert stage.pod(None, pod("pod-of-b", vgpu="unknown"), ADDED) == []


def test_a_placeholder_concerns_its_vgpu_when_anything_changes(stage: Stage) -> None:
    before = objects.pod("kubeshare-vgpu-x", "", placeholder_of="x", phase="Pending")
    after = objects.pod("kubeshare-vgpu-x", "n1", placeholder_of="x", phase="Pending")
    assert stage.pod(None, before, ADDED) == [X]
    assert stage.pod(before, before) == []
    assert stage.pod(before, after) == [X]
    assert stage.pod(after, objects.pod("kubeshare-vgpu-x", "n1", phase="Pending")) == [X]


@pytest.mark.parametrize(
    ("raw", "concerned"),
    [
        (sharepod("b", {"ids": ["x", "y"]}, nodeName="n1"), []),
        (sharepod("b", {"id": "y"}, nodeName="n1"), [X]),
        (sharepod("b", {"request": "0.3"}), []),
        (sharepod("b", {"ids": ["x", "y"]}, {"phase": "Succeeded"}, nodeName="n1"), [X, Y]),
        (
            manifests.sharepod(
                "b",
                {"ids": ["x", "y"]},
                metadata={"namespace": "default", "uid": "b", "deletionTimestamp": "t"},
                nodeName="n1",
            ),
            [X, Y],
        ),
        (sharepod("unknown", {"id": "x"}, nodeName="n1"), []),
    ],
)
def test_a_sharepod_concerns_what_it_holds_and_may_not_want(
    stage: Stage, raw: Raw, concerned: list[Key]
) -> None:
    assert stage.sharepod(raw) == concerned


def test_a_deleted_sharepod_concerns_what_it_held(stage: Stage) -> None:
    raw = sharepod("b", {"ids": ["x", "y"]}, nodeName="n1")
    assert stage.sharepod(raw, DELETED) == [X, Y]


def test_a_node_concerns_its_vgpus_and_the_configuration_all(stage: Stage) -> None:
    assert list(stage.handlers.on_node(objects.node("n1"))) == [X, Y]
    assert list(stage.handlers.on_node(objects.node("n2"))) == []
    assert list(stage.handlers.all_vgpus(None)) == [X, Y]
