"""The calls of kube-scheduler but for binds, and what people ask."""

import asyncio
from collections.abc import MutableMapping
from typing import Any

import pytest
import structlog.testing

from expectations.vgpus import expect_holders
from fakes import manifests
from fakes.cluster import FakeCluster, scenario
from fakes.cluster.disruptions import label_node
from fakes.cluster.extender import bind, call, fit, placed, pod, schedule, start, vgpus
from fakes.cluster.state import the_pod
from kubeshare.api.types.v1 import GPUNODES, VGPUS
from kubeshare.extender.http.messages import Head
from kubeshare.kube.resources import NODES, PODS, RESOURCE_QUOTAS, Raw
from kubeshare.simulator.control_tier.stored import bound

FULL = "Insufficient GPU Memory in one device"


@scenario(n1=2, n2=1, n3=1)
async def test_a_filter_keeps_the_nodes_with_room_on_one_gpu(cluster: FakeCluster) -> None:
    await start(cluster)
    label_node(cluster, "n3", family=None)
    for name, units, node in (("a", 9, "n1"), ("b", 9, "n1"), ("c", 4, "n2")):
        pod(cluster, name, units)
        assert (await bind(cluster, name, node))[0] == 200
    pod(cluster, "p", 12)
    await cluster.quiet(1)
    assert await fit(cluster, "p", "n1", "n2", "n3", "n4") == {
        "Nodes": None,
        "NodeNames": ["n2"],
        "FailedNodes": {
            "n1": FULL,
            "n3": "The node n3 is not for GPU share, need skip",
            "n4": 'node "n4" not found',
        },
        "FailedAndUnresolvableNodes": None,
        "Error": "",
    }


@scenario(n1=1, n2=1)
async def test_whole_nodes_are_answered_with_whole_nodes(cluster: FakeCluster) -> None:
    await start(cluster)
    pod(cluster, "a", 16)
    assert (await bind(cluster, "a", "n1"))[0] == 200
    pod(cluster, "p", 1)
    nodes = cluster.server.all(NODES)
    body = {"Pod": the_pod(cluster, "p"), "Nodes": {"items": nodes}}
    status, answer = await call(cluster, "filter", body)
    assert status == 200
    assert answer["Nodes"]["items"] == [nodes[1]]
    assert (answer["NodeNames"], answer["FailedNodes"]) == (None, {"n1": FULL})


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "EOF"),
        (b'{"Pod"', "unexpected EOF"),
        (b"null", "arg or pod is nil"),
        (b'{"Pod": {"metadata": {}}}', "cannot get node names"),
        (b'{"Pod": {"metadata": {}, "spec": 1}, "NodeNames": []}', "spec"),
    ],
)
def test_a_filter_that_cannot_be_read_has_an_error(body: bytes, words: str) -> None:
    @scenario(n1=1)
    async def run(cluster: FakeCluster) -> None:
        await start(cluster)
        status, answer = await call(cluster, "filter", body)
        assert status == 200
        assert words in answer["Error"]
        assert answer["NodeNames"] is None

    run()


@pytest.mark.parametrize("units", ["0", "1.5", "-1", "many", "8E"])
def test_amounts_that_are_no_units_have_an_error(units: str) -> None:
    @scenario(n1=1)
    async def run(cluster: FakeCluster) -> None:
        await start(cluster)
        pod(cluster, "p", units)
        assert "aliyun.com/gpu-mem" in (await fit(cluster, "p"))["Error"]
        await cluster.quiet(1)
        assert (await bind(cluster, "p"))[0] == 500
        await expect_holders(cluster, [])

    run()


@scenario(n1=1)
async def test_a_pod_that_asks_for_nothing_fits_everywhere(cluster: FakeCluster) -> None:
    await start(cluster)
    pod(cluster, "p")
    assert (await fit(cluster, "p", "n1", "n9"))["NodeNames"] == ["n1", "n9"]


