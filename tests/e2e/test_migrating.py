"""A node of gpushare moves to KubeShare under its pod, and back, by the commands of the page."""

import asyncio
import json
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from e2e import pages
from e2e.owned.gpushare_pods import GPU_COUNT, GPU_MEM, PREFIX, asking, published
from e2e.owned.node import OwnedNode
from e2e.space import REST, Space, container
from e2e.stage import DEADLINE, Raw, Stage, eventually
from kubeshare.core.units import GI
from kubeshare.lab.errors import LabError
from kubeshare.node.device_plugin.plugin import DevicePlugin
from kubeshare.node.device_plugin.units import GpuUnits

pytestmark = pytest.mark.lab

POLICY = "kubeshare-plain-pods"
BINDINGS = ("mutatingadmissionpolicybinding", "validatingadmissionpolicybinding")
LABEL = "gpushare"
SECONDS = 400.0
"""For the commands of a section, which wait a minute for the former plugin not to come back."""


class FormerPlugin:
    """A device plugin that only counts, as Alibaba's does for the kubelet.

    Args:
        folder: of the kubelet's device plugins, on this machine.
        units: what it offers.
    """

    def __init__(self, folder: Path, units: tuple[GpuUnits, ...]) -> None:
        self._plugin = DevicePlugin(folder, GPU_MEM, "former.sock")
        self._units = units
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End it, once or again."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._task.cancel)
        self._thread.join(timeout=DEADLINE)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._plugin.offer(self._units)
        self._task = self._loop.create_task(self._plugin.run())
        try:
            self._loop.run_until_complete(self._task)
        except asyncio.CancelledError:
            pass
        finally:
            self._loop.close()


def labelled(owned: OwnedNode) -> bool:
    return LABEL in owned.raw()["metadata"]["labels"]


@contextmanager
def before_kubeshare(stage: Stage, space: Space, pod: Raw) -> Iterator[None]:
    """Within, the admission policy does not change new pods."""
    saved = [json.loads(stage.kubectl("get", kind, POLICY, "-o", "json")) for kind in BINDINGS]
    probe = deepcopy(pod)
    probe["metadata"]["name"] = "probe"

    def created(*, gated: bool) -> bool:
        dry = ("--dry-run=server", "-o", "json", "-n", space.name, "-f", "-")
        try:
            answer = json.loads(stage.kubectl("create", *dry, stdin=json.dumps(probe)))
        except LabError as error:
            # One of the two bindings can be out of force before the other.
            if POLICY not in str(error):
                raise
            return False
        return gated == ("schedulingGates" in answer["spec"])

    try:
        for kind in BINDINGS:
            stage.kubectl("delete", kind, POLICY)
        eventually(lambda: created(gated=False), "the policy to be out of force")
        yield
    finally:
        for each in saved:
            metadata = {key: each["metadata"][key] for key in ("name", "labels")}
            again = {key: each[key] for key in ("apiVersion", "kind", "spec")}
            stage.kubectl("apply", "-f", "-", stdin=json.dumps(again | {"metadata": metadata}))
        del probe["spec"]["nodeName"]  # which the policy refuses
        eventually(lambda: created(gated=True), "the policy to be in force")


@pytest.fixture
def node(stage: Stage) -> Iterator[OwnedNode]:
    """The node without its device plugin; it has it again when the namespace is cleared."""
    node = OwnedNode(stage)
    node.stop_plugin()
    yield node
    node.give_back()


