"""Pods of gpushare by their manifests alone, on a node of their own with a real kubelet."""

import json
from typing import Any

import pytest

from e2e import pages
from e2e.manifests import deployment
from e2e.owned.gpushare_pods import GPU_COUNT, GPU_MEM, PREFIX, asking, published, template
from e2e.owned.node import OwnedNode
from e2e.space import Space
from e2e.stage import NODE_AGENT, Stage, eventually
from e2e.test_memory import OUT_OF_MEMORY, SUCCESS, TRY_TWICE

pytestmark = pytest.mark.lab


def tried_twice(space: Space, name: str) -> Any:
    """What a pod with 1 GiB gets that allocates 2 GiB, then half of one."""
    spec = {"containers": [asking(1, ("python3", "-c", TRY_TWICE))], "restartPolicy": "Never"}
    space.create({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})
    space.until_phase(name, "Succeeded", "Failed")
    return json.loads(space.log(name))


def test_the_published_samples_are_packed_held_to_their_memory_and_shown(
    stage: Stage, owned_node: OwnedNode, units: int, space: Space
) -> None:
    here = owned_node.name
    offered = {GPU_MEM: str(2 * units), GPU_COUNT: "2"}
    owned_node.until_allocatable(offered)
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

    printed = pages.run(stage, pages.script("gpushare"), node=here)
    lines = [line.split() for line in printed.splitlines() if line]
    sums = [f"6/{units}", f"{units}/{units}", f"{units + 6}/{2 * units}"]
    percent = f"({(units + 6) * 100 // (2 * units)}%)"
    [header] = [at for at, line in enumerate(lines) if line[:2] == ["NAME", "IPADDRESS"]]
    assert (lines[header + 1][0], lines[header + 1][2:]) == (here, sums)
    assert [sums[-1], percent] in lines
    details = lines[lines.index(["NAME:", here]) :]
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
    before = stage.containers(NODE_AGENT, here)
    stage.kill_process(NODE_AGENT, here)
    stage.until_ready(NODE_AGENT, here, but=before)
    owned_node.until_allocatable(offered)
    assert {pod["metadata"]["uid"] for pod in space.pods()} == lives
    assert all(pod["status"]["phase"] == "Running" for pod in space.pods())

    assert tried_twice(space, "modest") == [OUT_OF_MEMORY, SUCCESS]
    eventually(lambda: not published(space, "modest"), "the annotations of an ended pod to go")
    stage.kubectl("label", "node", here, "cgpu.disable.isolation=true")
    assert tried_twice(space, "unlimited") == [SUCCESS, SUCCESS]