@scenario(n1=2)
async def test_gpus_that_have_failed_take_no_pods(cluster: FakeCluster) -> None:
    await start(cluster)
    cluster.fail_gpus("n1", "it fell off the bus")
    pod(cluster, "p", 1)
    await cluster.quiet(1)
    assert (await fit(cluster, "p"))["FailedNodes"] == {"n1": FULL}
    status, error = await bind(cluster, "p")
    assert status == 500
    assert error.startswith("The node n1 can't place the pod p in ns default")


@scenario(n1=1)
async def test_the_unit_is_the_configured_one(cluster: FakeCluster) -> None:
    cluster.configure(gpushare={"memoryUnit": "MiB"})
    await start(cluster)
    pod(cluster, "p", 16 * 1024 + 1)
    assert (await fit(cluster, "p"))["FailedNodes"] == {"n1": FULL}
    pod(cluster, "q", 16 * 1024)
    await cluster.quiet(1)
    assert (await bind(cluster, "q"))[0] == 200
    annotations = the_pod(cluster, "q")["metadata"]["annotations"]
    assert annotations["ALIYUN_COM_GPU_MEM_POD"] == annotations["ALIYUN_COM_GPU_MEM_DEV"] == "16384"


@scenario(n1=1, n2=1)
async def test_a_quota_of_the_namespace_keeps_a_pod_off_all_nodes(cluster: FakeCluster) -> None:
    hard = {"requests.kubeshare.nthu/gpu-memory": "8Gi"}
    metadata = {"name": "gpus", "namespace": "default"}
    cluster.server.seed(RESOURCE_QUOTAS, {"metadata": metadata, "spec": {"hard": hard}})
    await start(cluster)
    for name in "ab":
        pod(cluster, name, 5)
    assert (await bind(cluster, "a"))[0] == 200
    words = "ResourceQuota gpus allows 8Gi of GPU memory: 5Gi held, 5Gi asked"
    assert (await fit(cluster, "b"))["FailedNodes"] == {"n1": words, "n2": words}
    status, error = await bind(cluster, "b", "n2")
    assert status == 500
    assert words in error


@pytest.mark.parametrize(("choice", "scores"), [("binpack", (10, 5, 0)), ("spread", (0, 5, 10))])
def test_nodes_are_ranked_by_the_gpu_that_would_be_taken(
    choice: str, scores: tuple[int, int, int]
) -> None:
    @scenario(n1=2, n2=1, n3=1, n4=1)
    async def run(cluster: FakeCluster) -> None:
        cluster.configure(gpushare={"prioritize": choice})
        await start(cluster)
        for name, units, node in (("a", 9, "n1"), ("b", 4, "n2"), ("c", 14, "n4")):
            pod(cluster, name, units)
            assert (await bind(cluster, name, node))[0] == 200
        pod(cluster, "p", 4)
        body = {"Pod": the_pod(cluster, "p"), "NodeNames": ["n1", "n2", "n3", "n4"]}
        status, answer = await call(cluster, "prioritize", body)
        found = dict(zip(("n1", "n2", "n3"), scores, strict=True)) | {"n4": 0}
        assert status == 200
        assert answer == [{"Host": name, "Score": score} for name, score in found.items()]

    run()


@scenario(n1=2, n2=1)
async def test_a_preemption_helps_where_it_makes_room_on_one_gpu(cluster: FakeCluster) -> None:
    await start(cluster)
    uids = {}
    for name, units, node in (("a", 9, "n1"), ("b", 9, "n1"), ("c", 3, "n1"), ("d", 9, "n2")):
        uids[name] = pod(cluster, name, units)["metadata"]["uid"]
        assert (await bind(cluster, name, node))[0] == 200
    pod(cluster, "p", 14)
    await cluster.quiet(1)

    async def preempt(**victims: str) -> object:
        found = {
            node: {"Pods": [{"UID": uids[name]} for name in names], "NumPDBViolations": 1}
            for node, names in victims.items()
        }
        body = {"Pod": the_pod(cluster, "p"), "NodeNameToMetaVictims": found}
        status, answer = await call(cluster, "preempt", body)
        assert status == 200
        assert answer["NodeNameToMetaVictims"].items() <= found.items()
        return sorted(answer["NodeNameToMetaVictims"])

    assert placed(cluster)["c"] == ("n1", 0)
    assert await preempt(n1="ac", n2="d") == ["n1", "n2"]
    assert await preempt(n1="a", n2="d") == ["n2"], "3 GiB of c stay on that GPU"
    assert await preempt(n1="b") == ["n1"]
    assert await preempt(n1="c", n3="") == []
    await expect_holders(cluster, ["a", "c"], ["b"], ["d"])


