"""Each example as its readers run it: applied, watched to its end, deleted."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from e2e import pages
from e2e.space import REST, Space
from e2e.stage import SCHEDULER, Stage, eventually
from kubeshare.api.types.constants import NAMESPACE

pytestmark = pytest.mark.lab

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
COMPONENT = "app.kubernetes.io/component"
MOST_LINES_OF_A_SCHEDULER = 40


def apply(space: Space, example: str) -> None:
    space.stage.kubectl("apply", "-n", space.name, "-f", str(EXAMPLES / example))


def delete(space: Space, example: str) -> None:
    space.stage.kubectl("delete", "-n", space.name, "-f", str(EXAMPLES / example), "--wait=false")


@contextmanager
def program(stage: Stage, example: str) -> Iterator[None]:
    """One of the examples that is a program, as it runs beside somebody's terminal."""
    environment = os.environ | {"KUBECONFIG": str(stage.lab.kubeconfig)}
    started = subprocess.Popen([sys.executable, EXAMPLES / example], env=environment)
    try:
        yield
        assert started.poll() is None, f"{example} has ended by itself"
    finally:
        started.kill()
        started.wait()


@pytest.fixture
def without_scheduler(stage: Stage) -> Iterator[None]:
    """KubeShare's own scheduler is switched off, as the example says."""
    deployment = ("deployment/kubeshare-scheduler", "-n", NAMESPACE)
    replicas = stage.kubectl("get", *deployment, "-o", "jsonpath={.spec.replicas}")
    stage.kubectl("scale", *deployment, "--replicas=0")
    # A pod that is being deleted schedules on until its process has ended.
    left = f"/api/v1/namespaces/{NAMESPACE}/pods?labelSelector={COMPONENT}={SCHEDULER}"
    eventually(lambda: not stage.items(left), "the scheduler to go")
    yield
    stage.kubectl("scale", *deployment, f"--replicas={replicas}")
    stage.until_ready(SCHEDULER)


def test_the_sharepod_of_the_readme(stage: Stage, space: Space) -> None:
    apply(space, "sharepod.yaml")

    place = space.ready("trainer")

    holder = stage.holders(place.gpuid)["trainer"]
    assert (holder["requestMicros"], holder["limitMicros"]) == (300_000, 600_000)
    assert holder["memoryBytes"] == 4 << 30
    stage.works_for(place, "trainer")
    delete(space, "sharepod.yaml")


def test_a_quota_limits_the_gpus_of_a_model(stage: Stage, space: Space) -> None:
    apply(space, "gpu-quota.yaml")
    web = {"kubeshare.nthu/group": "web"}
    space.share("first", {"request": "0.7", "memory": "1Gi"}, REST, annotations=web)
    node = space.ready("first").node
    try:
        printed = pages.run(stage, pages.script("quotas"), node=node)
    finally:
        labels = ("gaia.tencent.com/gpu-pool-", "gaia.tencent.com/gpu-model-")
        stage.kubectl("label", "node", node, *labels)
    [row] = [line for line in printed.splitlines() if line.startswith(f"{node} ")]
    assert row.split()[-2:] == ["research", "M40"]
    assert f"{space.name} " in printed

    space.share("second", {"request": "0.7", "memory": "1Gi"}, REST, annotations=web)
    message = space.waits("second", "QuotaExceeded")

    words = "GPUQuota gpus is 1 Tesla V100-SXM2-16GB GPUs for group web: 0.7 held, 0.7 asked"
    assert words in message
    used = "web:Tesla V100-SXM2-16GB 0.7"
    eventually(lambda: used in stage.kubectl("get", "gpuquota", "-n", space.name), used)
    stage.kubectl("delete", "shp", "first", "-n", space.name, "--wait=false")
    space.ready("second")
    delete(space, "gpu-quota.yaml")


