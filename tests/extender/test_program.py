"""The program serves kube-scheduler on one port, probes and metrics on another."""

import asyncio
import json
from pathlib import Path

import pytest

from deadlines import DEADLINE_S
from kubeshare import __version__
from kubeshare.extender.__main__ import main
from kubeshare.extender.http.access import TokenFile
from kubeshare.extender.program import Serving, extender_program
from kubeshare.simulator.control import FakeApiServer, until

TOKEN = "0123456789abcdef"
PREFIX = "/gpushare-scheduler"


async def ask(
    port: int, path: str, body: str | None = None, *, token: str = TOKEN
) -> tuple[int, str]:
    """The status and the body of an answer; a POST if there is a body to send."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    sent = (body or "").encode()
    method = "GET" if body is None else "POST"
    head = (
        f"{method} {path} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {token}\r\n"
        f"Content-Length: {len(sent)}\r\nConnection: close\r\n\r\n"
    )
    writer.write(head.encode() + sent)
    answer = await reader.read()
    writer.close()
    first, _, content = answer.partition(b"\r\n\r\n")
    return int(first.split()[1]), content.decode()


def test_it_serves_both_ports(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text(TOKEN)

    async def run() -> None:
        serving = Serving(0, token=TokenFile(path))
        client = FakeApiServer().client("extender")
        program, _, server = extender_program(client, instance="a", port=0, serving=serving)
        assert server is not None
        assert program.health is not None
        running = asyncio.create_task(program.run())
        async with asyncio.timeout(DEADLINE_S):
            await server.listening.wait()
            await program.health.listening.wait()
            await until(lambda: not list(program.not_ready()), seconds=DEADLINE_S)
            assert (await ask(program.health.port, "/readyz"))[0] == 200
            assert await ask(server.port, "/version", token="") == (200, __version__)
            assert (await ask(server.port, f"{PREFIX}/inspect", token="x"))[0] == 401
            assert await ask(server.port, f"{PREFIX}/inspect") == (200, '{"nodes":[]}')
            pod = {"metadata": {"name": "p"}, "spec": {"containers": []}}
            asked = json.dumps({"Pod": pod, "NodeNames": ["n1"]})
            status, answer = await ask(server.port, f"{PREFIX}/filter", asked)
            assert (status, json.loads(answer)["NodeNames"]) == (200, ["n1"])
            status, answer = await ask(server.port, f"{PREFIX}/bind", "{}")
            assert (status, answer) == (500, '{"Error":"PodName: is missing"}')
            _, metrics = await ask(program.health.port, "/metrics")
            program.stop()
            await running
        for line in (
            'kubeshare_extender_request_seconds_count{code="200",verb="filter"} 1.0',
            'kubeshare_extender_request_seconds_count{code="401",verb="inspect"} 1.0',
            'kubeshare_extender_binds_total{outcome="refused"} 1.0',
        ):
            assert line in metrics

    asyncio.run(run())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--tls-cert", "a.crt"], "--tls-cert and --tls-key come together"),
        (["--client-ca", "a.crt"], "--client-ca needs --tls-cert and --tls-key"),
        (["--token-file", "/nonexistent"], "/nonexistent: No such file"),
        (["--tls-cert", "/none.crt", "--tls-key", "/none.key"], "/none.crt: No such file"),
        (["--port", "many"], "invalid int value"),
    ],
)
def test_options_that_cannot_be_used_are_named(
    options: list[str],
    words: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("sys.argv", ["kubeshare.extender", *options])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert words in capsys.readouterr().err
