"""Of large objects the programs keep what they read, whatever their users put into them."""

import asyncio
from typing import Any

import msgspec
import pytest

from fakes import manifests
from kubeshare.api import finalizer, sharepods
from kubeshare.api.finalizer import FINALIZER
from kubeshare.api.state.informers import start_informers
from kubeshare.api.state.stripping import LARGE, is_stripped, strip, strip_pod
from kubeshare.api.types.core_v1 import Container, Pod, PodSpec, ResourceNeeds
from kubeshare.api.types.v1 import SHAREPODS
from kubeshare.dialects import sharepod as dialect
from kubeshare.kube.controller.events import EventRecorder
from kubeshare.kube.controller.runtime import Program
from kubeshare.kube.meta import ObjectMeta, OwnerReference
from kubeshare.kube.resources import PODS, Raw
from kubeshare.simulator.control import FakeApiServer, run_virtual

MUCH = "x" * (1 << 20)
TOLERATION = {"key": "gpu", "operator": "Exists"}
READ: Raw = {
    "nodeSelector": {"zone": "a"},
    "tolerations": [TOLERATION],
    "affinity": {"nodeAffinity": {}},
    "nodeName": "n1",
    "restartPolicy": "Never",
    "priority": 7,
}


def sharepod(name: str = "a", **fields: Any) -> Raw:
    container = {
        "name": "main",
        "image": "train:1",
        "args": [MUCH],
        "resources": {"limits": {"cpu": 1, "kubeshare.nthu/vgpu": "1"}},
    }
    annotations = {"kubeshare/sched_affinity": "red", "note": MUCH}
    labels = {"sharedgpu/priority": "1", "other": "a"}
    metadata = {"namespace": "default", "uid": "u", "annotations": annotations, "labels": labels}
    spec = {"containers": [container], "unknown": {"deep": [MUCH]}} | READ | fields
    return manifests.sharepod(name, {"request": "0.3"}, metadata=metadata, **spec)


