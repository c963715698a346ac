"""What else a PodSpec says holds for pods that share: volumes, tolerations, all of it."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from e2e.manifests import claim, storage_class, template, volume
from e2e.space import REST, Space, container
from e2e.stage import Raw, Stage, eventually

pytestmark = pytest.mark.lab

ELSEWHERE = "node-2"
"""Not the node that is chosen where nothing else is said."""
MOUNT = {"name": "data", "mountPath": "/data"}
NOTE = "ls /dev | grep -c nvidiactl > /data/{}; "
"""Writes 1 where the container has a GPU, and 0 where it has none."""


def noting(name: str, then: str = f"exec {' '.join(REST)}", **more: Any) -> Raw:
    """A container that notes on the volume whether it has a GPU."""
    command = ("sh", "-c", NOTE.format(name) + then)
    return container(command, name=name, volumeMounts=[MOUNT], **more)


def noted(space: Space, pod: str, container: str, count: int) -> dict[str, bool]:
    """Which containers have noted that they have a GPU, once so many have noted something."""
    read = "cd /data; for each in *; do echo $each $(cat $each); done"
    look = ("exec", "-n", space.name, pod, "-c", container, "--", "sh", "-c", read)

    def notes() -> dict[str, bool] | None:
        lines = [line.split() for line in space.stage.kubectl(*look).splitlines()]
        done = [words for words in lines if len(words) > 1]
        return {name: found == "1" for name, found in done} if len(done) == count else None

    return eventually(notes, f"{count} containers of {pod} to have looked for a GPU")


@pytest.fixture(params=["Immediate", "WaitForFirstConsumer"])
def storage(request: pytest.FixtureRequest, stage: Stage, space: Space) -> Iterator[str]:
    """A StorageClass with one volume, on the disk of the other node."""
    name = f"{space.name}-{request.param.lower()}"
    for manifest in (storage_class(name, request.param), volume(name, name, ELSEWHERE)):
        stage.kubectl("create", "-f", "-", stdin=json.dumps(manifest))
    yield name
    stage.kubectl("delete", f"pv/{name}", f"storageclass/{name}", "--wait=false")


def test_its_volume_decides_on_which_node_the_pod_of_a_stateful_set_shares(
    stage: Stage, space: Space, storage: str
) -> None:
    both = [noting("one"), noting("two")]
    space.create(
        {
            "apiVersion": "apps/v1",
            "kind": "StatefulSet",
            "metadata": {"name": "shard"},
            "spec": {
                "serviceName": "shard",
                "selector": {"matchLabels": {"app": "shard"}},
                "template": template("shard", "0.5", containers=both),
                "volumeClaimTemplates": [claim("data", storage)],
            },
        }
    )
    space.until_running(1, app="shard")

    (gpuid,) = space.parts(app="shard")
    vgpu = stage.vgpu(gpuid)
    assert vgpu is not None
    assert vgpu["spec"]["nodeName"] == ELSEWHERE
    assert noted(space, "shard-0", "one", 2) == {"one": True, "two": True}
    assert not [one for one in space.events("shard-0") if one["reason"] == "NodeFull"]


@pytest.fixture
def dedicated(stage: Stage) -> Iterator[None]:
    """Nobody comes to the other node who does not tolerate it."""
    stage.kubectl("taint", "node", ELSEWHERE, "dedicated=gpus:NoSchedule")
    yield
    stage.kubectl("taint", "node", ELSEWHERE, "dedicated:NoSchedule-")


@pytest.mark.usefixtures("dedicated")
def test_all_that_a_podspec_says_holds_for_the_pod_of_a_sharepod(space: Space) -> None:
    space.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "trainer"}})
    space.share(
        "all",
        {"request": "0.5", "containers": ["one", "two"]},
        serviceAccountName="trainer",
        priorityClassName="system-cluster-critical",
        nodeSelector={"kubernetes.io/hostname": ELSEWHERE},
        tolerations=[{"key": "dedicated", "operator": "Exists"}],
        hostname="given",
        securityContext={"fsGroup": 1234},
        volumes=[{"name": "data", "emptyDir": {}}],
        initContainers=[noting("before", "true"), noting("beside", restartPolicy="Always")],
        containers=[noting("one"), noting("two"), noting("without")],
    )

    place = space.ready("all")

    assert place.node == ELSEWHERE
    having = {"one": True, "two": True, "before": False, "beside": False, "without": False}
    assert noted(space, "all", "without", len(having)) == having
    pod = space.find_pod("all")
    assert pod is not None
    spec = pod["spec"]
    assert (spec["serviceAccountName"], spec["priority"]) == ("trainer", 2_000_000_000)
    assert (spec["hostname"], spec["securityContext"]["fsGroup"]) == ("given", 1234)
    assert spec["terminationGracePeriodSeconds"] == 1
