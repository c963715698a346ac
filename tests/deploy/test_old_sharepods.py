"""The CRD of KubeShare 1 is replaced under an object of it, on a real API server."""

import asyncio
import base64
import json
import urllib.request
from collections.abc import Iterator

import pytest

from cli.migrate.published_cluster import CRD, OLD_STATUS, Raw, old_crd
from kubeshare.cli.migrate.published.command import perform
from kubeshare.cli.migrate.published.output import formatted
from kubeshare.kube.client.client import Client
from kubeshare.lab.control_plane.api_server import ApiServer, local_api_server, wait_until
from kubeshare.lab.errors import LabError
from kubeshare.lab.progress import Progress

pytestmark = pytest.mark.apiserver

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


def stored(server: ApiServer, key: str) -> str:
    [found] = etcd(server, "range", key=key)["kvs"]
    return base64.b64decode(found["value"]).decode()


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


def migrate(server: ApiServer, mode: str) -> tuple[Raw, int]:
    async def run() -> tuple[str, Raw, int]:
        async with Client.connect(str(server.kubeconfig)) as client:
            return formatted(await perform(client, mode, lambda _: None))

    _, fields, code = asyncio.run(run())
    return fields, code


def test_the_crd_is_replaced_under_an_old_object_which_is_read_and_updated(
    before: ApiServer,
) -> None:
    assert "PodManagerPort" in stored(before, OBJECT)
    uid = before.kubectl("get", "shp", "a", "-o", "jsonpath={.metadata.uid}")
    planned, code = migrate(before, "plan")
    assert code == 0
    assert planned["sharepods"][0]["oldStatus"] == list(OLD_STATUS)
    assert planned["steps"][0] == "replace the CRD; 1 SharePods stay"

    applied, code = migrate(before, "apply")
    assert (code, applied["steps"], applied["storedVersions"]) == (0, [], ["v1"])
    crd = json.loads(before.kubectl("get", "crd", CRD, "-o", "json"))
    assert not crd["spec"].get("preserveUnknownFields")
    wait_until(
        lambda: "PodManagerPort" not in before.kubectl("get", "shp", "a", "-o", "json"), "it"
    )
    assert "PodManagerPort" not in stored(before, OBJECT)
    found = json.loads(before.kubectl("get", "shp", "a", "-o", "json"))
    assert found["metadata"]["uid"] == uid
    assert found["spec"] == SHAREPOD["spec"]

    before.kubectl("annotate", "shp", "a", "kubeshare/gpu_limit=0.9", "--overwrite")
    status = json.dumps({"status": {"phase": "Running"}})
    before.kubectl("patch", "shp", "a", "--subresource=status", "--type=merge", "-p", status)
    found = json.loads(before.kubectl("get", "shp", "a", "-o", "json"))
    assert found["metadata"]["annotations"]["kubeshare/gpu_limit"] == "0.9"
    assert found["status"] == {"phase": "Running"}
    assert migrate(before, "apply")[1] == 0
