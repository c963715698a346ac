"""What the endpoints of `kubeshare web` answer."""

from pathlib import Path
from typing import Any

import pytest

from deadlines import eventually
from fakes import manifests
from fakes.policy_package import RAISING, WHO, install_policy
from fakes.web import Served, served
from fakes.web.cluster import add_plain_pod, add_share, add_vgpu, small_cluster
from fakes.web.rights import rights
from kubeshare.api import configuration
from kubeshare.api.types.constants import NAMESPACE
from kubeshare.api.types.v1 import GPUNODES, SHAREPODS, VGPUS
from kubeshare.kube.resources import CONFIG_MAPS, DEPLOYMENTS, NODES, PODS
from kubeshare.simulator.control import Fault


def refusal(page: Served, path: str, **query: str) -> tuple[int, str]:
    response = page.get(path, **query)
    return response.status_code, response.json()["error"]


def test_the_tables_have_nodes_pods_and_quotas(page: Served) -> None:
    found = page.read("/api/tables")
    assert (found["cluster"], found["namespaces"], found["refused"]) == ("demo", None, [])
    assert found["stale"] == []
    nodes, pods, quotas = (page.rows(name) for name in ("nodes", "pods", "quotas"))
    assert list(nodes) == ["gpu-a", "gpu-b", "gpu-c"]
    states = [gpu["state"] for gpu in nodes["gpu-a"]["gpus"]]
    assert states == ["shared", "shared", *["idle"] * 4, "unhealthy", "free"]
    first = nodes["gpu-a"]["gpus"][0]
    assert (first["requestMicros"], first["memoryBytes"] >> 30, first["holders"]) == (
        800_000,
        12,
        2,
    )
    assert [gpu["state"] for gpu in nodes["gpu-b"]["gpus"]][:3] == ["whole", "whole", "shared"]
    waits = pods["SharePod/serving/reranker"]
    assert (waits["state"], waits["request"], waits["memory"]) == ("waiting", "0.6", "8Gi")
    assert waits["message"].startswith("vGPU gpu-a/vgpu-a0: compute 0.2 left")
    runs = pods["SharePod/research/train-bert"]
    assert (runs["state"], runs["node"], runs["gpuids"]) == ("running", "gpu-a", ["vgpu-a0"])
    assert quotas["GPUQuota/research/gpus"]["limits"] == ["2 Tesla V100-SXM2-16GB GPUs"]
    assert quotas["ResourceQuota/serving/gpus"]["limits"] == ["4 GPUs"]


def test_a_node_has_the_shares_of_its_gpus(page: Served) -> None:
    found = page.read("/api/nodes/gpu-a")
    assert (found["driver"], found["mode"], found["drawn"]) == ("580.95", "owned", True)
    gpu = found["gpus"][0]
    assert (gpu["gpuid"], gpu["uuid"]) == ("vgpu-a0", "GPU-gpu-a-0")
    first, second = gpu["shares"]
    assert (first["namespace"], first["name"], first["requestMicros"]) == (
        *("research", "train-bert"),
        500_000,
    )
    assert first["used"]["share"] == "0.6"
    assert second["used"] is None
    assert gpu["others"]["count"] == 0
    assert found["gpus"][6]["row"]["message"] == "XID 79: GPU has fallen off the bus"


def test_a_share_says_whether_it_is_latency_sensitive() -> None:
    server = small_cluster()
    held = add_share(
        *(server, "serving", "chat", "0.4", 4, "gpu-c", "vgpu-c1"),
        gpu={"latencySensitive": True},
        latencySensitive=True,
    )
    other = add_share(server, "research", "batch", "0.2", 4, "gpu-c", "vgpu-c1")
    add_vgpu(server, "gpu-c", 1, held, other)

    def flags(page: Served) -> dict[str, bool]:
        gpus = page.read("/api/nodes/gpu-c")["gpus"]
        found = [share for gpu in gpus if gpu["gpuid"] == "vgpu-c1" for share in gpu["shares"]]
        return {share["name"]: share["latencySensitive"] for share in found}

    with served(server) as page:
        assert flags(page) == {"chat": True, "batch": False}
    with served(server, rights=rights("serving"), home="serving") as page:
        assert flags(page) == {"chat": True}


