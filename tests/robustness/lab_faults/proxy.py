"""A proxy before an API server: on the way of one write it lets something go wrong."""

import asyncio
import ctypes
import json
import ssl
import threading
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, Final, NamedTuple

import httpx2

from kubeshare.lab.control_plane.certificates import Authority, KeyPair
from kubeshare.simulator.control import Fault

NOT_COUNTED: Final = ("/leases", "/events")
"""What is written on a timer, or for people only: no point of a life."""
_NETWORK: Final = 0x40000000  # CLONE_NEWNET
_WRITES: Final = ("POST", "PUT", "PATCH", "DELETE")
_HOP_BY_HOP: Final = ("host", "connection", "content-length", "transfer-encoding", "keep-alive")


class Route(NamedTuple):
    """Where one program, or one kind of program, reaches the API server.

    ``client`` has its identity, where the proxy has to show it: a certificate does not pass.
    """

    name: str
    server: asyncio.Server
    client: httpx2.AsyncClient


class Asked(NamedTuple):
    """One request."""

    method: str
    target: str
    headers: list[tuple[str, str]]
    body: bytes

    @property
    def counts(self) -> bool:
        path = self.target.partition("?")[0]
        return self.method in _WRITES and not any(part in path for part in NOT_COUNTED)


class Proxy:
    """Serves each route on a port of its own, in a thread of its own.

    Args:
        authority: what the programs and the API server trust.
        upstream: the API server's URL.
        address: where to listen, as nodes and programs reach it.
        network: the file of the network namespace that has this address; the thread's.

    Attributes:
        writes: how many writes that count have come since :meth:`arm`.
        struck: how many of them met a fault.
    """

    def __init__(self, authority: Authority, upstream: str, address: str, network: Path) -> None:
        self._authority = authority
        self._upstream = upstream
        self._address = address
        self._routes: list[Route] = []
        self._connections: set[asyncio.StreamWriter] = set()
        self._down = False
        self._faults: dict[int, Callable[[str], Fault]] = {}
        self._only: Collection[str] | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, args=[network], daemon=True)
        self._thread.start()
        self.writes = 0
        self.struck = 0

    def stop(self) -> None:
        """Serve no more."""
        self._call(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def add_route(self, name: str, identity: KeyPair | None = None) -> int:
        """Serve a program; returns the port."""
        port: int = self._call(self._listen(name, identity))
        return port

    def arm(
        self,
        writes: Collection[int] = (),
        fault: Callable[[str], Fault] | None = None,
        only: Collection[str] | None = None,
    ) -> None:
        """Count writes anew, and let some of them (from 1) meet a fault.

        Args:
            writes: which.
            fault: given the route of the one who writes, what happens.
            only: the routes whose writes count; None for all.
        """
        self.writes = self.struck = 0
        self._only = only
        self._faults = dict.fromkeys(writes, fault) if fault else {}

    def outage(self, seconds: float) -> None:
        """Break all connections, and take none for a while."""
        self._loop.call_soon_threadsafe(self._go_down, seconds)

    def _run(self, network: Path) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        with network.open() as namespace:
            if libc.setns(namespace.fileno(), _NETWORK) != 0:
                raise OSError(ctypes.get_errno(), f"cannot enter {network}")
        self._loop.run_forever()

    def _call(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(30)

    def _go_down(self, seconds: float) -> None:
        self._down = True
        for writer in tuple(self._connections):
            writer.transport.abort()
        self._loop.call_later(seconds, self._come_back)

    def _come_back(self) -> None:
        self._down = False

    async def _listen(self, name: str, identity: KeyPair | None) -> int:
        trusted = ssl.create_default_context(cafile=str(self._authority.certificate))
        if identity is not None:
            trusted.load_cert_chain(identity.certificate, identity.key)
        client = httpx2.AsyncClient(verify=trusted, base_url=self._upstream, timeout=None)
        pair = self._authority.identity("fault-proxy", "fault-proxy", hosts=(self._address,))
        serving = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        serving.load_cert_chain(pair.certificate, pair.key)

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await self._serve(name, client, reader, writer)

        server = await asyncio.start_server(serve, self._address, 0, ssl=serving, limit=1 << 20)
        self._routes.append(Route(name, server, client))
        return int(server.sockets[0].getsockname()[1])

    async def _close(self) -> None:
        for route in self._routes:
            route.server.close()
        for writer in tuple(self._connections):
            writer.transport.abort()
        for route in self._routes:
            await route.client.aclose()

    async def _serve(
        self,
        name: str,
        client: httpx2.AsyncClient,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._connections.add(writer)
        try:
            while not self._down:
                asked = await _read(reader)
                fault = self._fault(name, asked)
                if fault is None:
                    await _pass_on(client, asked, writer)
                else:
                    await self._faulty(client, asked, fault, reader, writer)
        except (OSError, EOFError, httpx2.HTTPError):
            pass  # whoever was at the other end has gone
        finally:
            self._connections.discard(writer)
            writer.transport.abort()

    def _fault(self, name: str, asked: Asked) -> Fault | None:
        if not asked.counts or (self._only is not None and name not in self._only):
            return None
        self.writes += 1
        make = self._faults.pop(self.writes, None)
        self.struck += make is not None
        return make(name) if make else None

    async def _faulty(
        self,
        client: httpx2.AsyncClient,
        asked: Asked,
        fault: Fault,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        if fault.after or fault.kind == "duplicate":
            await _send(client, asked)
        if fault.action is not None:
            fault.action()
        match fault.kind:
            case "reset":
                writer.transport.abort()
            case "hang":
                await reader.read()
            case "answer":
                _refuse(writer, fault)
            case _:
                await _pass_on(client, asked, writer)


async def _read(reader: asyncio.StreamReader) -> Asked:
    head = await reader.readuntil(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")[:-2]
    method, target, _ = first.split(" ")
    pairs = [line.partition(":") for line in lines]
    headers = [(name.strip().lower(), value.strip()) for name, _, value in pairs]
    length = int(dict(headers).get("content-length", 0))
    body = await reader.readexactly(length) if length else b""
    return Asked(method, target, headers, body)


def _request(client: httpx2.AsyncClient, asked: Asked) -> httpx2.Request:
    headers = [(name, value) for name, value in asked.headers if name not in _HOP_BY_HOP]
    return client.build_request(
        asked.method, asked.target, content=asked.body or None, headers=headers
    )


async def _send(client: httpx2.AsyncClient, asked: Asked) -> None:
    """Send a request, and throw its answer away."""
    await client.send(_request(client, asked))


async def _pass_on(client: httpx2.AsyncClient, asked: Asked, writer: asyncio.StreamWriter) -> None:
    """Send a request, and its answer back as it comes."""
    answer = await client.send(_request(client, asked), stream=True)
    try:
        kept = [
            f"{name}: {value}"
            for name, value in answer.headers.multi_items()
            if name not in _HOP_BY_HOP
        ]
        head = [f"HTTP/1.1 {answer.status_code} -", *kept, "transfer-encoding: chunked"]
        writer.write("\r\n".join([*head, "", ""]).encode("latin-1"))
        async for chunk in answer.aiter_raw():
            if chunk:
                writer.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))
                await writer.drain()
        writer.write(b"0\r\n\r\n")
        await writer.drain()
    finally:
        await answer.aclose()


def _refuse(writer: asyncio.StreamWriter, fault: Fault) -> None:
    status = {
        "apiVersion": "v1",
        "kind": "Status",
        "status": "Failure",
        "code": fault.status,
        "reason": fault.reason,
        "message": "so it was asked for by the proxy",
    }
    body = json.dumps(status).encode()
    head = [
        f"HTTP/1.1 {fault.status} -",
        "content-type: application/json",
        f"content-length: {len(body)}",
        *([f"retry-after: {fault.retry_after}"] if fault.retry_after else []),
    ]
    writer.write("\r\n".join([*head, "", ""]).encode() + body)


def kubeconfig_through(original: Path, target: Path, url: str) -> Path:
    """A copy of a kubeconfig that leads to another server."""
    import yaml  # noqa: PLC0415

    document = yaml.safe_load(original.read_text())
    document["clusters"][0]["cluster"]["server"] = url
    target.write_text(yaml.safe_dump(document))
    target.chmod(0o600)
    return target
