"""The API server queues KubeShare's requests apart from those of other service accounts."""

import ssl
import urllib.error
import urllib.request
from functools import partial

import pytest
import yaml

from kubeshare.install import manifests
from kubeshare.lab.control_plane.api_server import ADMIN, ApiServer, wait_until

pytestmark = pytest.mark.apiserver

KINDS = {"PriorityLevelConfiguration", "FlowSchema"}
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kubeshare-system/leases/any"
PODS = "/api/v1/pods?limit=1"


@pytest.fixture(scope="module")
def server(apiserver: ApiServer) -> ApiServer:
    """The API server with the manifests of flow control in force."""
    ours = [each for each in manifests.load(manifests.Options()) if each["kind"] in KINDS]
    apiserver.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(ours))
    scheduler = account("kubeshare-scheduler")
    for path, schema in ((LEASES, "kubeshare-leases"), (PODS, "kubeshare")):
        in_force = partial(is_schema_of, apiserver, scheduler, path, schema)
        wait_until(in_force, f"FlowSchema {schema}")
    return apiserver


def account(name: str, namespace: str = "kubeshare-system") -> str:
    return f"system:serviceaccount:{namespace}:{name}"


def is_schema_of(server: ApiServer, user: str, path: str, schema: str) -> bool:
    """Whether the API server uses a FlowSchema for a request."""
    admin = server.authority.identity("admin", *ADMIN)
    context = ssl.create_default_context(cafile=str(server.authority.certificate))
    context.load_cert_chain(admin.certificate, admin.key)
    headers = {"Impersonate-User": user, "Impersonate-Group": "system:serviceaccounts"}
    request = urllib.request.Request(server.settings.url + path, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=30, context=context) as answer:
            uid = answer.headers["X-Kubernetes-PF-FlowSchema-UID"]
    except urllib.error.HTTPError as refused:  # it is queued before it is authorized
        uid = refused.headers["X-Kubernetes-PF-FlowSchema-UID"]
    known = server.get(f"/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas/{schema}")
    return bool(uid == known["metadata"]["uid"])


@pytest.mark.parametrize("name", ["scheduler", "device-manager", "extender", "node-agent"])
def test_our_programs_have_a_level_of_their_own(server: ApiServer, name: str) -> None:
    assert is_schema_of(server, account(f"kubeshare-{name}"), PODS, "kubeshare")


@pytest.mark.parametrize("name", ["scheduler", "device-manager"])
def test_leases_are_queued_with_elections_of_kubernetes(server: ApiServer, name: str) -> None:
    assert is_schema_of(server, account(f"kubeshare-{name}"), LEASES, "kubeshare-leases")


def test_accounts_of_these_names_elsewhere_are_queued_with_all_others(server: ApiServer) -> None:
    other = account("kubeshare-scheduler", "default")
    assert is_schema_of(server, other, PODS, "service-accounts")
    assert is_schema_of(server, other, LEASES, "service-accounts")


def test_the_levels_of_the_schemas_exist(server: ApiServer) -> None:
    for schema in ("kubeshare", "kubeshare-leases"):
        found = server.get(f"/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas/{schema}")
        [dangling] = [each for each in found["status"]["conditions"] if each["type"] == "Dangling"]
        assert dangling["status"] == "False", schema
