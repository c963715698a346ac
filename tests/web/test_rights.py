"""What users see whose rights are for some namespaces only."""

import pytest

from deadlines import eventually
from fakes import manifests
from fakes.web import Served, served, small_cluster
from fakes.web.cluster import add_plain_pod, add_share, add_vgpu
from fakes.web.rights import rights
from kubeshare.api.types.v1 import VGPUS
from kubeshare.explain.errors import NotInstalledError
from kubeshare.kube.client.errors import UnreachableError
from kubeshare.kube.resources import PODS
from kubeshare.simulator.control import FakeApiServer, Fault


def test_a_user_of_one_namespace_sees_their_own_shares_alone() -> None:
    with served(small_cluster(), rights=rights("research"), home="research") as page:
        found = page.read("/api/tables")
        assert found["namespaces"] == ["research"]
        assert {"vgpus", "gpunodes", "nodes"} <= set(found["refused"])
        text = page.get("/api/tables").text
        for stranger in ("serving/", "vision/", "ranker", "detector"):
            assert stranger not in text
        [node] = found["tables"]["nodes"]
        assert (node["id"], node["state"]) == ("gpu-a", "Unknown")
        assert [gpu["state"] for gpu in node["gpus"]] == ["partly seen"] * 2
        gpu = page.read("/api/nodes/gpu-a")["gpus"][0]
        assert [share["name"] for share in gpu["shares"]] == ["train-bert"]
        assert gpu["shares"][0]["used"]["share"] == "0.6"
        waits = next(row for row in found["tables"]["pods"] if row["name"] == "huge")
        assert "no GPU has room" in waits["message"]


def test_their_rows_follow_what_changes() -> None:
    with served(small_cluster(), rights=rights("research"), home="research") as page:
        page.do(add_share, page.api, "research", "new", "0.1", 1, "gpu-c", "vgpu-c1")

        def nodes() -> list[str]:
            found = page.read("/api/tables")
            return [row["id"] for row in found["tables"]["nodes"]]

        eventually(lambda: "gpu-c" in nodes(), "the node of the new SharePod is a row")


def test_shares_of_their_plain_pods_are_beside_those_of_their_sharepods() -> None:
    server = small_cluster()
    add_plain_pod(server, "research", "notebook", "gpu-a", "vgpu-a0")
    add_plain_pod(server, "serving", "other", "gpu-a", "vgpu-a0")
    with served(server, rights=rights("research"), home="research") as page:
        gpu = page.read("/api/nodes/gpu-a")["gpus"][0]
        assert (gpu["gpuid"], gpu["uuid"]) == ("vgpu-a0", "GPU-gpu-a-0")
        assert [share["name"] for share in gpu["shares"]] == ["notebook", "train-bert"]
        page.do(server.remove, PODS, "notebook", "research")

        def shares() -> int:
            return int(page.rows("nodes")["gpu-a"]["gpus"][0]["holders"])

        eventually(lambda: shares() == 1, "the share of the pod that was deleted is gone")


def test_who_may_see_the_gpus_sees_how_much_others_have_and_not_who() -> None:
    user = rights("research", cluster=True)
    with served(small_cluster(), rights=user, home="research") as page:
        found = page.read("/api/tables")
        assert found["refused"][0] == "pods of other namespaces"
        assert [row["id"] for row in found["tables"]["nodes"]] == ["gpu-a", "gpu-b", "gpu-c"]
        text = page.get("/api/nodes/gpu-a").text
        assert "ranker" not in text
        gpu = page.read("/api/nodes/gpu-a")["gpus"][0]
        assert gpu["others"] == {"count": 1, "requestMicros": 300_000, "memoryBytes": 4 << 30}


def test_a_decision_that_depends_on_what_they_may_not_see_is_not_computed() -> None:
    with served(small_cluster(), rights=rights("research"), home="research") as page:
        for path in ("/api/explain/SharePod/research/huge", "/api/what-if?request=0.5"):
            response = page.get(path)
            assert response.status_code == 403
            words = "you may not list all vgpus, gpunodes, nodes, pods"
            assert words in response.json()["error"]
        for path in (
            "/api/explain/SharePod/serving/ranker",
            "/api/events?namespace=serving&name=a",
        ):
            response = page.get(path)
            assert (response.status_code, response.json()["error"]) == (
                403,
                "you may not see namespace serving",
            )


def test_no_request_asks_for_more_than_the_user_may() -> None:
    """Only the questions whether they may: no watch is tried over and over."""
    user = rights("research")
    with served(small_cluster(), rights=user, home="research") as page:
        for path in ("/api/tables", "/api/events", "/api/nodes/gpu-a", "/api/stream"):
            with page.http.stream("GET", path, headers=page.headers) as response:
                assert response.status_code == 200
        assert {each.verb for each in user.refused} == {"list"}
        assert {each.resource for each in user.refused} <= {
            *("sharepods", "vgpus", "gpunodes", "nodes", "pods", "configmaps"),
        }


def test_a_cluster_without_kubeshare_is_said_so() -> None:
    server = FakeApiServer()
    server.inject(Fault.answer(404), verb="list", resource="sharepods")
    with pytest.raises(NotInstalledError, match="`kubeshare install`"), served(server):
        pass


def test_a_cluster_that_cannot_be_reached_is_said_so() -> None:
    server = FakeApiServer()
    server.down = True
    with pytest.raises(UnreachableError), served(server):
        pass


def test_a_vgpu_that_only_others_use_does_not_show_the_gpuid_that_they_chose() -> None:
    server = small_cluster()
    add_vgpu(server, "gpu-c", 1, add_share(server, "vision", "x", "0.1", 1, "gpu-c", "secret"))
    user = rights("research", cluster=True)
    with served(server, rights=user, home="research") as page:
        gpus = page.read("/api/nodes/gpu-c")["gpus"]
        assert [gpu["gpuid"] for gpu in gpus] == ["", "", "vgpu-c2", "vgpu-c3"]


def test_a_vgpu_without_a_known_gpu_has_no_label_that_a_stranger_chose() -> None:
    server = small_cluster()
    held = add_share(server, "vision", "x", "0.1", 1, "gpu-c", "chosen")
    unknown = manifests.vgpu("made", "gpu-c", held, phase="Creating", gpuid="chosen")
    server.seed(VGPUS, unknown)

    def labels(page: Served) -> tuple[str, str]:
        row = page.rows("nodes")["gpu-c"]["gpus"][-1]
        shown = page.read("/api/nodes/gpu-c")["gpus"][-1]
        assert shown["row"]["label"] == row["label"]
        return row["label"], shown["gpuid"]

    with served(server) as page:
        assert labels(page) == ("chosen", "chosen")
    with served(server, rights=rights("research", cluster=True), home="research") as page:
        assert labels(page) == ("vGPU of others", "")
        assert "chosen" not in page.get("/api/tables").text + page.get("/api/nodes/gpu-c").text
