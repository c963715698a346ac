"""Pods of gpushare by a real kube-scheduler that is configured with the extender."""

import json
import os
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from e2e.manifests import deployment
from e2e.space import REST, Space, container
from e2e.stage import Stage, eventually
from e2e.test_owned import (  # noqa: F401 - fixtures
    HERE,
    gpunode,
    label_goes,
    plugin_returns,
    static,
    until_free,
    until_owned,
    without_plugin,
)
from e2e.test_pages import ROOT, script
from kubeshare.api.types.constants import NAMESPACE
from kubeshare.core.units import GI
from kubeshare.install import manifests

pytestmark = pytest.mark.lab

CONFIGURATION = ROOT / "examples" / "gpushare" / "kube-scheduler.yaml"
GPU_MEM = "aliyun.com/gpu-mem"
PREFIX = "ALIYUN_COM_GPU_MEM_"
SCHEDULER = "kube-scheduler"
SECONDS = 180
INSPECT = f"/api/v1/namespaces/{NAMESPACE}/services/kubeshare-extender:extender/proxy"


@pytest.fixture
def units(stage: Stage, without_plugin: None) -> Iterator[int]:  # noqa: F811
    """The node is dedicated to gpushare; the units of each of its two GPUs."""
    del without_plugin
    stage.kubectl("label", "node", HERE, "kubeshare.nthu/gpus=owned", "gpushare=true")
    until_owned(stage)
    until_free(stage)
    [size] = {gpu["memoryBytes"] // GI for gpu in gpunode(stage)["spec"]["devices"]}
    yield size
    stage.kubectl("label", "node", HERE, "gpushare-")


@pytest.fixture
def extender(stage: Stage, units: int) -> Iterator[None]:
    """Both replicas of the extender run, and kube-scheduler calls them."""
    del units
    environment = os.environ | {
        "KUBECONFIG": str(stage.lab.kubeconfig),
        "PATH": ":".join(
            [str(ROOT / ".venv" / "bin"), str(stage.lab.api.programs), os.environ["PATH"]]
        ),
    }
    command = ["bash", "-c", script("extender")]
    subprocess.run(command, cwd=ROOT, env=environment, check=True, timeout=SECONDS)
    stage.configure(gpushare={"door": "extender"})
    schedule_with(stage, CONFIGURATION.read_text())
    yield
    stage.lab.stop_component(f"{stage.lab.control_plane.name}/{SCHEDULER}")
    stage.lab.up()
    stage.configure()
    ours = manifests.load(manifests.Options(extender=True))
    installed = [each for each in ours if each["metadata"]["name"] == "kubeshare-extender"]
    stage.kubectl("delete", "-f", "-", "--ignore-not-found", stdin=yaml.safe_dump_all(installed))


def schedule_with(stage: Stage, text: str) -> None:
    """Restart kube-scheduler with the shipped configuration."""
    node = stage.find("/api/v1/nodes", HERE)
    assert node is not None
    addresses = {each["type"]: each["address"] for each in node["status"]["addresses"]}
    written = yaml.safe_load(text.replace("NODE_ADDRESS", addresses["InternalIP"]))
    folder = stage.lab.layout.folder
    kubeconfig = folder / f"{SCHEDULER}.kubeconfig"
    written["clientConnection"]["kubeconfig"] = str(kubeconfig)
    written["leaderElection"] = {"leaderElect": False}
    path = folder / "kube-scheduler-with-the-extender.yaml"
    path.write_text(yaml.safe_dump(written))
    stage.lab.stop_component(f"{stage.lab.control_plane.name}/{SCHEDULER}")
    program = str(stage.lab.api.programs / SCHEDULER)
    access = [f"--{what}-kubeconfig={kubeconfig}" for what in ("authentication", "authorization")]
    arguments = [program, f"--config={path}", *access, "--bind-address=127.0.0.1"]
    stage.lab.control_plane.start(SCHEDULER, arguments)


def template(name: str, units: int) -> dict[str, Any]:
    """Pods that ask for units of GPU memory, as in Alibaba's samples."""
    asking = container(REST, resources={"limits": {GPU_MEM: str(units)}})
    spec = {"terminationGracePeriodSeconds": 1, "containers": [asking]}
    return {"metadata": {"labels": {"app": name}}, "spec": spec}


def published(space: Space, name: str) -> dict[str, str]:
    """What gpushare writes into the pod of this app, without its prefix."""
    [pod] = space.pods(app=name)
    annotations = pod["metadata"].get("annotations", {})
    return {
        key.removeprefix(PREFIX): value
        for key, value in annotations.items()
        if key.startswith(PREFIX)
    }


def inspected(stage: Stage) -> dict[int, tuple[int, int]]:
    """Index of each GPU of the node -> its units in use and in all, as the extender sees it."""
    answer = json.loads(
        stage.kubectl("get", "--raw", f"{INSPECT}/gpushare-scheduler/inspect/{HERE}")
    )
    [node] = answer["nodes"]
    return {each["id"]: (each["usedGPU"], each["totalGPU"]) for each in node["devs"]}


@pytest.mark.usefixtures("extender")
def test_kube_scheduler_and_the_extender_place_the_published_samples(
    stage: Stage, space: Space, units: int
) -> None:
    amounts = {"binpack-1": 2, "binpack-2": 2, "binpack-3": 2, "binpack-4": units - 4}
    for name, amount in amounts.items():
        space.create(deployment(name, template(name, amount)))
        space.until_running(1, app=name)
    found = {name: published(space, name) for name in amounts}
    assert [each["IDX"] for each in found.values()] == ["0", "0", "0", "1"]
    assert {name: int(each["POD"]) for name, each in found.items()} == amounts
    assert inspected(stage) == {0: (6, units), 1: (units - 4, units)}

    # There is enough memory on the node, and not on one GPU: kube-scheduler alone would bind it.
    space.create(deployment("large", template("large", units - 5)))
    eventually(
        lambda: "Insufficient GPU Memory in one device" in message(space, "large"),
        "kube-scheduler to say why the pod waits",
        explain=lambda: message(space, "large"),
    )
    replica = stage.system_pods("extender")[0]["metadata"]["name"]
    stage.kubectl("delete", "pod", "-n", NAMESPACE, replica, "--force", "--grace-period=0")
    space.create(deployment("small", template("small", 1), replicas=units - 2))
    space.until_running(units - 2, app="small")
    assert inspected(stage) == {0: (units, units), 1: (units, units)}
    space.delete("deployment", "binpack-4")
    space.until_running(1, app="large")
    assert published(space, "large")["IDX"] == "1"

    for name in (*amounts, "large", "small"):
        stage.kubectl("delete", "deployment", "-n", space.name, name, "--ignore-not-found")
    until_free(stage)


def message(space: Space, app: str) -> str:
    """What kube-scheduler says about the pod of an app."""
    conditions = [
        each
        for pod in space.pods(app=app)
        for each in pod["status"].get("conditions", [])
        if each["type"] == "PodScheduled"
    ]
    return " ".join(str(each.get("message", "")) for each in conditions)
