"""The page in the cluster: who sees what, and who is let in."""

import asyncio
import json
import ssl
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from fakes.web import small_cluster
from fakes.web.rights import rights
from fakes.web.tokens import HOST, InCluster, TokenApiServer, served_in_cluster
from kubeshare.kube.certificates import Certificates
from kubeshare.kube.client.errors import UnreachableError
from kubeshare.lab.control_plane.certificates import Authority
from kubeshare.web.__main__ import main
from kubeshare.web.in_cluster import session
from kubeshare.web.in_cluster.program import token_client
from kubeshare.web.in_cluster.session import MOST_STREAMS
from kubeshare.web.in_cluster.viewer import MOST_NAMESPACES, home_of, user_of

USERS = {
    "all": "admin",
    "ann": "ann",
    "bob": "system:serviceaccount:serving:bob",
    "none": "nobody",
}


def api_server() -> TokenApiServer:
    """Of the small cluster: `ann` may see research, `bob` serving, and `none` nothing."""
    api = TokenApiServer(small_cluster(), dict(USERS))
    api.allow("ann", rights("research"))
    api.allow("bob", rights("serving"))
    api.allow("none", rights("nowhere"))
    return api


@pytest.fixture(scope="module")
def page() -> Iterator[InCluster]:
    """The page, which no test changes."""
    with served_in_cluster(api_server()) as found:
        yield found


def test_each_viewer_sees_what_their_token_may_list(page: InCluster) -> None:
    everything = page.get("all", "/api/tables").json()
    assert (everything["viewer"], everything["namespaces"]) == ("admin", None)
    assert len(everything["tables"]["nodes"]) == 3
    for token, own, others in (("ann", "research", "serving"), ("bob", "serving", "research")):
        found = page.get(token, "/api/tables", *([own] if token == "ann" else []))
        assert found.json()["namespaces"] == [own]
        assert f"SharePod/{own}/" in found.text
        assert f"{others}/" not in found.text
        assert "vision/" not in found.text


@pytest.mark.parametrize("namespaces", [(), ("research",), ("research", "serving", "vision")])
def test_a_token_without_rights_sees_nothing_of_others(
    page: InCluster, namespaces: tuple[str, ...]
) -> None:
    found = page.get("none", "/api/tables", *namespaces).json()
    assert found["tables"] == {"nodes": [], "pods": [], "quotas": []}
    assert {"vgpus", "gpunodes", "nodes", "pods", "sharepods"} <= set(found["refused"])
    for path, status in (
        ("/api/nodes/gpu-a", 404),
        ("/api/nodes/gpu-a/topology.svg", 404),
        ("/api/pods/SharePod/research/train-bert", 404),
        ("/api/explain/SharePod/research/train-bert", 403),
        ("/api/what-if?request=0.5", 403),
        ("/api/events", 403),
    ):
        response = page.get("none", path, *namespaces)
        assert response.status_code == status, path
        for stranger in ("ranker", "Tesla", "vgpu-a0", "GPU-gpu"):
            assert stranger not in response.text


def test_a_viewer_who_names_a_namespace_of_others_sees_nothing_there(page: InCluster) -> None:
    found = page.get("ann", "/api/tables", "serving", "research")
    assert found.json()["namespaces"] == ["serving", "research"]
    assert "SharePod/research/train-bert" in found.text
    assert "SharePod/serving/" not in found.text


def test_what_one_viewer_has_read_is_not_shown_to_another(page: InCluster) -> None:
    assert page.get("all", "/api/events").status_code == 200
    assert page.get("none", "/api/events").status_code == 403
    assert page.get("all", "/api/nodes/gpu-a").json()["gpus"][0]["shares"][0]["used"]
    assert page.get("none", "/api/nodes/gpu-a").status_code == 404