def test_the_topology_of_a_node_is_drawn(page: Served) -> None:
    response = page.get("/api/nodes/gpu-a/topology.svg")
    assert response.headers["content-type"].startswith("image/svg+xml")
    assert response.text.count("<rect") == 15
    assert 'class="unhealthy"' in response.text


def test_a_pod_is_explained_by_the_scheduler_s_rules(page: Served) -> None:
    found = page.read("/api/explain/SharePod/serving/reranker")
    assert found["decision"] == "pending"
    assert found["help"] == "it fits when train-bert leaves gpu-a/vgpu-a0"
    assert found["reasons"]["gpu-a/vgpu-a0"] == "compute 0.2 left, 0.6 asked"
    held = page.read("/api/explain/SharePod/research/train-bert")
    assert held["held"] == ["gpu-a/vgpu-a0"]


def test_a_pod_has_its_use_and_its_events(page: Served) -> None:
    found = page.read("/api/pods/SharePod/research/train-bert")
    assert found["row"]["state"] == "running"
    assert found["used"]["share"] == "0.6"
    events = page.read("/api/events", namespace="research", name="train-bert")["events"]
    assert [event["reason"] for event in events] == ["Bound"]


def test_events_are_listed_the_latest_first(page: Served) -> None:
    events = page.read("/api/events")["events"]
    assert [event["name"] for event in events] == ["reranker", "huge", "train-bert"]


def test_many_readers_cost_the_api_server_one_list(changing: Served) -> None:
    for _ in range(5):
        changing.read("/api/events")
    asked = [each for each in changing.api.requests if each.path.plural == "events"]
    assert len(asked) == 4  # one for each kind


def test_a_plain_pod_that_waits_is_a_row(changing: Served) -> None:
    changing.do(add_plain_pod, changing.api, "vision", "notebook")
    row = eventually(lambda: changing.rows("pods").get("Pod/vision/notebook"), "the pod is a row")
    assert (row["state"], row["request"], row["kind"]) == ("waiting", "0.5", "Pod")
    assert changing.read("/api/explain/Pod/vision/notebook")["decision"] == "bound"


def test_memory_of_gpushare_is_in_the_unit_of_the_configuration(changing: Served) -> None:
    metadata = {"namespace": "vision", "labels": {"kubeshare.nthu/role": "pod"}}
    pod = manifests.pod("small", {"aliyun.com/gpu-mem": "512"}, metadata=metadata)
    changing.do(changing.api.seed, PODS, pod | {"status": {"phase": "Pending"}})
    eventually(lambda: "Pod/vision/small" in changing.rows("pods"), "the pod is a row")
    configured = {
        "metadata": {"name": configuration.NAME, "namespace": NAMESPACE},
        "data": {configuration.KEY: "gpushare: {memoryUnit: MiB}"},
    }
    changing.do(changing.api.seed, CONFIG_MAPS, configured)
    eventually(
        lambda: changing.rows("pods")["Pod/vision/small"]["memory"] == "512Mi",
        "its memory is in MiB",
    )


def test_what_is_deleted_is_no_row_any_more(changing: Served) -> None:
    changing.do(changing.api.remove, SHAREPODS, "huge", "research")
    eventually(lambda: "SharePod/research/huge" not in changing.rows("pods"), "it is gone")
    for kind, name in ((GPUNODES, "gpu-c"), (NODES, "gpu-c")):
        changing.do(changing.api.remove, kind, name)
    for index in range(4):
        changing.do(changing.api.remove, VGPUS, f"gpu-c-vgpu-c{index}")
    eventually(lambda: "gpu-c" not in changing.rows("nodes"), "the node is gone")