def test_what_decisions_depend_on_is_kept() -> None:
    volumes = [
        {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
        {"name": "text", "configMap": {"name": MUCH}},
    ]
    raw = sharepod(volumes=volumes, initContainers=None)

    kept = strip(raw)

    assert is_stripped(kept)
    assert not is_stripped(raw)
    assert len(msgspec.msgpack.encode(kept)) < 2_000
    assert {field: kept["spec"][field] for field in READ} == READ
    assert kept["spec"]["volumes"] == [volumes[0], {"name": "text"}]
    assert kept["spec"]["initContainers"] is None
    assert kept["metadata"]["annotations"] == {"kubeshare/sched_affinity": "red"}
    assert kept["metadata"]["labels"] == {"sharedgpu/priority": "1"}
    assert dialect.demand_of(kept) == dialect.demand_of(raw)


def test_an_ordinary_object_stays_whole() -> None:
    raw = manifests.sharepod("a", {"request": "0.3"}, metadata={"annotations": {"note": "kept"}})

    assert strip(raw) is raw


@pytest.mark.parametrize("containers", [[], ["main"], "main", None])
def test_what_is_no_list_of_containers_is_left_to_be_reported(containers: Any) -> None:
    assert strip(sharepod(containers=containers))["spec"]["containers"] == containers


def test_a_pod_keeps_the_labels_and_annotations_that_are_read() -> None:
    ours = {"kubeshare.nthu/gpuids": "a"}
    large = ObjectMeta(name="a", annotations=ours | {"note": "x" * LARGE}, labels={"a": "b"})

    kept = strip_pod(Pod(metadata=large)).metadata

    assert (kept.name, kept.annotations, kept.labels) == ("a", ours, {})
    small = Pod(metadata=ObjectMeta(name="a", annotations=ours, labels={"a": "b"}))
    assert strip_pod(small) is small


OWNER = {"apiVersion": "v1", "kind": "Job", "name": "train", "uid": "u", "controller": True}


def owned(**more: Any) -> Raw:
    """A SharePod with as many owners and finalizers as fit into an object."""
    raw = sharepod()
    others = [OWNER | {"name": f"n{n}", "controller": False} for n in range(4000)]
    raw["metadata"] |= {
        "ownerReferences": [*others, OWNER],
        "finalizers": [*(f"example.org/n{n}" for n in range(3000)), FINALIZER],
        "generateName": MUCH,
        **more,
    }
    return raw


def test_of_owners_and_finalizers_those_that_are_read_are_kept() -> None:
    raw = owned()

    kept = strip(raw)

    assert kept["metadata"]["ownerReferences"] == [OWNER]
    assert len(msgspec.msgpack.encode(kept)) < 6_000
    assert dialect.demand_of(kept) == dialect.demand_of(raw)
    remove = finalizer.remove(sharepods.view(kept))
    assert remove == finalizer.remove(sharepods.view(raw))
    # What others have put there is not lost.
    without = owned(finalizers=["example.org/a", "example.org/b"])
    (add,) = finalizer.add(sharepods.view(strip(without)))
    assert (add["path"], add["value"]) == ("/metadata/finalizers/-", FINALIZER)


def test_an_owner_that_cannot_be_one_is_not_kept() -> None:
    kept = strip(owned(ownerReferences=[OWNER | {"name": MUCH}]))

    assert kept["metadata"]["ownerReferences"] == []


def test_a_pod_keeps_its_controller_and_the_resources_that_are_read() -> None:
    owners = tuple(
        OwnerReference(api_version="v1", kind="Job", name=f"n{n}", uid="u", controller=n == 7)
        for n in range(4000)
    )
    read: dict[str, str | int] = {
        "cpu": "1",
        "memory": "1Gi",
        "kubeshare.nthu/vgpu": "1",
        "nvidia.com/gpu": "1",
    }
    strange: dict[str, str | int] = {f"strange-{n}.example.org/gpu": "1" for n in range(4000)}
    needs = ResourceNeeds(limits=strange | read)
    containers = (Container("main", needs), *(Container(f"n{n}") for n in range(3000)))
    names = tuple(f"example.org/n{n}" for n in range(3000))
    metadata = ObjectMeta(name="a", owner_references=owners, finalizers=names)
    spec = PodSpec(containers=containers, overhead=strange)

    kept = strip_pod(Pod(metadata=metadata, spec=spec))

    assert len(msgspec.msgpack.encode(kept)) < 4_000
    assert kept.metadata.controller == metadata.controller
    assert kept.metadata.finalizers == names[:8]
    (container,) = kept.spec.containers
    assert container.resources.limits.items() >= read.items()


def test_many_annotations_of_a_family_do_not_all_stay() -> None:
    forged = {f"tencent.com/{n}": "x" * 1000 for n in range(200)}
    ours = {"kubeshare.nthu/gpuids": "a"}

    kept = strip_pod(Pod(metadata=ObjectMeta(name="a", annotations=forged | ours))).metadata

    assert kept.annotations.items() > ours.items()
    assert sum(map(len, kept.annotations.values())) <= 2 * LARGE


def test_the_caches_hold_little_of_the_largest_objects_and_read_few_at_once() -> None:
    server = FakeApiServer()
    for number in range(10):
        server.seed(SHAREPODS, sharepod(f"listed-{number}"))

    async def main() -> None:
        client = server.client()
        program = Program("test", client)
        watched = start_informers(
            program, client, "test", EventRecorder(client, "test", "test"), lambda: None
        )
        reflectors = (watched.sharepods, watched.pods)
        tasks = [asyncio.create_task(reflector.run()) for reflector in reflectors]
        for reflector in reflectors:
            await reflector.wait_for_sync()
        server.seed(SHAREPODS, sharepod("watched"))
        annotations = {"note": MUCH[: 200 << 10]}
        metadata = {"namespace": "default", "annotations": annotations}
        server.seed(PODS, manifests.pod("a", metadata=metadata))
        await asyncio.sleep(1)
        store = watched.sharepods.store
        found = [store.get(key.name, key.namespace) for key in store.snapshot()]
        assert len(found) == 11
        assert all(raw is not None and is_stripped(raw) for raw in found)
        pod = watched.pods.store.get("a", "default")
        assert pod is not None
        assert pod.metadata.annotations == {}
        for task in tasks:
            task.cancel()

    run_virtual(main())
    limits = [
        int(request.query["limit"])
        for request in server.requests
        if request.verb == "list" and request.resource == "sharepods"
    ]
    # Three megabytes each: at most five of them are read at once.
    assert limits[:4] == [500, 62, 7, 1]
    assert max(limits[4:]) <= 8
