"""The page in the cluster before a real API server: its tokens, and its RBAC."""

import ssl
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
import yaml

from deadlines import eventually
from fakes.web.serving import Ready, browsing, in_thread
from kubeshare.core.policies import policy
from kubeshare.install import manifests
from kubeshare.lab.control_plane.api_server import ApiServer
from kubeshare.web.in_cluster import session
from kubeshare.web.in_cluster.program import Settings, serve, token_client

pytestmark = pytest.mark.apiserver

Raw = dict[str, Any]
OWN, OTHER = "web-own", "web-other"
ROLES = "rbac.authorization.k8s.io"


def _objects() -> Iterator[Raw]:
    """Two namespaces with a SharePod each, and an account that may view one of them."""
    for namespace in (OWN, OTHER):
        yield {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
        metadata = {"name": f"in-{namespace}", "namespace": namespace}
        spec: Raw = {"gpu": {"request": "0.5", "memory": "1Gi"}}
        spec |= {"containers": [{"name": "main", "image": "train:1"}]}
        yield {
            "apiVersion": "kubeshare.nthu/v1",
            "kind": "SharePod",
            "metadata": metadata,
            "spec": spec,
        }
    viewer = {"name": "viewer", "namespace": OWN}
    yield {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": viewer}
    rules = [{"apiGroups": ["kubeshare.nthu"], "resources": ["*"], "verbs": ["list", "watch"]}]
    yield {"apiVersion": f"{ROLES}/v1", "kind": "Role", "metadata": viewer, "rules": rules}
    yield {
        "apiVersion": f"{ROLES}/v1",
        "kind": "RoleBinding",
        "metadata": viewer,
        "roleRef": {"apiGroup": ROLES, "kind": "Role", "name": "viewer"},
        "subjects": [{"kind": "ServiceAccount"} | viewer],
    }


@pytest.fixture
def page(apiserver: ApiServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[httpx2.Client]:
    """The page, which checks tokens ten times a second."""
    kinds = [one for one in manifests.load(manifests.Options()) if "Definition" in one["kind"]]
    apiserver.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(kinds))
    apiserver.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=180s")
    apiserver.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(_objects()))
    monkeypatch.setattr(session, "CHECK_SECONDS", 0.1)
    context = ssl.create_default_context(cafile=apiserver.authority.certificate)
    connect = token_client(apiserver.settings.url, context)
    settings = Settings(hosts=("127.0.0.1",), port=0, health_port=None)

    async def main(ready: Ready) -> None:
        await serve(
            connect,
            policy("locality"),
            settings,
            lambda port, server: ready(f"http://127.0.0.1:{port}", server),
            "127.0.0.1",
        )

    with in_thread(main) as (url, _), browsing(url) as http:
        yield http
    for namespace in (OWN, OTHER):
        apiserver.kubectl("delete", "shp", "--all", "-n", namespace, "--wait=false")


def token_of(apiserver: ApiServer) -> str:
    path = f"/api/v1/namespaces/{OWN}/serviceaccounts/viewer/token"
    made = apiserver.send("POST", path, {"spec": {"expirationSeconds": 600}})
    return str(made["status"]["token"])


def test_a_token_shows_what_its_account_may_list_until_it_is_invalid(
    apiserver: ApiServer, page: httpx2.Client
) -> None:
    headers = {"authorization": f"Bearer {token_of(apiserver)}"}
    found = page.get("/api/tables", headers=headers)
    assert found.status_code == 200, found.text
    assert found.json()["viewer"] == f"system:serviceaccount:{OWN}:viewer"
    assert found.json()["namespaces"] == [OWN]
    assert [row["name"] for row in found.json()["tables"]["pods"]] == [f"in-{OWN}"]
    named = page.get("/api/tables", headers=headers | {"kubeshare-namespaces": f"{OTHER} {OWN}"})
    assert f"in-{OWN}" in named.text
    assert f"in-{OTHER}" not in named.text
    with page.stream("GET", "/api/stream", headers=headers) as response:
        lines = response.iter_lines()
        assert next(lines) == "event: hello"
        apiserver.kubectl("delete", "serviceaccount", "viewer", "-n", OWN)
        assert not [line for line in lines if OTHER in line]  # to its end

    def refused() -> bool:
        return page.get("/api/tables", headers=headers).status_code == 401

    eventually(refused, "the token of the deleted account is refused")


def test_unknown_tokens_are_refused(page: httpx2.Client) -> None:
    for token in ("wrong", "eyJhbGciOiJSUzI1NiJ9.e30.c2lnbmF0dXJl"):
        response = page.get("/api/tables", headers={"authorization": f"Bearer {token}"})
        assert (response.status_code, response.json()["signIn"]) == (401, True)
