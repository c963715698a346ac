"""Which SharePods a change of a vGPU, a pod or a SharePod concerns."""

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from fakes import manifests, objects
from kubeshare.api.state.unschedulable import UnschedulableQueue
from kubeshare.api.types.core_v1 import Pod, PodStatus
from kubeshare.api.types.v1 import VGPU, Holder
from kubeshare.device_manager.sharepod.event_handlers import (
    SharePodEventHandlers,
    index_by_vgpu,
    with_assumed,
)
from kubeshare.kube.cache.store import ADDED, DELETED, MODIFIED, Change, Store
from kubeshare.kube.meta import Condition, Key
from kubeshare.kube.resources import Raw

A, B, FULL = Key("default", "a"), Key("default", "b"), Key("crowded", "full")


class Stage:
    """Handlers of two SharePods that name vGPU ``x``, and one whose given GPU has no room.

    Attributes:
        with_pod: the SharePods that have one.
        own_write: whether a change of a pod is the program's own write.
        status_differs: whether this program's part of a status has changed.
        own_status: whether it is what the program has written.
    """

    def __init__(self) -> None:
        self.store: Store[Raw] = Store()
        index_by_vgpu(self.store)
        self.store.replace(
            [
                sharepod("a", {"id": "x"}, nodeName="n1"),
                sharepod("b", {"ids": ["x", "y"]}, nodeName="n1"),
                sharepod("c", {"id": "x"}),
                sharepod("d", {"id": "x"}, nodeName="n2"),
            ]
        )
        self.vgpus = {"x": objects.vgpu("x")}
        self.with_pod: set[Key] = set()
        self.own_write = self.status_differs = self.own_status = False
        queue: UnschedulableQueue[Key] = UnschedulableQueue()
        queue.add(FULL, "")
        cluster_state: Any = SimpleNamespace(
            pool=SimpleNamespace(get=self.vgpus.get),
            pod=lambda key: key if key in self.with_pod else None,
            is_own_write=lambda _: self.own_write,
        )
        writer: Any = SimpleNamespace(
            differs=lambda *_: self.status_differs, is_own=lambda *_: self.own_status
        )
        self.handlers = SharePodEventHandlers(self.store, cluster_state, queue, writer)

    def vgpu(self, old: VGPU | None, new: VGPU, kind: str = MODIFIED) -> list[Key]:
        return list(self.handlers.on_vgpu(Change(kind, new, old)))

    def pod(self, old: Pod | None, new: Pod, kind: str = MODIFIED) -> list[Key]:
        return list(self.handlers.on_pod(Change(kind, new, old)))

    def sharepod(self, old: Raw | None, new: Raw, kind: str = MODIFIED) -> list[Key]:
        return list(self.handlers.on_sharepod(Change(kind, new, old)))


@pytest.fixture
def stage() -> Stage:
    return Stage()


def sharepod(name: str, gpu: Raw | None = None, **spec: Any) -> Raw:
    return manifests.sharepod(name, gpu, metadata={"namespace": "default", "uid": name}, **spec)


def held(*holders: Holder, phase: str = "Active", **of_metadata: Any) -> VGPU:
    return objects.vgpu("x", phase=phase, holders=holders, **of_metadata)


def holder(name: str, **fields: Any) -> Holder:
    return objects.holder(name, namespace="default", **fields)


HA, HB, HC = holder("a"), holder("b"), holder("other")


@pytest.mark.parametrize("kind", [ADDED, DELETED])
def test_a_vgpu_that_comes_or_goes_concerns_all_that_name_it(stage: Stage, kind: str) -> None:
    old = None if kind == ADDED else held(HA)
    assert stage.vgpu(old, held(HA), kind) == [A, B]


@pytest.mark.parametrize(
    ("new", "concerned"),
    [
        (held(HA), []),
        (held(HA, HB), [B]),
        (held(HA, HC), []),
        (held(), [A, B]),
        (held(HB), [A, B]),
        (held(holder("a", pod_uid="p")), []),
        (held(holder("a", share="other")), [A, B]),
        (held(holder("a", attempt=2)), [A, B]),
        (held(HA, phase="Releasing"), [A, B]),
        (held(HA, uid="new"), [A, B]),
        (held(HA, annotations={"k": "v"}), [A, B]),
        (held(HA, deletion_timestamp="2026-01-01T00:00:00Z"), [A, B]),
        (held(HA, labels={"k": "v"}), []),
        (held(HA, version=2), []),
    ],
)
def test_a_change_of_a_vgpu_concerns_those_for_whom_it_makes_a_difference(
    stage: Stage, new: VGPU, concerned: list[Key]
) -> None:
    assert stage.vgpu(held(HA), new) == concerned


def test_a_holder_that_leaves_concerns_it_and_those_that_have_none(stage: Stage) -> None:
    assert stage.vgpu(held(HA, HB, HC), held(HA, HB)) == []
    assert stage.vgpu(held(HA, HC), held(HA)) == [B]
    assert stage.vgpu(held(HA, HB), held(HA)) == [B]


def test_a_holder_for_which_a_quota_charges_less_concerns_those_that_wait_in_its_namespace(
    stage: Stage,
) -> None:
    mine = objects.holder("c", namespace="crowded")
    exclusive = msgspec.structs.replace(mine, exclusion="x")
    assert stage.vgpu(held(mine), held()) == [A, B, FULL]
    assert stage.vgpu(held(mine), held(mine), DELETED) == [A, B, FULL]
    assert stage.vgpu(held(), held(mine)) == []
    assert stage.vgpu(held(), held(exclusive)) == [FULL], "its mates cost nothing more"