@pytest.mark.parametrize(
    "given", ["", "Bearer", "Bearer wrong", "Basic YWxsOmFsbA==", "Bearer all,all", "Bearer a b"]
)
def test_without_a_token_that_the_api_server_knows_nobody_is_let_in(
    page: InCluster, given: str
) -> None:
    for path in ("/api/tables", "/api/stream", "/api/none"):
        response = page.http.get(path, headers={"authorization": given, "host": HOST})
        assert response.status_code == 401
        assert response.json()["signIn"] is True
        unknown = given == "Bearer wrong"
        words = "this token is unknown" if unknown else "sign in with a bearer token"
        assert response.json()["error"].startswith(words)
        assert "gpu-a" not in response.text
    assert page.http.get("/", headers={"host": HOST}).status_code == 200


def test_headers_of_a_proxy_name_nobody(page: InCluster) -> None:
    """Only the token counts, so the page needs no right to impersonate."""
    forged = {"x-remote-user": "admin", "x-remote-group": "system:masters", "host": HOST}
    forged |= {"x-forwarded-user": "admin", "impersonate-user": "admin"}
    assert page.http.get("/api/tables", headers=forged).status_code == 401
    response = page.get("none", "/api/tables", **forged)
    assert response.json()["viewer"] == "nobody"
    assert response.json()["tables"]["pods"] == []


@pytest.mark.parametrize("host", ["127.0.0.1", "evil.example", f"{HOST}.evil.example", ""])
def test_another_name_is_refused(page: InCluster, host: str) -> None:
    for path in ("/", "/api/tables"):
        response = page.http.get(path, headers=page.headers("all") | {"host": host})
        assert response.status_code == 421
        assert response.json()["error"].startswith(f"this page is at {HOST}, not at")


@pytest.mark.parametrize("host", [f"{HOST}:8443", HOST.upper()])
def test_its_own_name_is_accepted(page: InCluster, host: str) -> None:
    assert page.get("all", "/api/tables", host=host).status_code == 200


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_requests_that_other_sites_cause_are_refused(page: InCluster, site: str) -> None:
    """An authenticating proxy would add a token to them, because of its cookie."""
    response = page.get("all", "/api/tables", **{"sec-fetch-site": site})
    assert response.status_code == 403
    own = page.get("all", "/api/tables", **{"sec-fetch-site": "same-origin"})
    assert own.status_code == 200


def test_every_response_has_the_page_s_policy(page: InCluster) -> None:
    for path in ("/", "/api/tables", "/api/none", "/static/js/main.js"):
        for token in ("all", "wrong"):
            headers = page.get(token, path).headers
            assert "default-src 'none'" in headers["content-security-policy"]
            assert headers["x-content-type-options"] == "nosniff"
            assert "access-control-allow-origin" not in headers


@pytest.mark.parametrize(
    ("namespaces", "words"),
    [
        (["../etc"], "../etc is no name of a namespace"),
        (["Research"], "Research is no name"),
        ([f"n{number}" for number in range(MOST_NAMESPACES + 1)], "are more than 16"),
    ],
)
def test_a_namespace_that_cannot_be_is_named(
    page: InCluster, namespaces: list[str], words: str
) -> None:
    response = page.get("all", "/api/tables", *namespaces)
    assert response.status_code == 400
    assert words in response.json()["error"]


def test_nothing_is_written_but_the_question_who_it_is(page: InCluster) -> None:
    for path in ("/api/tables", "/api/events", "/api/nodes/gpu-a", "/api/what-if?request=0.5"):
        page.get("all", path)
    assert page.api.behind.writes == 0
    for method in ("POST", "PUT", "DELETE", "PATCH"):
        response = page.http.request(method, "/api/tables", headers=page.headers("all"))
        assert response.status_code == 405


def test_pages_of_one_viewer_are_bounded(page: InCluster) -> None:
    headers = page.headers("all")
    streams = [page.http.stream("GET", "/api/stream", headers=headers) for _ in range(MOST_STREAMS)]
    opened = [stream.__enter__() for stream in streams]
    try:
        assert {response.status_code for response in opened} == {200}
        refused = page.get("all", "/api/stream")
        assert refused.status_code == 503
        assert refused.json()["error"].startswith("8 pages are open already")
        with page.http.stream("GET", "/api/stream", headers=page.headers("ann")) as other:
            assert other.status_code == 200
    finally:
        for stream in streams:
            stream.__exit__(None, None, None)


