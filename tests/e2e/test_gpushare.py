"""Pods of gpushare by their manifests alone, on a node of their own with a real kubelet."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e.manifests import deployment
from e2e.space import REST, Space, container
from e2e.stage import NODE_AGENT, Stage, eventually
from e2e.test_memory import OUT_OF_MEMORY, SUCCESS, TRY_TWICE
from e2e.test_owned import (  # noqa: F401 - fixtures
    HERE,
    gpunode,
    label_goes,
    plugin_returns,
    until_free,
    until_owned,
    without_plugin,
)
from e2e.test_pages import ROOT, script
from kubeshare.core.units import GI

pytestmark = pytest.mark.lab

GPU_MEM, GPU_COUNT = "aliyun.com/gpu-mem", "aliyun.com/gpu-count"
PREFIX = "ALIYUN_COM_GPU_MEM_"


@pytest.fixture
def units(stage: Stage, without_plugin: None) -> Iterator[int]:  # noqa: F811
    """The node is dedicated to gpushare; the units of each of its two GPUs."""
    del without_plugin
    stage.kubectl("label", "node", HERE, "kubeshare.nthu/gpus=owned", "gpushare=true")
    until_owned(stage)
    until_free(stage)
    sizes = {gpu["memoryBytes"] // GI for gpu in gpunode(stage)["spec"]["devices"]}
    assert len(sizes) == 1
    yield sizes.pop()
    stage.kubectl("label", "node", HERE, "gpushare-", "cgpu.disable.isolation-")


def until_offered(stage: Stage, units: int) -> None:
    """Wait until the kubelet offers the memory of both GPUs."""
    expected = (str(2 * units), "2")

    def offered() -> tuple[Any, Any]:
        node = stage.find("/api/v1/nodes", HERE)
        assert node is not None
        allocatable = node["status"]["allocatable"]
        return allocatable.get(GPU_MEM), allocatable.get(GPU_COUNT)

    eventually(
        lambda: offered() == expected, f"{HERE} to offer {expected}", explain=lambda: str(offered())
    )


def asking(units: int, command: tuple[str, ...] = REST) -> dict[str, Any]:
    """A container that asks for units of GPU memory."""
    return container(command, resources={"limits": {GPU_MEM: str(units)}})


def template(name: str, units: int) -> dict[str, Any]:
    """Pods that ask for units of GPU memory, as in Alibaba's samples."""
    spec = {"terminationGracePeriodSeconds": 1, "containers": [asking(units)]}
    return {"metadata": {"labels": {"app": name}}, "spec": spec}


def published(space: Space, name: str) -> dict[str, str]:
    """What gpushare writes into a pod with this label or name, without its prefix."""
    pod = next(iter(space.pods(app=name)), None) or space.find_pod(name)
    assert pod is not None
    annotations = pod["metadata"].get("annotations", {})
    return {
        key.removeprefix(PREFIX): value
        for key, value in annotations.items()
        if key.startswith(PREFIX)
    }


def typed(stage: Stage, tmp_path: Path) -> list[list[str]]:
    """The words of each line that the commands of the page print."""
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_bytes(stage.lab.kubeconfig.read_bytes())
    programs = (ROOT / ".venv" / "bin", stage.lab.api.programs)
    environment = os.environ | {
        "KUBECONFIG": str(kubeconfig),
        "PATH": ":".join([*map(str, programs), os.environ["PATH"]]),
        "node": HERE,
    }
    done = subprocess.run(
        ["bash", "-c", script("gpushare")],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [line.split() for line in done.stdout.splitlines() if line]


def tried_twice(space: Space, name: str) -> Any:
    """What a pod with 1 GiB gets that allocates 2 GiB, then half of one."""
    spec = {"containers": [asking(1, ("python3", "-c", TRY_TWICE))], "restartPolicy": "Never"}
    space.create({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})
    space.until_phase(name, "Succeeded", "Failed")
    return json.loads(space.log(name))


def test_the_published_samples_are_packed_held_to_their_memory_and_shown(
    stage: Stage, units: int, space: Space, tmp_path: Path
) -> None:
    until_offered(stage, units)
    amounts = {"binpack-1": 2, "binpack-2": 2, "binpack-3": 2, "binpack-4": units}
    for name, amount in amounts.items():
        space.create(deployment(name, template(name, amount)))
        space.until_running(1, app=name)
    eventually(
        lambda: all(published(space, name)["ASSIGNED"] == "true" for name in amounts),
        "the pods to be assigned",
    )
    found = {name: published(space, name) for name in amounts}
    assert {name: each["IDX"] for name, each in found.items()} == {
        "binpack-1": "0",
        "binpack-2": "0",
        "binpack-3": "0",
        "binpack-4": "1",
    }
    assert {name: int(each["POD"]) for name, each in found.items()} == amounts

    lines = typed(stage, tmp_path)
    sums = [f"6/{units}", f"{units}/{units}", f"{units + 6}/{2 * units}"]
    percent = f"({(units + 6) * 100 // (2 * units)}%)"
    [header] = [at for at, line in enumerate(lines) if line[:2] == ["NAME", "IPADDRESS"]]
    assert (lines[header + 1][0], lines[header + 1][2:]) == (HERE, sums)
    assert [sums[-1], percent] in lines
    details = lines[lines.index(["NAME:", HERE]) :]
    rows = {line[0].rsplit("-", 2)[0]: line[1:] for line in details}
    assert rows["binpack-1"] == [space.name, "2", "0"]
    assert rows["binpack-4"] == [space.name, "0", str(units)]
    assert details[-1][-2:] == [sums[-1], percent]

    [pod] = space.pods(app="binpack-1")
    environment = space.run(pod["metadata"]["name"], "env").splitlines()
    expected = {"IDX": "0", "POD": "2", "CONTAINER": "2", "DEV": str(units)}
    assert {f"{PREFIX}{name}={value}" for name, value in expected.items()} <= set(environment)

    # A restarted plugin offers the same; pods that run keep what they have.
    lives = {pod["metadata"]["uid"] for pod in space.pods()}
    before = stage.containers(NODE_AGENT, HERE)
    stage.kill_process(NODE_AGENT, HERE)
    stage.until_ready(NODE_AGENT, HERE, but=before)
    until_offered(stage, units)
    assert {pod["metadata"]["uid"] for pod in space.pods()} == lives
    assert all(pod["status"]["phase"] == "Running" for pod in space.pods())

    assert tried_twice(space, "modest") == [OUT_OF_MEMORY, SUCCESS]
    eventually(lambda: not published(space, "modest"), "the annotations of an ended pod to go")
    stage.kubectl("label", "node", HERE, "cgpu.disable.isolation=true")
    assert tried_twice(space, "unlimited") == [SUCCESS, SUCCESS]