def test_a_pod_uid_that_is_taken_back_or_replaced_concerns_its_holder(stage: Stage) -> None:
    bound = held(holder("a", pod_uid="p"), HB)
    assert stage.vgpu(bound, held(HA, HB)) == [A]
    assert stage.vgpu(bound, held(holder("a", pod_uid="q"), HB)) == [A]


def test_a_vgpu_that_becomes_active_concerns_those_without_a_pod(stage: Stage) -> None:
    creating = held(HA, HB, phase="Creating")
    assert stage.vgpu(creating, held(HA, HB)) == [A, B]
    stage.with_pod.add(A)
    assert stage.vgpu(creating, held(HA, HB)) == [B]
    assert stage.vgpu(held(HA, HB, phase="Idle"), held(HA, HB)) == [A, B]
    assert stage.vgpu(creating, held(HA, HB, phase="Idle")) == [A, B]


def test_what_was_written_meanwhile_is_compared_as_well(stage: Stage) -> None:
    changes = []
    pool: Any = SimpleNamespace(superseded=lambda _: written)
    handle = with_assumed(pool, lambda change: changes.append(change) or [])  # type: ignore[func-returns-value]
    change = Change(MODIFIED, held(), held(HA))
    written: VGPU | None = None
    assert list(handle(change)) == []
    written = held(HB)
    list(handle(change))
    assert changes == [change, change, Change(MODIFIED, held(), written)]


def placeholder(node: str = "", **more: Any) -> Pod:
    return objects.pod("kubeshare-vgpu-x", node, placeholder_of="x", phase="Pending", **more)


def test_a_placeholder_concerns_those_that_name_its_vgpu(stage: Stage) -> None:
    assert stage.pod(None, placeholder(), ADDED) == []
    assert stage.pod(placeholder(), placeholder()) == []
    assert stage.pod(placeholder(), placeholder("n1")) == [A, B]
    assert stage.pod(placeholder("n1"), placeholder("n1"), DELETED) == [A, B]
    later = placeholder(deletion_timestamp="2026-01-01T00:00:00Z")
    assert stage.pod(placeholder(), later) == [A, B]


def test_a_placeholder_in_a_passing_state_concerns_those_that_show_the_last_one(
    stage: Stage,
) -> None:
    allocated = {"type": "Allocated", "status": "False", "reason": "r", "message": "m"}
    scheduled = allocated | {"type": "Scheduled"}
    for name, condition in (("a", allocated), ("b", scheduled)):
        raw = stage.store.by_key(Key("default", name))
        assert raw is not None
        metadata = raw["metadata"] | {"resourceVersion": "2"}
        stage.store.put(raw | {"metadata": metadata, "status": {"conditions": [condition]}})
    assert stage.pod(None, placeholder(), ADDED) == [A]


def test_the_pod_of_a_sharepod_concerns_it_unless_this_program_has_just_written_it(
    stage: Stage,
) -> None:
    pod = msgspec.structs.replace(
        objects.pod("a", gpus=0), metadata=objects.metadata("a", namespace="default")
    )
    assert stage.pod(None, pod, ADDED) == [A]
    assert stage.pod(pod, pod) == []
    ready = PodStatus(phase="Running", conditions=(Condition(type="Ready", status="True"),))
    assert stage.pod(pod, msgspec.structs.replace(pod, status=ready)) == [A]
    stage.own_write = True
    assert stage.pod(None, pod, ADDED) == []
    assert stage.pod(placeholder(), placeholder("n1")) == [A, B], "others wait for that one"


def test_a_pod_with_whole_gpus_concerns_those_whose_gpu_has_no_room(stage: Stage) -> None:
    assert stage.pod(None, objects.pod("native"), ADDED) == [FULL]
    assert stage.pod(None, objects.pod("native", gpus=0), ADDED) == []
    unknown = objects.pod("p", placeholder_of="unknown")
    assert stage.pod(None, unknown, ADDED) == [FULL]
    assert list(stage.handlers.all_unschedulable(None)) == [FULL]


ASKS = {"request": "0.3"}


@pytest.mark.parametrize(
    ("raw", "concerned"),
    [
        (sharepod("a", ASKS), []),
        (sharepod("a", ASKS, nodeName="n1"), [A]),
        (sharepod("a", {"id": "x"}), [A]),
        (sharepod("a"), [A]),
        (sharepod("a", ASKS) | {"status": {"phase": "Running"}}, [A]),
        (
            manifests.sharepod(
                "a", ASKS, metadata={"namespace": "default", "deletionTimestamp": "t"}
            ),
            [A],
        ),
    ],
)
def test_a_new_sharepod_waits_for_the_scheduler_first(
    stage: Stage, raw: Raw, concerned: list[Key]
) -> None:
    assert stage.sharepod(None, raw, ADDED) == concerned


def test_a_change_of_a_status_concerns_it_only_if_somebody_else_wrote_our_part(
    stage: Stage,
) -> None:
    old = sharepod("a", ASKS, nodeName="n1")
    new = old | {"status": {"phase": "Running"}}
    assert stage.sharepod(old, new) == []
    stage.status_differs = True
    assert stage.sharepod(old, new) == [A]
    stage.own_status = True
    assert stage.sharepod(old, new) == []
    assert stage.sharepod(old, new, DELETED) == [A]
    assert stage.sharepod(old, sharepod("a", ASKS, nodeName="n2")) == [A]
