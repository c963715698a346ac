"""The page in the cluster, installed by the chart's values, shows each viewer what they may see."""

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.helm import Helm
from e2e.booting import space_in
from e2e.space import REST, Space
from e2e.stage import Raw, Stage, eventually
from kubeshare.api.types.constants import NAMESPACE
from kubeshare.lab.control_plane.certificates import Authority
from kubeshare.lab.images import binaries
from kubeshare.lab.progress import Progress

pytestmark = pytest.mark.lab

HOST = "gpus.example.com"
SECRET = "page-tls"
WHAT_IF = "/api/what-if?request=0.5"
OR_HIDDEN = "asks for a share, or you may not see it"
WHICH = ("deployment/kubeshare-web", "-n", NAMESPACE)
ASK = """
import http.client, json, ssl, sys
authority, asked = sys.argv[1], json.loads(sys.argv[2])
for path, token in asked:
    context = ssl.create_default_context(cadata=authority)
    there = http.client.HTTPSConnection("HOST", context=context)
    there.request("GET", path, headers={"Authorization": f"Bearer {token}"} if token else {})
    answer = there.getresponse()
    print(json.dumps([answer.status, json.load(answer)]))
""".replace("HOST", HOST)


@pytest.fixture(scope="module")
def authority(stage: Stage, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The authority of the page, which the chart has installed in the lab."""
    tmp_path = tmp_path_factory.mktemp("page")
    made = Authority(tmp_path / "certificates")
    pair = made.identity("page", HOST, hosts=(HOST,))
    values = {"enabled": True, "hosts": [HOST], "tlsSecret": SECRET}
    image = {"repository": "kubeshare", "tag": "dev"}
    rendered = Helm(binaries.helm(Progress()), tmp_path).render(image=image, web=values)
    label = "app.kubernetes.io/component"
    objects = [one for one in rendered if one["metadata"].get("labels", {}).get(label) == "web"]
    assert len(objects) == 3
    objects.append(tls_secret(pair.certificate, pair.key))
    stage.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(objects))
    try:
        stage.kubectl("rollout", "status", *WHICH, "--timeout=180s")
        yield made.certificate.read_text()
    finally:
        for one in objects:
            name = one["metadata"]["name"]
            stage.kubectl("delete", one["kind"], name, "-n", NAMESPACE, "--ignore-not-found")


def tls_secret(certificate: Path, key: Path) -> Raw:
    """A Secret of type kubernetes.io/tls."""
    data = {"tls.crt": certificate, "tls.key": key}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": SECRET, "namespace": NAMESPACE},
        "type": "kubernetes.io/tls",
        "data": {name: base64.b64encode(file.read_bytes()).decode() for name, file in data.items()},
    }


@pytest.fixture
def other(stage: Stage) -> Iterator[Space]:
    """A namespace that the viewer may not see."""
    with space_in(stage) as space:
        yield space


class Browser:
    """A pod in the cluster that asks the page by its Service and its name.

    Args:
        space: where it runs.
        authority: in PEM, by which it checks the page's certificate.
    """

    def __init__(self, space: Space, authority: str) -> None:
        self._space, self._authority = space, authority
        service = space.stage.find(f"/api/v1/namespaces/{NAMESPACE}/services", "kubeshare-web")
        assert service is not None
        alias = {"ip": service["spec"]["clusterIP"], "hostnames": [HOST]}
        space.pod("browser", {}, REST, hostAliases=[alias])
        space.until_phase("browser", "Running")

    def ask(self, token: str, *paths: str) -> list[tuple[int, Any]]:
        """The status and the content of each of these paths."""
        asked = json.dumps([[path, token] for path in paths])
        said = self._space.run("browser", "python3", "-c", ASK, self._authority, asked)
        return [(status, content) for status, content in map(json.loads, said.splitlines())]


def token(space: Space, account: str, *roles: str) -> str:
    """A token of a new account, which has these ClusterRoles in its namespace."""
    space.stage.kubectl("create", "serviceaccount", account, "-n", space.name)
    for role in roles:
        subject = f"--serviceaccount={space.name}:{account}"
        of = (f"{account}-{role}", f"--clusterrole={role}", subject, "-n", space.name)
        space.stage.kubectl("create", "rolebinding", *of)
    return space.stage.kubectl("create", "token", account, "-n", space.name).strip()


def test_a_viewer_sees_the_namespace_that_their_token_may_see(
    stage: Stage, space: Space, other: Space, authority: str
) -> None:
    for each, name in ((space, "mine"), (other, "theirs")):
        each.share(name, {"request": "0.4", "affinity": "web"}, REST)
    place = space.ready("mine")
    assert other.ready("theirs") == place
    browser = Browser(space, authority)
    viewer = token(space, "viewer", "view")

    def seen() -> Raw:
        ((status, found),) = browser.ask(viewer, "/api/tables")
        assert status == 200, found
        tables: Raw = found
        return tables if found["tables"]["pods"] else {}

    found = eventually(seen, "the page to show the viewer's SharePod")
    assert found["viewer"] == f"system:serviceaccount:{space.name}:viewer"
    assert found["namespaces"] == [space.name]
    assert [row["name"] for row in found["tables"]["pods"]] == ["mine"]
    theirs = f"{other.name}/theirs"
    own, node, stranger, decision = browser.ask(
        viewer,
        f"/api/pods/SharePod/{space.name}/mine",
        f"/api/nodes/{place.node}",
        f"/api/pods/SharePod/{theirs}",
        WHAT_IF,
    )
    assert (own[0], own[1]["row"]["state"]) == (200, "running")
    assert node[0] == 200
    assert [share["name"] for gpu in node[1]["gpus"] for share in gpu["shares"]] == ["mine"]
    for answer in (found, own, node):
        assert other.name not in json.dumps(answer)
    assert stranger == (404, {"error": f"no SharePod {theirs} {OR_HIDDEN}"})
    assert decision[0] == 403
    assert "you may not list all vgpus, gpunodes, nodes, pods" in decision[1]["error"]


def test_who_may_see_nothing_is_told_so(space: Space, authority: str) -> None:
    space.share("mine", {"request": "0.4"}, REST)
    space.ready("mine")
    browser = Browser(space, authority)
    tables, pod, events, decision = browser.ask(
        token(space, "nobody"),
        "/api/tables",
        f"/api/pods/SharePod/{space.name}/mine",
        "/api/events",
        WHAT_IF,
    )
    assert tables[1]["tables"] == {"nodes": [], "pods": [], "quotas": []}
    assert {"vgpus", "gpunodes", "nodes", "pods", "sharepods"} <= set(tables[1]["refused"])
    assert pod == (404, {"error": f"no SharePod {space.name}/mine {OR_HIDDEN}"})
    assert events[0] == decision[0] == 403
    assert f'{space.name}:nobody" cannot list resource "events"' in events[1]["error"]
    for unknown, words in (("wrong", "this token is unknown"), ("", "sign in with a bearer")):
        ((status, content),) = browser.ask(unknown, "/api/tables")
        assert (status, content["signIn"]) == (401, True)
        assert content["error"].startswith(words)