def test_an_open_stream_ends_when_the_token_expires(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "CHECK_SECONDS", 0.05)
    with served_in_cluster(api_server()) as page:
        stream = page.http.stream("GET", "/api/stream", headers=page.headers("ann", "research"))
        with stream as response:
            lines = response.iter_lines()
            assert next(lines) == "event: hello"
            page.do(page.api.users.pop, "ann")
            assert not [line for line in lines if "research" in line]  # to its end
        assert page.get("ann", "/api/tables", "research").status_code == 401


def test_it_serves_tls_with_the_certificate_of_a_secret(tmp_path: Path) -> None:
    pair = Authority(tmp_path).identity("page", "page", hosts=("127.0.0.1",))
    certificates = Certificates(pair.certificate, pair.key)
    with served_in_cluster(api_server(), certificates=certificates) as page:
        assert str(page.http.base_url).startswith("https://")
        assert page.get("all", "/api/tables").status_code == 200
        plain = str(page.http.base_url).replace("https", "http")
        with pytest.raises(httpx2.HTTPError):
            httpx2.get(plain, trust_env=False)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([], "--host"),
        (["--host", "a"], "or else --insecure-http"),
        (["--host", "a", "--insecure-http", "--tls-cert", "c", "--tls-key", "k"], "or else"),
        (["--host", "a", "--tls-cert", "c"], "--tls-cert and --tls-key come together"),
        (["--host", "a", "--tls-cert", "/none", "--tls-key", "/none"], "/none: No such file"),
        (["--host", "a", "--insecure-http"], "this is no pod: give --server"),
        (["--host", "a", "--insecure-http", "--server", "ftp://b"], "is no address"),
        (["--host", "a", "--insecure-http", "--ca-file", "/none"], "--ca-file /none: No such"),
        (["--host", "a", "--insecure-http", "--viewers", "0"], "from 1 to 1000"),
        (["--host", "a", "--insecure-http", "--policy", "nearest"], "nearest"),
    ],
)
def test_what_cannot_work_is_refused_at_the_start(
    options: list[str],
    words: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(SystemExit) as caught:
        main(options)
    assert caught.value.code == 2
    assert words in capsys.readouterr().err


def test_a_token_is_sent_to_no_server_without_a_certificate_that_is_trusted(tmp_path: Path) -> None:
    pair = Authority(tmp_path).identity("api", "api", hosts=("127.0.0.1",))
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(pair.certificate, pair.key)
    read = list[bytes]()

    async def receive(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        read.append(await reader.read(65_536))  # of a handshake its first half
        writer.close()

    async def main() -> None:
        for tls in (server, None):
            listening = await asyncio.start_server(receive, "127.0.0.1", 0, ssl=tls)
            url = f"https://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
            async with listening, token_client(url, ssl.create_default_context())("x") as client:
                with pytest.raises(UnreachableError):
                    await user_of(client)

    asyncio.run(main())
    assert not any(b"Bearer" in data for data in read)


@pytest.mark.parametrize(
    ("user", "namespace"),
    [
        ("ann", "default"),
        ("system:serviceaccount:serving:bob", "serving"),
        ("system:serviceaccount:serving", "default"),
        ("system:node:a", "default"),
    ],
)
def test_an_account_without_rights_begins_in_its_own_namespace(user: str, namespace: str) -> None:
    assert home_of(user) == namespace


def test_the_token_is_in_no_log(capfd: pytest.CaptureFixture[str]) -> None:
    with served_in_cluster(api_server()) as page:
        page.get("ann", "/api/tables", "research")
        page.get("secret-and-wrong", "/api/tables")
    said = capfd.readouterr()
    assert "secret-and-wrong" not in json.dumps([said.out, said.err])
