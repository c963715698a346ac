"""Gaia's placement cases C01 to C52, and others like them, in a cluster through both doors.

The cases are the files by which ``kubeshare plan`` is tested; a cluster gives the same GPUs.
C51, of the order of objects, is in ``tests/scheduler/test_any_order.py``.
"""

import json
import re
from functools import partial
from pathlib import Path

import pytest
import yaml

from fakes import manifests
from fakes.cluster import FakeCluster, run_scenario
from fakes.cluster.doors import DOORS, begin, create, node_of, place
from fakes.cluster.legacy import record
from fakes.cluster.predicates import fit, placed
from fakes.cluster.state import gates, the_pod
from fakes.cluster.vcuda import published
from kubeshare.api.types.v1 import GPUNODES, VGPUS
from kubeshare.core.ledger.device import Device
from kubeshare.core.ledger.ledger import Ledger
from kubeshare.core.topology.links import Links, name_of
from kubeshare.core.units import MICROS
from kubeshare.dialects.scenario.scenario import read_scenario
from kubeshare.dialects.write_back import VCUDA_INDEX as INDEX
from kubeshare.kube.resources import PODS, Raw

pytestmark = pytest.mark.slow

FOLDER = Path(__file__).parents[1] / "conformance" / "gaia"
FILES = sorted(
    file
    for file in FOLDER.glob("*.yaml")
    if not {"shares:", "namespace:"} & set(re.findall(r"\w+:", file.read_text()))
    and not file.name.startswith("S")
)
"""The sequences S, several namespaces and different shares have tests of their own."""
EXPECTED = "# Expected:\n"


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_cluster_gives_the_gpus_that_plan_names(file: Path, door: str) -> None:
    text = file.read_text(encoding="utf-8")
    ledger = read_scenario(text.encode(), file.name).ledger
    answers = {
        answer["name"]: answer
        for answer in map(json.loads, text.partition(EXPECTED)[2].replace("# ", "").splitlines())
    }
    events: list[Raw] = yaml.safe_load(text)["events"]
    assert [each["request"]["name"] for each in events if "request" in each] == list(answers)
    gpus = {
        name: [each.node for each in ledger.devices.values()].count(name) for name in ledger.nodes
    }
    run_scenario(partial(_play, door, ledger, events, answers), agents=False, **gpus)


async def _play(
    door: str, ledger: Ledger, events: list[Raw], answers: dict[str, Raw], cluster: FakeCluster
) -> None:
    for node in ledger.nodes.values():
        cluster.link(node.name, **_pairs(node.links))
    for device in ledger.devices.values():
        cluster.server.change(GPUNODES, device.node, "", partial(_resize, device))
    await begin(cluster, door)
    for device in ledger.devices.values():
        if not device.idle:
            _use(cluster, device)
    await cluster.quiet(1)
    for event in events:
        if "release" in event:
            cluster.actors.delete(the_pod(cluster, event["release"]))
            await cluster.until(partial(_is_gone, cluster, event["release"]))
            continue
        request = event["request"]
        answer = answers[request["name"]]
        if answer["decision"] == "bound":
            await _expect_bound(cluster, door, request, answer)
        else:
            await _expect_refused(cluster, door, request, answer)


async def _expect_bound(cluster: FakeCluster, door: str, request: Raw, answer: Raw) -> None:
    """The pod runs with the GPUs of the answer, and its annotation names them."""
    name = request["name"]
    await place(cluster, door, name, _asked(request))
    assert node_of(cluster, name) == answer["node"]
    assert placed(cluster)[name] == [(answer["node"], int(gpu)) for gpu in answer["gpus"]]
    assert published(cluster, name)[INDEX + "0"] == ",".join(answer["gpus"])


async def _expect_refused(cluster: FakeCluster, door: str, request: Raw, answer: Raw) -> None:
    """The pod has no GPU, and learns why: from the GPUs, or from what the kubelet counts."""
    name = request["name"]
    create(cluster, door, name, _asked(request))
    if door == "manifests":
        await cluster.until(lambda: cluster.pod_condition(name).get("status") == "False")
        condition = cluster.pod_condition(name)
        never = condition["reason"] in ("Invalid", "NeverFits")
        assert never == (answer["decision"] == "rejected")
        assert gates(cluster, name)
        why = condition["message"]
    else:
        result = await fit(cluster, name)
        assert not result["NodeNames"]
        why = result["Error"] or "; ".join(result["FailedNodes"].values())
    counted = f" left, {request['cores']} asked"
    assert any(reason in why for reason in (*answer["reasons"].values(), counted)), why
    assert name not in placed(cluster)


def _asked(request: Raw) -> str:
    blocks = request.get("memoryBlocks")
    return str(request["cores"]) if blocks is None else f"{request['cores']}/{blocks}"


def _pairs(links: Links) -> dict[str, str]:
    """The links between a node's GPUs, as ``FakeCluster.link`` takes them."""
    numbers = range(len(links))
    return {f"gpu_{a}_{b}": name_of(links[a][b]) for a in numbers for b in numbers if a < b}


def _resize(device: Device, gpunode: Raw) -> None:
    gpunode["spec"]["devices"][int(device.name)]["memoryBytes"] = device.memory_bytes


def _use(cluster: FakeCluster, device: Device) -> None:
    """Lets a GPU be in use as far as nothing is left of it, by a pod that stays."""
    uuid = cluster.actors.devices[device.node][int(device.name)]["uuid"]
    [vgpu] = [each for each in cluster.server.all(VGPUS) if each["spec"]["uuid"] == uuid]
    user = manifests.pod(
        f"in-use-{device.node}-{device.name}",
        metadata={"namespace": "default"},
        nodeName=device.node,
    )
    record(
        cluster,
        cluster.server.seed(PODS, user | {"status": {"phase": "Running"}}),
        vgpu["metadata"]["name"],
        requestMicros=MICROS - device.compute_left,
        limitMicros=MICROS,
        memoryBytes=device.memory_bytes - device.memory_left,
    )


def _is_gone(cluster: FakeCluster, name: str) -> bool:
    return name not in placed(cluster)
