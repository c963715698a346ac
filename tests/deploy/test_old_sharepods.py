"""The CRD of KubeShare 1 is replaced under an object of it, on a real API server."""

import base64
import json
import os
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.migrate.published_cluster import CRD, OLD_STATUS, Raw, old_crd
from kubeshare.lab.control_plane.api_server import ApiServer, local_api_server, wait_until
from kubeshare.lab.errors import LabError
from kubeshare.lab.progress import Progress

pytestmark = pytest.mark.apiserver

PAGE = (Path(__file__).parents[2] / "docs/from-kubeshare.md").read_text()
KEY = "/registry/apiextensions.k8s.io/customresourcedefinitions/"
OBJECT = "/registry/kubeshare.nthu/sharepods/default/a"
SHAREPOD = {
    "apiVersion": "kubeshare.nthu/v1",
    "kind": "SharePod",
    "metadata": {
        "name": "a",
        "namespace": "default",
        "annotations": {
            "kubeshare/gpu_request": "0.5",
            "kubeshare/gpu_limit": "1.0",
            "kubeshare/gpu_mem": "3145728000",
            "kubeshare/GPUID": "abcde",
        },
    },
    "spec": {"nodeName": "n1", "containers": [{"name": "main", "image": "i", "tty": True}]},
    "status": OLD_STATUS,
}


@pytest.fixture
def before() -> Iterator[ApiServer]:
    """An API server of its own: the shared one has this version's kinds."""
    with local_api_server(Progress()) as server:
        _store_old_crd(server)
        wait_until(lambda: _creates(server), "version 1's kind to be served")
        yield server


def etcd(server: ApiServer, call: str, **fields: str) -> Raw:
    """Ask etcd by its gateway; keys and values are base64."""
    coded = {name: base64.b64encode(text.encode()).decode() for name, text in fields.items()}
    url = f"http://127.0.0.1:{server.settings.etcd_port}/v3/kv/{call}"
    request = urllib.request.Request(url, json.dumps(coded).encode())
    with urllib.request.urlopen(request, timeout=30) as answer:
        found: Raw = json.load(answer)
    return found


def stored_status(server: ApiServer) -> Raw:
    """The status of the SharePod as etcd has it: what is read has only what the schema has."""
    [found] = etcd(server, "range", key=OBJECT)["kvs"]
    status: Raw = json.loads(base64.b64decode(found["value"]))["status"]
    return status


def _store_old_crd(server: ApiServer) -> None:
    """Past the API server, which refuses since Kubernetes 1.22 to create one without a schema."""
    conditions = [
        {"type": "Established", "status": "True", "reason": "InitialNamesAccepted", "message": ""},
        {"type": "NamesAccepted", "status": "True", "reason": "NoConflicts", "message": ""},
    ]
    crd = old_crd()
    metadata = crd["metadata"] | {"uid": "5c1d0c5e-9a4f-4b8e-8a55-5a0e8b2f0c11"}
    metadata["creationTimestamp"] = "2021-05-26T00:00:00Z"
    names = crd["spec"]["names"]
    status = crd["status"] | {"acceptedNames": names, "conditions": conditions}
    head = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"}
    value = json.dumps(head | crd | {"metadata": metadata, "status": status})
    etcd(server, "put", key=KEY + CRD, value=value)


def _creates(server: ApiServer) -> bool:
    try:
        server.kubectl("create", "-f", "-", stdin=json.dumps(SHAREPOD))
    except LabError:
        return False
    return True


def run(server: ApiServer, commands: str, expected: int = 0) -> str:
    """Run commands of the page as the administrator of a cluster; returns what they print."""
    folders = (Path(sys.executable).parent, server.programs)
    path = os.pathsep.join([*map(str, folders), os.environ["PATH"]])
    done = subprocess.run(
        ["bash", "-ec", commands],
        env=os.environ | {"PATH": path, "KUBECONFIG": str(server.kubeconfig)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == expected, done.stderr
    return done.stdout


def sharepod(server: ApiServer) -> Raw:
    found: Raw = json.loads(server.kubectl("get", "shp", "a", "-o", "json"))
    return found


def test_the_crd_is_replaced_under_an_old_object_by_the_commands_of_the_page(
    before: ApiServer,
) -> None:
    plan, apply, install, back, remove = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
    assert stored_status(before) == OLD_STATUS
    uid = sharepod(before)["metadata"]["uid"]
    planned = run(before, plan)
    assert "1. replace the CRD; 1 SharePods stay" in planned
    assert f"2. drop {', '.join(OLD_STATUS)} from the status of 1 SharePods" in planned

    assert "next: kubeshare install" in run(before, apply)
    run(before, apply)
    crd = json.loads(before.kubectl("get", "crd", CRD, "-o", "json"))
    assert not crd["spec"].get("preserveUnknownFields")
    assert crd["status"]["storedVersions"] == ["v1"]
    assert stored_status(before) == {}
    assert sharepod(before)["metadata"]["uid"] == uid
    assert sharepod(before)["spec"] == SHAREPOD["spec"]

    before.kubectl("annotate", "shp", "a", "kubeshare/gpu_limit=0.9", "--overwrite")
    wait_until(lambda: _is_pruned(before), "the schema to be in force")
    assert sharepod(before)["metadata"]["annotations"]["kubeshare/gpu_limit"] == "0.9"

    assert "kubeshare install" in install
    before.kubectl("create", "serviceaccount", "kubeshare-scheduler", "-n", "kube-system")
    assert f"the CRD {CRD} takes any status again" in run(before, back)
    wait_until(lambda: _keeps_port(before), "the former status to be kept")
    run(before, remove)


def _write_status(server: ApiServer, status: Raw, *options: str) -> None:
    body = json.dumps({"status": status})
    server.kubectl("patch", "shp", "a", "--type=merge", "-p", body, *options)


def _is_pruned(server: ApiServer) -> bool:
    try:
        status = {"phase": "Running", "PodManagerPort": 50051}
        _write_status(server, status, "--subresource=status")
    except LabError:
        return False  # there is no such subresource yet
    return bool(sharepod(server)["status"] == {"phase": "Running"})


def _keeps_port(server: ApiServer) -> bool:
    _write_status(server, {"PodManagerPort": 50052})
    return bool(sharepod(server)["status"].get("PodManagerPort") == 50052)
