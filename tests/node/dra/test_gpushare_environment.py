"""The variables of gpushare pods come from the claim and say what the pod was given."""

import json
from typing import Any

import msgspec
import pytest

from fakes.node import (
    A_GPU,
    NODE,
    OTHER_GPU,
    Cluster,
    Running,
    claim_reference,
    write_daemon_status,
)
from kubeshare.core.units import GI
from kubeshare.kube.resources import NODES, PODS, Raw
from kubeshare.node.dra.driver import PreparedDevice
from kubeshare.node.dra.gpushare_environment import GpushareSettings, variables
from kubeshare.node.node_view import NodePod
from kubeshare.node.paths import NodePaths
from kubeshare.simulator.control import run_virtual
from kubeshare.tokens.files.grants import GrantedShare

CLAIM = claim_reference("a")
SETTINGS = GpushareSettings(unit_bytes=GI)
INDEX = {A_GPU.uuid: 0, OTHER_GPU.uuid: 1}


def limited(name: str, units: str) -> Raw:
    return {"name": name, "resources": {"limits": {"aliyun.com/gpu-mem": units}}}


def share(uuid: str, memory: int) -> GrantedShare:
    return GrantedShare(
        uuid=uuid,
        memory_total_bytes=16 * GI,
        request_micros=0,
        limit_micros=1,
        memory_bytes=memory * GI,
    )


def test_each_container_that_asks_has_its_own_amount_and_the_pods() -> None:
    containers = [limited("main", "2"), {"name": "proxy"}, limited("none", "0")]
    spec = {"containers": containers, "initContainers": [limited("first", "1")]}
    pod = msgspec.convert({"metadata": {"name": "a"}, "spec": spec}, NodePod)
    found = variables(pod, [share(OTHER_GPU.uuid, 2)], INDEX.__getitem__, SETTINGS)
    assert found.keys() == {"main", "first"}
    assert found["main"] == {
        "NVIDIA_VISIBLE_DEVICES": "void",
        "ALIYUN_COM_GPU_MEM_IDX": "1",
        "ALIYUN_COM_GPU_MEM_POD": "2",
        "ALIYUN_COM_GPU_MEM_CONTAINER": "2",
        "ALIYUN_COM_GPU_MEM_DEV": "16",
    }
    assert found["first"]["ALIYUN_COM_GPU_MEM_CONTAINER"] == "1"


def test_several_gpus_are_listed() -> None:
    pod = msgspec.convert(
        {"metadata": {"name": "a"}, "spec": {"containers": [limited("main", "4")]}}, NodePod
    )
    both = [share(A_GPU.uuid, 2), share(OTHER_GPU.uuid, 2)]
    found = variables(pod, both, INDEX.__getitem__, SETTINGS)["main"]
    assert found["ALIYUN_COM_GPU_MEM_IDX"] == "0,1"
    assert found["ALIYUN_COM_GPU_MEM_POD"] == "4"


@pytest.fixture
def gpushare_pod(cluster: Cluster, paths: NodePaths) -> Cluster:
    """Pod ``a``, of which container ``main`` alone asks for memory, with 1 GiB of GPU 0."""
    cluster.add_pod("a", claimed=True)
    spec = {"nodeName": NODE, "containers": [limited("main", "1"), {"name": "side"}]}
    cluster.server.change(PODS, "a", "default", lambda pod: pod.update(spec=spec))
    cluster.add_vgpu("red", cluster.holder("a"))
    write_daemon_status(paths, CLAIM.uid, "ACTIVE")
    return cluster


def prepare(running: Running) -> list[PreparedDevice]:
    async def main() -> list[PreparedDevice]:
        async with running() as agent:
            return await agent.prepare(CLAIM)

    return run_virtual(main())


def devices(paths: NodePaths) -> dict[str, Any]:
    """The devices of the claim's CDI spec, by name."""
    (file,) = paths.dynamic_cdi_folder.glob("*.json")
    return {
        each["name"]: each["containerEdits"] for each in json.loads(file.read_text())["devices"]
    }


def label(cluster: Cluster, **labels: str) -> None:
    cluster.server.change(NODES, NODE, "", lambda node: node["metadata"].update(labels=labels))


def granted_memory(paths: NodePaths) -> tuple[int, int | None]:
    """What the grant reserves, and the limit if that is another."""
    (gpu,) = json.loads((paths.run_folder / "grants" / f"{CLAIM.uid}.json").read_text())["gpus"]
    return gpu["memoryBytes"], gpu.get("memoryLimitBytes")


def test_a_label_of_the_node_lifts_the_memory_limit_and_is_told(
    gpushare_pod: Cluster, agent: Running, paths: NodePaths
) -> None:
    label(gpushare_pod, gpushare="true", **{"cgpu.disable.isolation": "true"})
    prepare(agent)
    assert granted_memory(paths) == (GI, A_GPU.memory_bytes)
    assert "CGPU_DISABLE=true" in devices(paths)[f"{CLAIM.uid}.env.main"]["env"]


@pytest.mark.parametrize("value", ["false", "True", ""])
def test_only_true_lifts_it(
    gpushare_pod: Cluster, agent: Running, paths: NodePaths, value: str
) -> None:
    label(gpushare_pod, gpushare="true", **{"cgpu.disable.isolation": value})
    prepare(agent)
    assert granted_memory(paths) == (GI, None)


def test_pods_without_the_resource_are_held_to_their_memory_all_the_same(
    cluster: Cluster, agent: Running, paths: NodePaths
) -> None:
    label(cluster, gpushare="true", **{"cgpu.disable.isolation": "true"})
    cluster.add_pod("a", claimed=True)
    cluster.add_vgpu("red", cluster.holder("a"))
    write_daemon_status(paths, CLAIM.uid, "ACTIVE")
    prepare(agent)
    assert granted_memory(paths) == (GI, None)


def test_on_a_gpushare_node_the_claim_sets_the_variables(
    gpushare_pod: Cluster, agent: Running, paths: NodePaths
) -> None:
    label(gpushare_pod, gpushare="true")
    main, side = prepare(agent)
    name = f"{CLAIM.uid}.env.main"
    assert main.cdi_devices[-1] == f"kubeshare.nthu/claim={name}"
    assert side.cdi_devices == main.cdi_devices[:-1]
    assert "ALIYUN_COM_GPU_MEM_CONTAINER=1" in devices(paths)[name]["env"]
    assert "env" not in devices(paths)[CLAIM.uid]


@pytest.mark.usefixtures("gpushare_pod")
def test_elsewhere_it_sets_none(agent: Running, paths: NodePaths) -> None:
    main, side = prepare(agent)
    assert main.cdi_devices == side.cdi_devices
    assert devices(paths).keys() == {CLAIM.uid}