def test_a_form_is_answered_and_nothing_is_written(page: Served) -> None:
    before = page.api.writes
    fits = page.read("/api/what-if", request="0.3", memory="2Gi")
    assert (fits["decision"], fits["created"]) == ("bound", False)
    prompt = page.read("/api/what-if", request="0.3", latencySensitive="true")
    assert prompt["decision"] == "bound"
    never = page.read("/api/what-if", request="0.5", memory="8Gi", model="H100")
    assert never["decision"] == "rejected"
    full = page.read("/api/what-if", request="1", count="9")
    assert full["decision"] != "bound"
    over = page.read("/api/what-if", request="1", count="2", namespace="research")
    assert over["reasons"]["quota"].startswith("GPUQuota gpus is 2 Tesla V100-SXM2-16GB GPUs")
    assert page.api.writes == before
    assert {each.verb for each in page.api.requests} <= {"get", "list", "watch"}


@pytest.mark.parametrize(
    ("query", "field", "words"),
    [
        ({}, "request", "is missing"),
        ({"request": "-1"}, "spec.gpu.request", ""),
        ({"request": "0.5", "limit": "0.2"}, "spec.gpu.request", "more than the limit"),
        ({"request": "nan"}, "spec.gpu.request", ""),
        ({"request": "0.5", "memory": "much"}, "spec.gpu.memory", ""),
        ({"request": "0.5", "count": "0"}, "count", "not a number from 1 to 64"),
        ({"request": "0.5", "count": "9" * 99}, "count", "not a number from 1 to 64"),
        ({"request": "0.5", "namespace": "../etc"}, "namespace", "no name of a namespace"),
        ({"request": "0.5", "affinity": "<b>"}, "affinity", "is no label"),
        ({"request": "0.5", "model": "x" * 300}, "model", "longer than 253"),
        ({"image": "a"}, "image", "is not a field"),
        ({"request": "0.5", "latencySensitive": "yes"}, "latencySensitive", "neither true nor"),
    ],
)
def test_a_wrong_value_of_a_form_is_named(
    page: Served, query: dict[str, str], field: str, words: str
) -> None:
    response = page.get("/api/what-if", **query)
    found = response.json()
    if response.status_code == 200:  # the scheduler's rules say so
        assert (found["decision"], found["field"]) == ("rejected", field)
        assert words in found["reasons"][field]
    else:
        assert (response.status_code, found["field"]) == (400, field)
        assert words in found["error"]


@pytest.mark.parametrize(
    ("path", "status", "words"),
    [
        ("/api/nodes/none", 404, "no GPUs are known of a node none"),
        ("/api/nodes/none/topology.svg", 404, "nothing is known of the GPUs of node none"),
        ("/api/pods/SharePod/default/none", 404, "no SharePod default/none asks for a share"),
        ("/api/explain/SharePod/default/none", 404, "none"),
        ("/api/explain/Secret/default/a", 404, "Secret is not a kind to explain"),
        ("/api/none", 404, "Not Found"),
    ],
)
def test_what_is_not_there_is_said(page: Served, path: str, status: int, words: str) -> None:
    found, error = refusal(page, path)
    assert found == status
    assert words in error


def test_names_cannot_leave_their_place_in_a_path(page: Served) -> None:
    assert refusal(page, "/api/explain/SharePod/default/..%2F..%2Fnodes")[0] == 404
    assert page.http.get("/static/..%2Fserver.py").status_code == 404


def test_nothing_but_reading_is_possible(page: Served) -> None:
    for method in ("POST", "PUT", "DELETE", "PATCH"):
        response = page.http.request(method, "/api/tables", headers=page.headers)
        assert response.status_code == 405