@pytest.fixture
def units(node: OwnedNode) -> int:
    """The units of each GPU of the node."""
    [found] = {gpu["memoryBytes"] // GI for gpu in node.devices}
    return int(found)


@pytest.fixture
def former(stage: Stage, node: OwnedNode, units: int) -> Iterator[FormerPlugin]:
    """The node as gpushare manages it."""
    folder = stage.node(node.name).layout.folder / "disk" / "kubelet" / "device-plugins"
    uuids = [gpu["uuid"] for gpu in node.devices]
    stage.kubectl("label", "node", node.name, f"{LABEL}=true")
    plugin = FormerPlugin(folder, tuple(GpuUnits(uuid, units, healthy=True) for uuid in uuids))
    node.until_allocatable({GPU_MEM: str(units * len(uuids))})
    yield plugin
    plugin.stop()
    stage.kubectl("label", "node", node.name, f"{LABEL}-")


@pytest.fixture
def legacy(stage: Stage, node: OwnedNode, former: FormerPlugin, units: int, space: Space) -> None:
    """A pod that gpushare placed on GPU 1 of the node, of which it leaves two units."""
    del former
    written = {"IDX": "1", "POD": str(units - 2), "ASSIGNED": "true", "ASSUME_TIME": "1"}
    limits = {"limits": {GPU_MEM: str(units - 2)}}
    metadata: dict[str, Any] = {
        "name": "legacy",
        "annotations": {f"{PREFIX}{key}": value for key, value in written.items()},
    }
    spec = {
        "nodeName": node.name,
        "terminationGracePeriodSeconds": 1,
        "containers": [container(REST, resources=limits)],
    }
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    with before_kubeshare(stage, space, pod):
        space.create(pod)
    space.until_phase("legacy", "Running")
    found = space.find_pod("legacy")
    assert found is not None
    assert "kubeshare.nthu/vgpu" not in str(found["spec"]["containers"])


def run(node: OwnedNode, folder: Path, former: FormerPlugin, *sections: str) -> str:
    """Runs sections of the page; the former plugin ends when its label goes."""
    extender = {"urlPrefix": "http://127.0.0.1:32766/gpushare-scheduler", "bindVerb": "bind"}
    policy = {"kind": "Policy", "apiVersion": "v1", "extenders": [extender]}
    (folder / "policy.json").write_text(json.dumps(policy))
    with subprocess.Popen(
        ["bash", "-c", pages.script("migrate", *sections)],
        cwd=folder,
        env=pages.environment(node.stage, node=node.name),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as commands:
        eventually(
            lambda: commands.poll() is not None or not labelled(node),
            "the label of the former plugin to go, or the commands to end",
            seconds=SECONDS,
        )
        if not labelled(node):
            former.stop()
        output, errors = commands.communicate(timeout=SECONDS)
    assert commands.returncode == 0, f"{output}\n{errors}\n{node.gpunode()['status']}"
    return output


def lives(space: Space) -> tuple[str, str, int]:
    """The uid of the legacy pod, its phase, and how often it was restarted."""
    pod = space.find_pod("legacy")
    assert pod is not None
    [status] = pod["status"]["containerStatuses"]
    return pod["metadata"]["uid"], pod["status"]["phase"], status["restartCount"]


def create(space: Space, name: str, units: int) -> str:
    """Creates a pod that asks for memory; returns the GPU that it gets."""
    spec = {"terminationGracePeriodSeconds": 1, "containers": [asking(units)]}
    space.create({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})
    space.until_phase(name, "Running")
    return published(space, name)["IDX"]


@pytest.mark.usefixtures("legacy")
def test_a_node_moves_under_its_pod_takes_others_and_goes_back(
    stage: Stage, node: OwnedNode, former: FormerPlugin, space: Space, tmp_path: Path
) -> None:
    before = lives(space)
    output = run(node, tmp_path, former, "Before you begin", "Move from gpushare")
    assert "KubeSchedulerConfiguration" in (tmp_path / "kube-scheduler.yaml").read_text()
    assert f"{space.name}/legacy  1" in output
    assert "next: kubeshare migrate gpushare --apply" in output
    uuids = {gpu["index"]: gpu["uuid"] for gpu in node.devices}
    assert node.static() == {uuids[0]: [], uuids[1]: ["legacy"]}
    node.until_allocatable({GPU_COUNT: "2"})
    # The fullest GPU that fits: beside the legacy pod there is room for two units.
    assert create(space, "small", 2) == "1"
    assert create(space, "large", 3) == "0"
    assert lives(space) == before
    for name in ("small", "large"):
        stage.kubectl("delete", "pod", "-n", space.name, name)

    run(node, tmp_path, former, "Move from gpu-manager", "Go back")
    eventually(lambda: not node.static(), "the static vGPUs to be gone")
    assert lives(space) == before