@scenario(n1=2, n2=1, n3=1)
async def test_people_see_the_use_of_each_gpu(cluster: FakeCluster) -> None:
    await start(cluster)
    label_node(cluster, "n3", family=None)
    for name, units in (("a", 9), ("b", 9), ("c", 3)):
        pod(cluster, name, units)
        assert (await bind(cluster, name))[0] == 200
    await cluster.quiet(1)

    def gpu(number: int, **pods: int) -> Raw:
        used = [{"name": key, "namespace": "default", "usedGPU": pods[key]} for key in pods]
        return {"id": number, "totalGPU": 16, "usedGPU": sum(pods.values()), "pods": used}

    n1 = {"name": "n1", "totalGPU": 32, "usedGPU": 21, "devs": [gpu(0, a=9, c=3), gpu(1, b=9)]}
    n2 = {"name": "n2", "totalGPU": 16, "usedGPU": 0, "devs": [gpu(0)]}
    n3 = {"name": "n3", "totalGPU": 0, "usedGPU": 0, "devs": []}
    assert await call(cluster, "inspect", b"") == (200, {"nodes": [n1, n2]})
    assert await call(cluster, "inspect/n1", b"") == (200, {"nodes": [n1]})
    assert await call(cluster, "inspect/n3", b"") == (200, {"nodes": [n3]})
    unknown = {"nodes": [], "error": 'node "n4" not found'}
    assert await call(cluster, "inspect/n4", b"") == (404, unknown)
    assert await call(cluster, "inspect/", b"") == (301, "")


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/version", 200),
        ("POST", "/version", 405),
        ("GET", "/gpushare-scheduler/filter", 405),
        ("GET", "/gpushare-scheduler/bind", 405),
        ("POST", "/gpushare-scheduler/inspect", 405),
        ("POST", "/gpushare-scheduler/inspect/n1", 405),
        ("POST", "/gpushare-scheduler", 404),
        ("GET", "/", 404),
        ("GET", "/debug/pprof/", 404),
        ("POST", "*", 404),
    ],
)
def test_other_paths_and_methods(method: str, path: str, status: int) -> None:
    @scenario(n1=1)
    async def run(cluster: FakeCluster) -> None:
        await start(cluster)
        service, head = cluster.extenders["extender"], Head(method, path)
        answer = service.refuse(head) or await service.answer(head, b"")
        service.observe(head, answer, 0.1)
        assert answer.status == status

    run()


def test_at_debug_each_request_has_a_line_without_its_headers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("kubeshare.extender.service.debugging", lambda: True)
    lines: list[MutableMapping[str, Any]] = []

    @scenario(n1=1)
    async def run(cluster: FakeCluster) -> None:
        await start(cluster)
        head = Head("GET", "/version", [(b"authorization", b"Bearer secret")])
        service = cluster.extenders["extender"]
        with structlog.testing.capture_logs() as captured:
            service.observe(head, await service.answer(head, b""), 0.1)
        lines.extend(captured)

    run()
    said = {"method": "GET", "path": "/version", "status": 200, "seconds": 0.1}
    assert [line for line in lines if line["event"] == "answered"] == [
        {"event": "answered", "log_level": "debug", **said}
    ]


