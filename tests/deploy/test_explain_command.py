"""`kubeshare explain` on a real API server: read as the scheduler reads, and nothing written."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from fakes import manifests as fakes
from kubeshare.cli.main import main
from kubeshare.lab.control_plane.api_server import ApiServer, wait_until
from kubeshare.lab.errors import LabError

pytestmark = pytest.mark.apiserver

NODE = "explained"


@pytest.fixture
def node(cluster: ApiServer) -> Iterator[str]:
    """A node with one free GPU of 16 GiB."""
    gpu = {"uuid": "GPU-0e", "index": 0, "model": "V100", "memoryBytes": 16 << 30}
    manifests = [
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}},
        {
            "apiVersion": "kubeshare.nthu/v1",
            "kind": "GPUNode",
            "metadata": {"name": NODE},
            "spec": {"devices": [gpu]},
        },
    ]
    cluster.kubectl("create", "-f", "-", stdin=yaml.safe_dump_all(manifests))
    status = {
        "allocatable": {"nvidia.com/gpu": "1"},
        "conditions": [{"type": "Ready", "status": "True"}],
    }
    patch = json.dumps({"status": status})
    cluster.kubectl("patch", "node", NODE, "--subresource=status", "--type=merge", "-p", patch)
    patch = json.dumps({"spec": {"taints": None}})
    cluster.kubectl("patch", "node", NODE, "--type=merge", "-p", patch)
    yield NODE
    cluster.kubectl("delete", "node,gpunode", NODE)


def a_sharepod(name: str, **gpu: Any) -> dict[str, Any]:
    spec = {"gpu": {"memory": "1Gi", **gpu}, "containers": [{"name": "main", "image": "train:1"}]}
    return {
        "apiVersion": "kubeshare.nthu/v1",
        "kind": "SharePod",
        "metadata": {"name": name},
        "spec": spec,
    }


def test_it_says_where_a_sharepod_would_go_or_why_it_cannot(
    cluster: ApiServer,
    namespace: str,
    node: str,
    create: Callable[[dict[str, Any]], str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    create(a_sharepod("fits", request="0.5"))
    create(a_sharepod("too-many", request="0.5", count=2))
    options = ["-n", namespace, "--kubeconfig", str(cluster.kubeconfig), "-o", "json"]
    before = cluster.kubectl("get", "shp,vgpu,events", "-A", "-o", "yaml")

    assert main(["explain", "fits", *options]) == 0
    explained = json.loads(capsys.readouterr().out)
    assert (explained["decision"], explained["node"], explained["created"]) == ("bound", node, True)
    assert explained["name"] == f"{namespace}/fits"

    assert main(["explain", "sharepod/too-many", *options]) == 1
    explained = json.loads(capsys.readouterr().out)
    assert (explained["decision"], explained["field"]) == ("rejected", "count")

    assert main(["explain", "nobody", *options]) == 2
    assert f"no SharePod or pod nobody in namespace {namespace}" in capsys.readouterr().err
    assert cluster.kubectl("get", "shp,vgpu,events", "-A", "-o", "yaml") == before


def test_who_may_edit_one_namespace_is_told_what_he_may_not_read_and_nothing_of_others(
    cluster: ApiServer,
    namespace: str,
    editor: Path,
    create: Callable[[dict[str, Any]], str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    create(a_sharepod("mine", request="0.5"))
    vgpu = fakes.vgpu("covert", "explained", gpuid="covert")
    cluster.kubectl("create", "-f", "-", stdin=json.dumps(vgpu))
    try:
        code = main(["explain", "mine", "-n", namespace, "--kubeconfig", str(editor)])
    finally:
        cluster.kubectl("delete", "vgpu", "covert")

    written = capsys.readouterr()
    assert code == 3
    assert "covert" not in written.out + written.err
    assert "Traceback" not in written.out + written.err
    assert "you may not list all vgpus, gpunodes, nodes, pods" in written.err
    assert "ClusterRole kubeshare-explain" in written.err


def test_the_role_for_it_gives_what_it_reads(  # noqa: PLR0917 - fixtures
    cluster: ApiServer,
    namespace: str,
    node: str,
    editor: Path,
    create: Callable[[dict[str, Any]], str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    create(a_sharepod("mine", request="0.5"))
    user, role = f"editor-{namespace}", "kubeshare-explain"
    cluster.kubectl("create", "clusterrolebinding", user, f"--clusterrole={role}", f"--user={user}")

    # Elsewhere a controller makes this a part of the roles view and edit.
    view = ("--clusterrole=system:aggregate-to-view", f"--user={user}", "-n", namespace)
    cluster.kubectl("create", "rolebinding", "view-of-test", *view)

    def may_list(what: str) -> bool:
        try:
            cluster.kubectl("auth", "can-i", "list", what, f"--as={user}", "-n", namespace)
        except LabError:
            return False
        return True

    wait_until(lambda: may_list("nodes") and may_list("resourcequotas"), "the rights")
    options = ["-n", namespace, "--kubeconfig", str(editor), "-o", "json"]
    try:
        code = main(["explain", "mine", *options])
    finally:
        cluster.kubectl("delete", "clusterrolebinding", user)
    written = capsys.readouterr()
    assert code == 0, written.err
    explained = json.loads(written.out)
    assert explained["node"] == node
    # Here is no scheduler, and the user may know that.
    assert "there is no Deployment kubeshare-scheduler" in explained["policyNote"]
