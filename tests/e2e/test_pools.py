"""A pool of vGPUs beside native pods: who gets a GPU, when, and who keeps it."""

from collections.abc import Iterator
from typing import Any

import pytest

from e2e.space import REST, Space
from e2e.stage import Raw, Stage, eventually
from kubeshare.api.types.constants import NAMESPACE, WHOLE_GPU_RESOURCE

pytestmark = pytest.mark.lab

GPUS = 4


def idle(stage: Stage) -> dict[str, Raw]:
    """The idle vGPUs by their ids."""
    return {
        vgpu["metadata"]["name"]: vgpu
        for vgpu in stage.vgpus()
        if vgpu.get("status", {}).get("phase") == "Idle"
    }


def placeholder_uids(stage: Stage) -> dict[str, str]:
    pods = stage.items(f"/api/v1/namespaces/{NAMESPACE}/pods")
    kept = stage.placeholders()
    return {
        pod["metadata"]["name"]: pod["metadata"]["uid"]
        for pod in pods
        if pod["metadata"]["name"] in kept
    }


def placeholders_run(stage: Stage) -> bool:
    """Whether the containers of all placeholders run."""
    kept = stage.placeholders()
    pods = stage.items(f"/api/v1/namespaces/{NAMESPACE}/pods")
    phases = [each["status"]["phase"] for each in pods if each["metadata"]["name"] in kept]
    return len(phases) == len(kept) and {*phases} == {"Running"}


def native(space: Space, name: str, **spec: Any) -> None:
    space.pod(name, {WHOLE_GPU_RESOURCE: "1"}, REST, **spec)


def until_bound(space: Space, name: str) -> None:
    def node() -> str:
        return str((space.find_pod(name) or {}).get("spec", {}).get("nodeName", ""))

    eventually(node, f"native pod {name} to have a GPU", explain=lambda: space.describe(name))


@pytest.fixture
def warm(stage: Stage, space: Space) -> Iterator[dict[str, Raw]]:
    """Every GPU is an idle vGPU; on demand again before the namespace is cleared."""
    assert not space.sharepods()
    stage.configure(pool={"policy": "reservation", "warm": GPUS // 2})
    yield eventually(
        lambda: found if len(found := idle(stage)) == GPUS else None,
        "all GPUs to be warm vGPUs",
        explain=lambda: stage.kubectl("get", "vgpu,pods", "-A"),
    )
    stage.configure()
    eventually(lambda: not idle(stage), "no vGPU to be kept")


def test_a_sharepod_takes_a_warm_vgpu_and_no_new_placeholder_is_made(
    stage: Stage, space: Space, warm: dict[str, Raw]
) -> None:
    before = placeholder_uids(stage)
    space.share("a", {"request": "0.5"}, REST)
    place = space.ready("a")
    assert warm[place.gpuid]["spec"]["uuid"] == place.uuid
    assert placeholder_uids(stage) == before
    space.delete("sharepod", "a")
    eventually(lambda: len(idle(stage)) == GPUS, "its vGPU to be idle again")


@pytest.mark.usefixtures("warm")
def test_a_native_pod_gets_the_gpu_of_an_idle_vgpu(stage: Stage, space: Space) -> None:
    for name in ("first", "second"):
        native(space, name)
        until_bound(space, name)
    assert len(idle(stage)) == GPUS - 2
    for name in ("first", "second"):
        space.delete("pod", name)
    eventually(lambda: len(idle(stage)) == GPUS, "both GPUs to be warm again")


def test_no_native_pod_preempts_the_placeholder_of_a_gpu_in_use(stage: Stage, space: Space) -> None:
    names = [f"whole-{number}" for number in range(GPUS)]
    for name in names:
        space.share(name, {"request": "1"}, REST)
    for name in names:
        space.ready(name)
    kept, lives = placeholder_uids(stage), [space.lives(name) for name in names]
    native(space, "low")
    native(space, "high", priorityClassName="system-cluster-critical")
    for name in ("low", "high"):
        assert "Insufficient nvidia.com/gpu" in space.event(name, "FailedScheduling")
    with pytest.raises(Exception, match="it is deleted when they are gone"):
        stage.kubectl("delete", "pod", "-n", NAMESPACE, next(iter(kept)))
    assert placeholder_uids(stage) == kept
    assert [space.lives(name) for name in names] == lives
    space.delete("sharepod", names[0])
    eventually(lambda: space.phase("high") == "Running", "the freed GPU to be a native pod's")


def test_a_kubelet_that_is_started_again_leaves_the_vgpu_its_gpu(
    stage: Stage, space: Space
) -> None:
    space.share("a", {"request": "0.5"}, REST)
    place = space.ready("a")
    # A kubelet that starts admits a pod anew whose container does not run yet, and has no GPU then.
    eventually(lambda: placeholders_run(stage), "its placeholder to run")
    stage.lab.restart_component(f"{place.node}/kubelet")
    space.share("b", {"request": "0.5", "id": place.gpuid}, REST, nodeName=place.node)
    assert space.ready("b") == place
