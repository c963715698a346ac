"""Who may ask the server of `kubeshare web`, and what its responses allow a browser."""

import contextlib
import socket
import subprocess
import sys

import httpx2
import pytest

from deadlines import DEADLINE_S
from fakes.web import Served
from kubeshare.web import protocol
from kubeshare.web.server import PortTakenError, listen


@pytest.mark.parametrize("given", ["", "Bearer", "Bearer wrong", "Basic dXNlcjpwYXNz", "Bearer é"])
def test_without_the_token_nothing_is_said_about_the_cluster(page: Served, given: str) -> None:
    headers = httpx2.Headers({"authorization": given}, encoding="utf-8")
    for path in ("/api/tables", "/api/stream", "/api/nodes/gpu-a", "/api/none"):
        response = page.http.get(path, headers=headers)
        assert response.status_code == 401
        assert response.json() == {
            "error": "open the whole URL that `kubeshare web` printed: its token is missing"
        }


def test_the_token_in_a_query_counts_for_nothing(page: Served) -> None:
    token = page.headers["authorization"].split()[1]
    assert page.http.get("/api/tables", params={"token": token}).status_code == 401


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example:80", "", "10.0.0.1", "a:b"]
)
def test_a_site_whose_name_points_here_is_refused(page: Served, host: str) -> None:
    for path in ("/", "/api/tables", "/static/style.css"):
        response = page.http.get(path, headers={**page.headers, "host": host})
        assert response.status_code == 421
        assert "not at" in response.json()["error"]


@pytest.mark.parametrize("host", ["localhost:8080", "127.0.0.1", "[::1]:9", "LOCALHOST"])
def test_the_names_of_this_machine_are_accepted_also_through_a_forwarded_port(
    page: Served, host: str
) -> None:
    response = page.http.get("/api/tables", headers={**page.headers, "host": host})
    assert response.status_code == 200


@pytest.mark.parametrize("path", ["/", "/static/js/main.js", "/api/tables", "/none"])
def test_every_response_has_a_strict_policy(page: Served, path: str) -> None:
    headers = page.http.get(path, headers=page.headers).headers
    policy = dict(part.split(" ", 1) for part in headers["content-security-policy"].split("; "))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert policy["frame-ancestors"] == policy["form-action"] == policy["base-uri"] == "'none'"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cross-origin-resource-policy"] == "same-origin"
    assert "access-control-allow-origin" not in headers
    assert "server" not in headers


def test_the_page_loads_only_its_own_files_and_has_no_inline_script_or_style(page: Served) -> None:
    html = page.http.get("/").text
    assert "style=" not in html
    assert "<script type" in html
    assert html.count("<script") == html.count("></script>")
    assert "http:" not in html
    assert "https:" not in html


def test_a_file_that_the_browser_has_is_not_sent_again(page: Served) -> None:
    path = "/static/style.css"
    etag = page.http.get(path).headers["etag"]
    assert page.http.get(path, headers={"if-none-match": etag}).status_code == 304


@pytest.mark.parametrize("before", [b"", b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n"])
def test_who_does_not_finish_a_request_is_cut_off(
    page: Served, before: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "HEAD_SECONDS", 0.05)
    with socket.create_connection(("127.0.0.1", page.http.base_url.port or 0)) as slow:
        slow.settimeout(DEADLINE_S)
        slow.sendall(before + b"GET /api/tables HTTP/1.1\r\nhost: ")
        with contextlib.suppress(ConnectionResetError):  # what it sent was never read
            while slow.recv(65_536):
                pass


def test_only_this_machine_is_listened_to() -> None:
    with listen(0) as listener:
        assert listener.getsockname()[0] == "127.0.0.1"


def test_a_port_that_is_taken_is_named_with_what_to_do() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        words = f"port {port} of 127.0.0.1 cannot be used .*--port 0"
        with pytest.raises(PortTakenError, match=words), listen(port):
            pass


def test_the_command_s_help_loads_no_server() -> None:
    program = (
        "import sys; from kubeshare.cli.main import main; main(['web', '--help']); "
        "sys.exit(any(name in sys.modules for name in ('starlette', 'uvicorn', 'lightkube')))"
    )
    subprocess.run([sys.executable, "-c", program], check=True, stdout=subprocess.DEVNULL)
