"""Both extenders of the bench read one cluster, over HTTP, and both get the same to count."""

import asyncio
import json
from collections import Counter
from pathlib import Path

from bench.extender.api_server import serving
from bench.extender.objects import POD_UNITS, SharedCluster
from bench.extender.programs import write_kubeconfig

from deadlines import DEADLINE_S
from kubeshare.api.types.v1 import VGPUS
from kubeshare.core.units import GI
from kubeshare.kube.cache.reflector import Reflector
from kubeshare.kube.client.client import Client
from kubeshare.kube.resources import NODES, PODS, Raw
from kubeshare.simulator.control import until


def held(cluster: SharedCluster) -> Counter[str]:
    """GiB of each node by its holders: what ours counts."""
    found: Counter[str] = Counter()
    for vgpu in cluster.server.view(VGPUS):
        units = sum(each["memoryBytes"] for each in vgpu["status"]["holders"]) // GI
        found[vgpu["spec"]["nodeName"]] += units
    return found


def annotated(cluster: SharedCluster) -> Counter[str]:
    """GiB of each node by the annotations of its pods: what Alibaba's counts."""
    found: Counter[str] = Counter()
    for pod in cluster.server.view(PODS):
        units = int(pod["metadata"]["annotations"]["ALIYUN_COM_GPU_MEM_POD"])
        found[pod["spec"]["nodeName"]] += units
    return found


def test_holders_and_annotations_say_the_same_also_after_changes() -> None:
    cluster = SharedCluster(3)
    for _ in range(40):
        cluster.change()
    assert held(cluster) == annotated(cluster)
    assert held(cluster).total() == POD_UNITS * cluster.pods > 0
    assert {each["status"]["capacity"]["aliyun.com/gpu-mem"] for each in nodes(cluster)} == {"128"}


def nodes(cluster: SharedCluster) -> list[Raw]:
    return cluster.server.view(NODES)


def test_another_process_can_list_and_watch_the_cluster(tmp_path: Path) -> None:
    async def read() -> None:
        cluster = SharedCluster(2)
        async with serving(cluster.server) as url:
            config = write_kubeconfig(tmp_path / "kubeconfig", url)
            async with Client.connect(config) as client:
                await _follow(cluster, client)

    asyncio.run(read())


async def _follow(cluster: SharedCluster, client: Client) -> None:
    pods = Reflector(client, PODS)
    watching = asyncio.create_task(pods.run())
    await asyncio.wait_for(pods.wait_for_sync(), DEADLINE_S)
    before = cluster.pods
    assert len(pods.store.snapshot()) == before
    cluster.change()
    await until(lambda: len(pods.store.snapshot()) == cluster.pods != before, seconds=DEADLINE_S)
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)


def test_a_list_says_of_what_it_is_as_go_clients_decode_it_by_that() -> None:
    async def read() -> None:
        answer = await SharedCluster(1).server.receive(
            "GET", "/api/v1/nodes", content_type="", body=b"", client=""
        )
        assert json.loads(answer.body)["kind"] == "NodeList"

    asyncio.run(read())