def test_an_object_that_cannot_be_read_hides_no_other(changing: Served) -> None:
    odd = {"metadata": {"name": "odd", "namespace": "a"}, "spec": {"gpu": {"request": "0.1"}}}
    changing.do(changing.api.seed, SHAREPODS, odd | {"status": {"gpus": 3}})
    changing.do(add_plain_pod, changing.api, "vision", "notebook")
    eventually(lambda: "Pod/vision/notebook" in changing.rows("pods"), "the pod is a row")
    assert "SharePod/a/odd" not in changing.rows("pods")


def test_an_error_of_the_program_is_one_line(
    page: Served, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def fail(_: object) -> str:
        raise KeyError("x")

    monkeypatch.setattr("kubeshare.web.application.svg", fail)
    response = page.get("/api/nodes/gpu-a/topology.svg")
    assert (response.status_code, response.json()) == (
        500,
        {"error": "internal error: KeyError: 'x'"},
    )
    assert "content-security-policy" in response.headers
    assert "Traceback" not in capfd.readouterr().err


def test_a_question_too_many_is_refused(page: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kubeshare.web.decisions.MOST_WAITING", 0)
    status, words = refusal(page, "/api/what-if", request="0.5")
    assert (status, words) == (503, "many questions are being answered: try again in a moment")


def test_an_api_server_that_fails_is_said_so(changing: Served) -> None:
    changing.do(changing.api.inject, Fault.answer(500), verb="list", resource="events")
    assert refusal(changing, "/api/events")[0] == 502


def test_one_namespace_is_shown_where_that_is_asked() -> None:
    with served(small_cluster(), "research") as page:
        assert {row["namespace"] for row in page.rows("pods").values()} == {"research"}
        gpu = page.read("/api/nodes/gpu-a")["gpus"][0]
        assert [share["name"] for share in gpu["shares"]] == ["train-bert"]
        assert gpu["others"] == {"count": 1, "requestMicros": 300_000, "memoryBytes": 4 << 30}
        assert refusal(page, "/api/events", namespace="serving", name="ranker")[0] == 403
        assert refusal(page, "/api/explain/SharePod/serving/ranker")[0] == 403
        hidden = page.read("/api/nodes/gpu-b")["gpus"][2]
        assert (hidden["gpuid"], hidden["others"]["count"]) == ("", 1)


def test_it_decides_by_the_policy_that_the_scheduler_has_when_it_is_asked() -> None:
    asked = {"request": "0.1", "memory": "1Gi", "model": "NVIDIA A100-SXM4-80GB"}
    server = small_cluster()
    add_vgpu(server, "gpu-c", 1, add_share(server, "a", "x", "0.2", 60, "gpu-c", "vgpu-c1"))
    metadata = {"name": "kubeshare-scheduler", "namespace": NAMESPACE}

    def deployment(*words: str) -> dict[str, Any]:
        containers = [{"name": "scheduler", "command": ["python3", *words]}]
        return {"metadata": metadata, "spec": {"template": {"spec": {"containers": containers}}}}

    with served(server, decides=None) as page:
        found = page.read("/api/what-if", **asked)
        assert found["gpus"] == ["vgpu-c0"]
        assert found["policyNote"].startswith("the placement policy is assumed to be locality")
        page.do(server.seed, DEPLOYMENTS, deployment("--policy", "binpack"))
        found = page.read("/api/what-if", **asked)
        assert found["gpus"] == ["vgpu-c1"]
        assert "policyNote" not in found
        page.do(server.seed, DEPLOYMENTS, deployment("--policy", "ours"))
        status, words = refusal(page, "/api/what-if?request=0.1")
        assert status == 501
        assert "a policy that is not installed here: policy ours" in words


def test_a_policy_that_raises_is_named_in_the_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_policy(tmp_path, monkeypatch, RAISING)
    with served(small_cluster(), decides="house") as page:
        found = page.read("/api/what-if", request="0.1", memory="1Gi")
    assert (found["decision"], found["node"]) == ("pending", None)
    assert found["reasons"]["policy"].startswith(f"{WHO} raised ZeroDivisionError: oh")
