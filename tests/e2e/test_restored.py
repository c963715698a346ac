"""etcd is put back to an older state: pods run that are not in the record.

KubeShare's programs run on. Those of Kubernetes, which do not notice it, are restarted, as its
documentation recommends: the kubelets last, because a restarted one ends the pods that are lost.
"""

import shutil
import signal
from pathlib import Path

import pytest

from e2e.space import Space
from e2e.stage import Place, Raw, Stage, eventually
from kubeshare.api.types.constants import NAMESPACE
from kubeshare.lab.boot import CONTROL_PLANE_PARTS
from kubeshare.lab.cluster import Lab
from kubeshare.lab.layout import CONTROL_PLANE

pytestmark = pytest.mark.lab

ETCD = f"{CONTROL_PLANE}/etcd"


class Etcd:
    """The etcd of a lab, whose data can be kept and put back.

    Args:
        lab: booted.
    """

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self._data = lab.settings.folder / "etcd"
        self._kept = lab.settings.folder / "etcd-kept"

    def keep(self) -> None:
        """Copy its data while it stands still, as a snapshot of its disk."""
        pid = self._lab.component(ETCD).pid
        self._lab.control_plane.signal("etcd", signal.SIGSTOP)
        try:
            status = Path(f"/proc/{pid}/status")
            eventually(lambda: "T (stopped)" in status.read_text(), "etcd to stand still")
            shutil.copytree(self._data, self._kept)
        finally:
            self._lab.control_plane.signal("etcd", signal.SIGCONT)

    def put_back(self) -> None:
        """Replace its data by the copy; all of Kubernetes but the kubelets is started anew."""
        self._kill(*(f"{CONTROL_PLANE}/{part}" for part in reversed(CONTROL_PLANE_PARTS)))
        self._kill(*(f"{node.name}/kube-proxy" for node in self._lab.nodes))
        shutil.rmtree(self._data)
        self._kept.rename(self._data)
        self._lab.restart_component(ETCD)

    def restart_kubelets(self) -> None:
        """Kill and start the kubelets."""
        self._kill(*(f"{node.name}/kubelet" for node in self._lab.nodes))
        self._lab.restart_component(f"{self._lab.nodes[0].name}/kubelet")

    def _kill(self, *components: str) -> None:
        for component in components:
            self._lab.stop_component(component, gently=False)


def pass_version(stage: Stage, version: int) -> None:
    """Write until the API server has passed a resourceVersion; no version shows a restore then."""
    path = "/api/v1/namespaces/default/configmaps"
    body: Raw = {"metadata": {"generateName": "written-"}}
    while int(stage.lab.api.send("POST", path, body)["metadata"]["resourceVersion"]) <= version:
        pass
    stage.kubectl("delete", "configmaps", "-n", "default", "--all", "--wait=false")


def one_of(request: str) -> Raw:
    """A share that can only be on the GPU of the others."""
    return {"request": request, "memory": "1Gi", "affinity": "one"}


def unrecorded(stage: Stage, place: Place) -> list[str]:
    """The pods that run on a GPU without a holder, as its node has reported."""
    devices = stage.gpunode(place.node)["spec"]["devices"]
    [found] = [one.get("unrecordedPods", []) for one in devices if one["uuid"] == place.uuid]
    return list(found)


def degraded(stage: Stage, place: Place) -> Raw:
    """The condition Degraded of a vGPU; empty if it has none."""
    vgpu = stage.vgpu(place.gpuid) or {"status": {}}
    conditions: list[Raw] = vgpu["status"].get("conditions", [])
    return next((one for one in conditions if one["type"] == "Degraded"), {})


def placeholder_runs(stage: Stage) -> bool:
    """The only placeholder's container runs; its GPU is known, and used, before that."""
    [name] = stage.placeholders()
    pod = stage.find(f"/api/v1/namespaces/{NAMESPACE}/pods", name) or {"status": {}}
    return any(one.get("started") for one in pod["status"].get("containerStatuses", []))


def is_passed_over(space: Space) -> bool:
    """The scheduler knows that the GPU is fenced, by what it says of a share that fits nowhere."""
    space.share("probe", one_of("0.9"))
    said = space.waits("probe", "NoRoom")
    space.delete("sharepod", "probe")
    eventually(lambda: not space.sharepod("probe"), "the probe to go")
    return "fenced" in said


def test_a_gpu_of_pods_that_the_record_has_lost_takes_no_other(stage: Stage, space: Space) -> None:
    etcd = Etcd(stage.lab)
    space.share("kept", one_of("0.2"))
    place = space.ready("kept")
    kept = space.lives("kept")
    eventually(lambda: placeholder_runs(stage), "the placeholder to run")
    etcd.keep()
    space.share("lost", one_of("0.6"))
    assert space.ready("lost") == place
    last_seen = int(stage.lab.api.get("/api/v1/nodes")["metadata"]["resourceVersion"])
    etcd.put_back()
    pass_version(stage, last_seen)
    assert [*stage.holders(place.gpuid)] == ["kept"]

    eventually(
        lambda: unrecorded(stage, place) == [f"{space.name}/lost"],
        "the node to name the pod",
        explain=lambda: str(stage.gpunode(place.node)),
    )
    eventually(
        lambda: degraded(stage, place).get("reason") == "UnrecordedPods", "its vGPU to be fenced"
    )
    eventually(lambda: is_passed_over(space), "the scheduler to know of it")
    space.share("next", one_of("0.5"))
    space.waits("next", "NoRoom")
    stage.works_for(place, "kept", "lost")
    assert [*stage.holders(place.gpuid)] == ["kept"]

    etcd.restart_kubelets()
    assert space.ready("next") == place
    assert unrecorded(stage, place) == []
    assert not stage.processes("lost")
    assert space.lives("kept") == kept
    stage.works_for(place, "kept", "next")
