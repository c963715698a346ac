"""Probes, metrics and pages of a program."""

import asyncio
import urllib.error
import urllib.request
from functools import partial

import pytest
from prometheus_client import CONTENT_TYPE_LATEST

from deadlines import DEADLINE_S
from kube.expectations import expect_value
from kubeshare.kube.cache.reflector import Reflector
from kubeshare.kube.controller.controller import Controller, own_key
from kubeshare.kube.controller.health import HEAD_LIMIT, HealthServer, UnavailableError
from kubeshare.kube.controller.runtime import Program
from kubeshare.kube.meta import Key
from kubeshare.kube.resources import PODS
from kubeshare.simulator.control import FakeApiServer


def fetch(port: int, path: str, method: str = "GET") -> tuple[int, str]:
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", method=method)
    try:
        with urllib.request.urlopen(request, timeout=DEADLINE_S) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def content_type(port: int, path: str) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=DEADLINE_S) as answer:
        return str(answer.headers["content-type"])


def test_probes_and_metrics_report_the_state(server: FakeApiServer) -> None:
    server.seed(PODS, {"metadata": {"name": "p", "namespace": "default"}})
    server.down = True

    async def main() -> None:
        client = server.client()
        program = Program("test", client, port=0)
        reflector = program.add_reflector(Reflector(client, PODS, draw=lambda: 0.0))

        async def reconcile(key: Key) -> None:
            await asyncio.sleep(0)

        controller: Controller[Key] = Controller("pods", reconcile)
        controller.watch(reflector, own_key)
        program.add_controller(controller)
        broken = ["the door is stuck"]
        program.add_check(lambda: broken[0] if broken else None)
        running = asyncio.create_task(program.run())
        assert program.health is not None
        await program.health.listening.wait()
        port = program.health.port

        async def ask(path: str, method: str = "GET") -> tuple[int, str]:
            return await asyncio.to_thread(fetch, port, path, method)

        assert await ask("/livez") == (200, "ok\n")
        assert await ask("/readyz") == (503, "pods not listed yet\nthe door is stuck\n")
        server.down = False
        broken.clear()
        await expect_value(lambda: controller.results["success"], 1)
        assert await ask("/readyz?verbose") == (200, "ok\n")
        status, text = await ask("/metrics")
        assert status == 200
        for line in (
            'kube_runtime_synced{resource="pods"} 1.0',
            'kube_runtime_objects{resource="pods"} 1.0',
            'workqueue_adds_total{name="pods"} 1.0',
            'workqueue_work_duration_seconds_count{name="pods"} 1.0',
            'kube_runtime_reconciles_total{controller="pods",result="success"} 1.0',
            'kube_runtime_requests_total{resource="pods",verb="watch"} 1.0',
        ):
            assert line in text
        assert (await ask("/other"))[0] == 404
        assert (await ask("/livez", "HEAD"))[0] == 200
        assert await ask("/livez", "POST") == (405, "only GET\n")
        program.stop()
        await running

    async def bounded() -> None:
        async with asyncio.timeout(DEADLINE_S):
            await main()

    asyncio.run(bounded())


def test_an_invalid_request_gets_no_answer_and_affects_no_other() -> None:
    async def main() -> None:
        health = HealthServer(0, ready=list, metrics=lambda: b"")
        running = asyncio.create_task(health.run())
        await health.listening.wait()
        for nonsense in (b"GET", b"x" * 100_000, b"\r\n\r\n"):
            reader, writer = await asyncio.open_connection("127.0.0.1", health.port)
            writer.write(nonsense)
            writer.write_eof()
            assert not (await reader.read()).startswith(b"HTTP/1.1 200")
            writer.close()
        assert await asyncio.to_thread(fetch, health.port, "/livez") == (200, "ok\n")
        running.cancel()

    async def bounded() -> None:
        async with asyncio.timeout(DEADLINE_S):
            await main()

    asyncio.run(bounded())


def test_a_path_of_any_bytes_has_an_answer() -> None:
    async def main() -> None:
        health = HealthServer(0, ready=list, metrics=lambda: b"")
        running = asyncio.create_task(health.run())
        await health.listening.wait()
        reader, writer = await asyncio.open_connection("127.0.0.1", health.port)
        writer.write(b"GET /\xff HTTP/1.1\r\n\r\n")
        assert await reader.read() == (
            b"HTTP/1.1 404 Not Found\r\ncontent-type: text/plain; charset=utf-8\r\n"
            b"content-length: 30\r\nconnection: close\r\n\r\n"
            b"try /livez, /readyz, /metrics\n"
        )
        writer.close()
        running.cancel()

    async def bounded() -> None:
        async with asyncio.timeout(DEADLINE_S):
            await main()

    asyncio.run(bounded())


@pytest.mark.parametrize(("port", "host"), [(0, "127.0.0.1"), (8080, None)])
def test_probes_are_served_to_all_unless_any_port_will_do(
    monkeypatch: pytest.MonkeyPatch, port: int, host: str | None
) -> None:
    asked: list[object] = []

    async def start_server(_serve: object, *address: object, **more: object) -> None:
        asked.append((*address, more))
        raise OSError("in use")

    monkeypatch.setattr(asyncio, "start_server", start_server)
    with pytest.raises(OSError, match="in use"):
        asyncio.run(HealthServer(port, ready=list, metrics=lambda: b"").run())
    assert asked == [(host, port, {"limit": HEAD_LIMIT})]


def test_pages_of_a_program_are_served_beside_the_probes() -> None:
    async def main() -> None:
        health = HealthServer(0, ready=list, metrics=lambda: b"")
        away = ["the daemon is away"]

        async def page() -> bytes:
            if away:
                raise UnavailableError(away[0])
            return b'{"version": "1"}'

        health.pages["/version"] = page
        running = asyncio.create_task(health.run())
        await health.listening.wait()
        ask = partial(asyncio.to_thread, partial(fetch, health.port))
        kind_of = partial(asyncio.to_thread, partial(content_type, health.port))
        assert await ask("/version") == (503, "the daemon is away\n")
        away.clear()
        assert await ask("/version") == (200, '{"version": "1"}')
        assert await kind_of("/version") == "application/json"
        assert await kind_of("/metrics") == CONTENT_TYPE_LATEST
        assert await ask("/other") == (404, "try /livez, /readyz, /metrics, /version\n")
        running.cancel()

    async def bounded() -> None:
        async with asyncio.timeout(30):
            await main()

    asyncio.run(bounded())