def test_the_containers_of_a_pod_have_different_shares(stage: Stage, space: Space) -> None:
    apply(space, "shares.yaml")

    place = space.ready("pair")

    vgpu = stage.vgpu(place.gpuid)
    assert vgpu is not None
    held = {
        holder["share"]: (holder["requestMicros"], holder["limitMicros"], holder["memoryBytes"])
        for holder in vgpu["status"]["holders"]
    }
    assert held == {
        "learn": (500_000, 1_000_000, 4 << 30),
        "serve": (300_000, 400_000, 2 << 30),
    }
    assert space.status("pair")["share"] == {"request": "0.8", "limit": "1.4", "memory": "6Gi"}
    stage.works_for(place, "pair")
    delete(space, "shares.yaml")


def test_two_that_name_a_gpuid_share_it_to_their_ends(stage: Stage, space: Space) -> None:
    apply(space, "gpuid.yaml")

    for name in ("reader", "writer"):
        space.until_phase(name, "Succeeded", "Failed")

    for name in ("reader", "writer"):
        assert space.phase(name) == "Succeeded"
        (gpu,) = space.status(name)["gpus"]
        assert gpu["id"] == "abcde"
    eventually(lambda: stage.vgpu("abcde") is None, "vGPU abcde to be given back")
    delete(space, "gpuid.yaml")


def test_a_scheduler_of_forty_lines_takes_the_place_of_ours(
    stage: Stage, space: Space, without_scheduler: None
) -> None:
    assert len((EXAMPLES / "custom_scheduler.py").read_text().splitlines()) <= (
        MOST_LINES_OF_A_SCHEDULER
    )
    names = [f"pod-{number}" for number in range(5)]
    with program(stage, "custom_scheduler.py"):
        for name in names:
            space.share(name, {"request": "0.2"}, REST)
        places = {name: space.ready(name) for name in names}

    gpuids = [place.gpuid for place in places.values()]
    assert set(gpuids) == {f"node-{node}-gpu-{gpu}" for node in (1, 2) for gpu in (0, 1)}
    assert stage.system_pods(SCHEDULER) == []
    shared = next(gpuid for gpuid in gpuids if gpuids.count(gpuid) == 2)
    assert set(stage.holders(shared)) == {
        name for name, place in places.items() if place.gpuid == shared
    }


def test_a_controller_keeps_as_many_sharepods_as_its_set_says(stage: Stage, space: Space) -> None:
    stage.kubectl("apply", "-f", str(EXAMPLES / "replicas" / "definition.yaml"))
    stage.kubectl("wait", "--for=condition=Established", "crd/sharepodsets.examples.kubeshare.nthu")

    def ready() -> dict[str, bool]:
        """Each SharePod, and whether it is ready, at one moment."""
        return {
            one["metadata"]["name"]: any(
                condition["type"] == "Ready" and condition["status"] == "True"
                for condition in one.get("status", {}).get("conditions", [])
            )
            for one in space.sharepods()
        }

    def until(count: int) -> set[str]:
        def look() -> set[str]:
            now = ready()
            return set(now) if len(now) == count and all(now.values()) else set()

        return eventually(
            look,
            f"{count} SharePods to be ready",
            explain=lambda: stage.kubectl("get", "shp,sharepodset", "-n", space.name),
        )

    with program(stage, "replicas/controller.py"):
        apply(space, "replicas/set.yaml")
        first = until(3)
        space.delete("sharepod", min(first))
        eventually(lambda: min(first) not in ready(), "one to go")
        second = until(3)
        assert len(first & second) == 2
        stage.kubectl("scale", "sharepodset/servers", "-n", space.name, "--replicas=1")
        assert until(1) < second
        get = ("get", "sharepodset/servers", "-n", space.name, "-o")
        eventually(
            lambda: stage.kubectl(*get, "jsonpath={.status.readyReplicas}") == "1",
            "the set's status to count one",
        )
    delete(space, "replicas/set.yaml")
    eventually(lambda: not space.sharepods(), "its SharePods to go with the set")
    stage.kubectl("delete", "-f", str(EXAMPLES / "replicas" / "definition.yaml"))
