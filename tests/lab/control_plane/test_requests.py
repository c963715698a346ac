"""Requests to an API server share a connection until the server closes it."""

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TypeAlias

import pytest

from deadlines import DEADLINE_S
from kubeshare.lab.control_plane.certificates import Authority
from kubeshare.lab.control_plane.requests import Requests

HOST = "127.0.0.1"


class Server(ThreadingHTTPServer):
    """Counts the connections that began, and those that it closed."""

    def __init__(self, handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__((HOST, 0), handler)
        self.begun = 0
        self.closed = threading.Semaphore(0)

    def process_request(self, request: object, client_address: object) -> None:
        self.begun += 1
        super().process_request(request, client_address)  # type: ignore[arg-type]

    def shutdown_request(self, request: socket.socket | tuple[bytes, socket.socket]) -> None:
        super().shutdown_request(request)
        self.closed.release()


class Answers(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_: object) -> None:
        """Print nothing."""


class AnswersOnce(Answers):
    """Closes the connection after each answer, and does not say so before."""

    def do_POST(self) -> None:
        super().do_POST()
        self.close_connection = True


Serving: TypeAlias = Callable[
    [type[BaseHTTPRequestHandler]], AbstractContextManager[tuple[Server, Requests]]
]


@pytest.fixture
def serving(tmp_path: Path) -> Serving:
    authority = Authority(tmp_path)
    own = authority.identity("server", "server", hosts=(HOST,))
    user = authority.identity("user", "user")

    @contextmanager
    def serve(handler: type[BaseHTTPRequestHandler]) -> Iterator[tuple[Server, Requests]]:
        server = Server(handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(own.certificate, own.key)
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        url = f"https://{HOST}:{server.server_address[1]}"
        requests = Requests(url, authority.certificate, user.certificate, user.key)
        try:
            yield server, requests
        finally:
            requests._drop()
            server.shutdown()
            thread.join()
            server.server_close()

    return serve


def test_writes_share_a_connection(serving: Serving) -> None:
    with serving(Answers) as (server, requests):
        assert [requests.send("POST", "/", {}) for _ in range(3)] == [{}] * 3
        assert server.begun == 1


def test_a_write_takes_a_new_connection_where_the_server_closed_the_kept_one(
    serving: Serving,
) -> None:
    with serving(AnswersOnce) as (server, requests):
        for _ in range(3):
            assert requests.send("POST", "/", {}) == {}
            assert server.closed.acquire(timeout=DEADLINE_S)
        assert server.begun == 3
