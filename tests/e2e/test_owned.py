"""A node whose GPUs KubeShare owns, after a reboot, and by the commands of its page.

``test_kinds_of_nodes.py`` has it beside nodes of other kinds.
"""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.space import Space
from e2e.stage import Place, Raw, Stage, eventually
from e2e.test_pages import ROOT, script
from kubeshare.lab.node.gpus import DEVICE_PLUGIN

pytestmark = pytest.mark.lab

HERE = "node-1"
ON_IT = {"kubernetes.io/hostname": HERE}
SECONDS = 180.0
"""For a takeover, which waits a minute for the device plugin not to come back."""


@pytest.fixture
def plugin_returns(stage: Stage) -> Iterator[None]:
    """Whatever becomes of the device plugin of the node, it runs afterwards."""
    yield
    eventually(lambda: not static(stage), "the static vGPUs to be gone", seconds=SECONDS)
    stage.lab.up()


@pytest.fixture
def label_goes(stage: Stage, plugin_returns: None, space: Space) -> Iterator[None]:
    """The node is not asked for afterwards; that is before the namespace is cleared.

    The namespace waits until no vGPU is kept, and the plugin until its GPUs are free.
    """
    del plugin_returns, space
    yield
    stage.kubectl("label", "node", HERE, "kubeshare.nthu/gpus-", "kubeshare.nthu/family-")
    stage.kubectl("uncordon", HERE)


@pytest.fixture
def without_plugin(stage: Stage, label_goes: None) -> None:
    """The device plugin of the node is stopped."""
    del label_goes
    stop_plugin(stage)


def stop_plugin(stage: Stage) -> None:
    stage.lab.stop_component(f"{HERE}/{DEVICE_PLUGIN}")


def static(stage: Stage) -> dict[str, list[str]]:
    """UUID of each static vGPU -> the names of its holders."""
    return {
        vgpu["spec"]["uuid"]: [each["name"] for each in vgpu["status"].get("holders", [])]
        for vgpu in stage.vgpus()
        if vgpu["spec"]["pool"] == "static"
    }


def gpunode(stage: Stage) -> Raw:
    found = stage.find("/apis/kubeshare.nthu/v1/gpunodes", HERE)
    assert found is not None
    return found


def owned(stage: Stage) -> Raw:
    """The condition of the node; empty while it has none."""
    conditions = gpunode(stage).get("status", {}).get("conditions", [])
    return next(iter(conditions), {})


def until_owned(stage: Stage, reason: str = "Owned") -> Raw:
    return eventually(
        lambda: found if (found := owned(stage)).get("reason") == reason else None,
        f"{HERE} to be {reason}",
        seconds=SECONDS,
        explain=lambda: str(owned(stage)),
    )


def uuids(stage: Stage) -> set[str]:
    """The UUIDs of the node's GPUs."""
    return {gpu["uuid"] for gpu in gpunode(stage)["spec"]["devices"]}


def until_free(stage: Stage) -> None:
    """Wait until each GPU of the node has a static vGPU, and none has a holder."""
    eventually(
        lambda: static(stage) == {uuid: [] for uuid in uuids(stage)},
        "a free static vGPU for each GPU",
        explain=lambda: str(stage.vgpus()),
    )


def until_granted(space: Space, name: str, place: Place) -> None:
    """Wait until the token daemon has a grant of a pod."""
    eventually(
        lambda: name in space.stage.top(place),
        f"{name} to have a grant",
        seconds=SECONDS,
        explain=lambda: space.describe(name),
    )


@pytest.mark.usefixtures("without_plugin")
def test_after_a_reboot_shares_run_again_on_their_gpus_once_nobody_else_offers_them(
    stage: Stage, space: Space
) -> None:
    stage.kubectl("label", "node", HERE, "kubeshare.nthu/gpus=owned")
    until_owned(stage)
    until_free(stage)
    for name in "ab":
        space.share(name, {"request": "0.4", "memory": "1Gi"}, nodeSelector=ON_IT)
    places = {name: space.ready(name) for name in "ab"}
    assert sorted(map(len, static(stage).values())) == [0, 2]
    before, pods = static(stage), {name: space.lives(name)[0] for name in "ab"}
    stage.reboot(HERE)  # a node of the lab boots with its device plugin
    eventually(
        lambda: any("KubeShare owns GPU" in event["message"] for event in space.events("a")),
        "the node agent to refuse the share",
        explain=lambda: str(space.events("a")),
    )
    assert not stage.top(places["a"])
    until_owned(stage, "GPUsOffered")
    stop_plugin(stage)
    for name, place in places.items():
        until_granted(space, name, place)
        stage.works_for(place, name)
    assert static(stage) == before
    assert {name: space.lives(name)[0] for name in "ab"} == pods


@pytest.mark.usefixtures("without_plugin")
def test_the_commands_of_the_page_work(stage: Stage, tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_bytes(stage.lab.kubeconfig.read_bytes())
    path = f"{stage.lab.api.programs}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", script("nodes-and-gpus")],
        cwd=ROOT,
        env=os.environ | {"KUBECONFIG": str(kubeconfig), "PATH": path},
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