@scenario(n1=1)
async def test_a_program_that_has_just_started_refuses(cluster: FakeCluster) -> None:
    cluster.server.freeze_watches()
    cluster.server.down = True
    cluster.start("extender")
    await cluster.quiet(0.1)
    status, words = await call(cluster, "filter", b"")
    assert status == 503
    assert "pods not listed yet" in words
    cluster.server.down = False


@scenario(n1=1, n2=1)
async def test_a_pod_that_sched_has_placed_is_bound_and_nothing_else(cluster: FakeCluster) -> None:
    await start(cluster)
    [vgpu] = [each for each in vgpus(cluster) if each["spec"]["nodeName"] == "n1"]
    name = vgpu["metadata"]["name"]
    annotations = {"kubeshare.nthu/gpuids": name, "kubeshare.nthu/node": "n1"}
    made = pod(cluster, "a", 4, annotations=annotations)
    holder = manifests.holder(made["metadata"]["uid"], "a", memoryBytes=4 << 30)
    cluster.server.change(VGPUS, name, "", lambda obj: obj["status"].update(holders=[holder]))
    await cluster.quiet(1)
    answer = await fit(cluster, "a", "n1", "n2")
    assert answer["NodeNames"] == ["n1"]
    words = "KubeShare's scheduler has chosen node n1 for the pod"
    assert answer["FailedNodes"] == {"n2": words}
    assert await bind(cluster, "a", "n2") == (500, words)
    assert await bind(cluster, "a") == (200, "")
    found = the_pod(cluster, "a")
    assert bound(found)
    assert found["metadata"]["annotations"] == annotations
    await expect_holders(cluster, ["a"], [])


@scenario(n1=1)
async def test_annotations_alone_place_nothing(cluster: FakeCluster) -> None:
    await start(cluster)
    [vgpu] = vgpus(cluster)
    name = vgpu["metadata"]["name"]
    pod(cluster, "full", 16)
    assert (await bind(cluster, "full"))[0] == 200
    forged = {"kubeshare.nthu/gpuids": name, "ALIYUN_COM_GPU_MEM_IDX": "0"}
    pod(cluster, "a", 4, annotations=forged)
    await cluster.quiet(1)
    assert (await fit(cluster, "a"))["FailedNodes"] == {"n1": FULL}
    assert (await bind(cluster, "a"))[0] == 500
    cluster.server.remove(PODS, "full", "default")
    await expect_holders(cluster, [])
    assert await schedule(cluster, "a") == ""
    await expect_holders(cluster, ["a"])


@scenario(n1=1, n2=1)
async def test_a_node_that_is_given_back_takes_no_pods(cluster: FakeCluster) -> None:
    await start(cluster)
    pod(cluster, "a", 4)
    label_node(cluster, "n1", gpus=None)
    await cluster.until(
        lambda: (cluster.server.stored(GPUNODES, "n1") or {})["status"]["mode"] == "shared"
    )
    await cluster.quiet(1)
    answer = await fit(cluster, "a")
    assert answer["NodeNames"] == ["n2"]
    assert answer["FailedNodes"] == {"n1": "The node n1 is not for GPU share, need skip"}


@scenario(n1=1, n2=1, n3=1)
async def test_a_quota_holds_for_binds_to_several_nodes_at_one_time(cluster: FakeCluster) -> None:
    hard = {"requests.kubeshare.nthu/gpu-memory": "8Gi"}
    metadata = {"name": "gpus", "namespace": "default"}
    cluster.server.seed(RESOURCE_QUOTAS, {"metadata": metadata, "spec": {"hard": hard}})
    await start(cluster)
    nodes = {"a": "n1", "b": "n2", "c": "n3"}
    for name in nodes:
        pod(cluster, name, 5)
    await cluster.quiet(1)
    answers = await asyncio.gather(*(bind(cluster, name, node) for name, node in nodes.items()))
    assert sorted(status for status, _ in answers) == [200, 500, 500]
