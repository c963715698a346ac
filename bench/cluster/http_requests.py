"""CPU of one API request: the project's HTTP/1.1 path against httpx2 and h11.

``python -m bench.cluster.http_requests`` prints JSON lines; exit code 1 when a goal is missed. A
server in a process of its own answers every request with a SharePod-sized object, over plain
TCP and over TLS on the loopback. All clients send the same requests, interleaved in rounds of one
run, so that other load of the machine disturbs all alike. Counted is the CPU of the client's
process: a controller's loop is bound by it.
"""

import asyncio
import json
import multiprocessing
import ssl
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

import h11
import httpx2

from bench.report import NO_GOAL, Met, at_least, print_machine, report, summarize
from kubeshare.kube.client.connection_pool import ConnectionPool
from kubeshare.kube.client.http_client import DirectClient
from kubeshare.lab.control_plane.certificates import Authority

ROUNDS: Final = 15
REQUESTS: Final = 200
"""Of one client in one round: half reads, half patches."""
GOAL: Final = 1.5
"""The own path is worth its code while httpx2 and h11 need so many times its CPU."""
_ANSWER: Final = json.dumps(
    {"kind": "SharePod", "metadata": {"name": "a", "labels": {"app": "a" * 63}}, "spec": "x" * 2500}
).encode()
_PATCH: Final = json.dumps([{"op": "add", "path": "/status/phase", "value": "y" * 200}]).encode()
_JSON_PATCH: Final = "application/json-patch+json"
_PATH: Final = "/apis/kubeshare.nthu/v1/namespaces/default/sharepods/a"

Send = Callable[[str, str, bytes], Awaitable[bytes]]
"""Sends a request (method, content type, body) and returns the body of the answer."""


def main() -> int:
    """Measure over TCP and over TLS, and compare."""
    print_machine()
    results: list[Met] = []
    with tempfile.TemporaryDirectory() as name:
        authority = Authority(Path(name))
        pair = authority.identity("server", "server", hosts=("127.0.0.1",))
        trusting = ssl.create_default_context(cafile=str(authority.certificate))
        for context, files in ((None, None), (trusting, (str(pair.certificate), str(pair.key)))):
            with _server(files) as port:
                rounds = asyncio.run(_measure(port, context))
                results += _report("TLS" if context else "TCP", rounds)
    return summarize(results)


def _report(network: str, rounds: dict[str, list[float]]) -> list[Met]:
    own = rounds["own path"]
    results = [
        report(f"kube client: CPU of a request, {name}, {network}, us", NO_GOAL, spent)
        for name, spent in rounds.items()
    ]
    for other in ("httpx2", "h11 over asyncio"):
        ratios = [theirs / ours for theirs, ours in zip(rounds[other], own, strict=True)]
        what = f"kube client: CPU of a request, {other} over own path, {network}"
        results.append(report(what, at_least(GOAL), ratios))
    return results


async def _measure(port: int, context: ssl.SSLContext | None) -> dict[str, list[float]]:
    """Microseconds of CPU a request, by client, one number a round."""
    url = f"{'https' if context else 'http'}://127.0.0.1:{port}"
    async with AsyncExitStack() as stack:
        own = DirectClient(ConnectionPool(context), base_url=url, timeout=None)
        pooled = httpx2.AsyncClient(transport=ConnectionPool(context), base_url=url, timeout=None)
        library = httpx2.AsyncClient(verify=context or True, base_url=url, timeout=None)
        for client in (own, pooled, library):
            await stack.enter_async_context(client)
        streams = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        stack.callback(streams[1].close)
        sends = {
            "own path": _through_own_path(own),
            "h11 over asyncio": _through_h11(*streams),
            "own pool under httpx2": _through_httpx(pooled),
            "httpx2": _through_httpx(library),
        }
        found: dict[str, list[float]] = {name: [] for name in sends}
        for number in range(ROUNDS + 1):
            for name, send in sends.items():
                spent = await _round(send)
                if number:  # the first round connects
                    found[name].append(spent)
        return found


async def _round(send: Send) -> float:
    begun = time.process_time()
    for _ in range(REQUESTS // 2):
        assert await send("GET", "", b"") == _ANSWER
        assert await send("PATCH", _JSON_PATCH, _PATCH) == _ANSWER
    return (time.process_time() - begun) / REQUESTS * 1e6


def _through_own_path(client: DirectClient) -> Send:
    async def send(method: str, content_type: str, body: bytes) -> bytes:
        return (await client.send_direct(method, _PATH, content_type, body)).body

    return send


def _through_httpx(client: httpx2.AsyncClient) -> Send:
    async def send(method: str, content_type: str, body: bytes) -> bytes:
        headers = {"content-type": content_type} if content_type else None
        response = await client.request(method, _PATH, content=body or None, headers=headers)
        return response.content

    return send


def _through_h11(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Send:
    """What the own path would be with h11 instead of its own parser."""
    connection = h11.Connection(h11.CLIENT)
    common = [("host", "127.0.0.1"), ("accept", "application/json"), ("user-agent", "kubeshare")]

    async def send(method: str, content_type: str, body: bytes) -> bytes:
        headers = list(common)
        if content_type:
            headers += [("content-type", content_type), ("content-length", str(len(body)))]
        parts = [connection.send(h11.Request(method=method, target=_PATH, headers=headers))]
        parts += [connection.send(h11.Data(data=body))] if body else []
        parts.append(connection.send(h11.EndOfMessage()))
        writer.write(b"".join(part for part in parts if part))
        await writer.drain()
        answer = []
        while True:
            event = connection.next_event()
            if event is h11.NEED_DATA:
                connection.receive_data(await reader.read(1 << 16))
            elif isinstance(event, h11.Data):
                answer.append(bytes(event.data))
            elif isinstance(event, h11.EndOfMessage):
                connection.start_next_cycle()
                return b"".join(answer)

    return send


@contextmanager
def _server(files: tuple[str, str] | None) -> Iterator[int]:
    """A server in another process; ``files`` are its certificate and key. Yields its port."""
    context = multiprocessing.get_context("spawn")
    ports, sender = context.Pipe(duplex=False)
    process = context.Process(target=_serve, args=(sender, files), daemon=True)
    process.start()
    try:
        if not ports.poll(30):
            raise TimeoutError("the server of the bench does not start")
        yield ports.recv()
    finally:
        process.terminate()
        process.join()


def _serve(sender: "multiprocessing.connection.Connection", files: tuple[str, str] | None) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = b"HTTP/1.1 200 OK\r\naudit-id: 1\r\ncontent-type: application/json\r\n"
        head += b"date: Sun, 22 Nov 2026 12:00:00 GMT\r\ncontent-length: %d\r\n\r\n" % len(_ANSWER)
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while request := await reader.readuntil(b"\r\n\r\n"):
                if request.startswith(b"PATCH"):
                    await reader.readexactly(len(_PATCH))
                writer.write(head + _ANSWER)
                await writer.drain()

    async def listen() -> None:
        context = None
        if files is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*files)
        server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context)
        sender.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(listen())


if __name__ == "__main__":
    sys.exit(main())
