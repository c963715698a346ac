"""Only clients with the token, or with a certificate, are served; both can be renewed."""

import asyncio
import base64
import os
import ssl
from contextlib import suppress
from pathlib import Path

import pytest

from deadlines import DEADLINE_S
from kubeshare.extender.http.access import TokenFile
from kubeshare.extender.http.messages import Head, Limits, Response
from kubeshare.extender.http.server import HttpServer
from kubeshare.kube.certificates import AccessError, Certificates
from kubeshare.lab.control_plane.certificates import Authority

TOKEN = b"0123456789abcdef"
OTHER = b"fedcba9876543210"


def basic(value: bytes) -> bytes:
    return b"Basic " + base64.b64encode(value)


@pytest.mark.parametrize(
    ("authorization", "accepted"),
    [
        (b"Bearer " + TOKEN, True),
        (b"bearer  " + TOKEN, True),
        (basic(b"anybody:" + TOKEN), True),
        (basic(b":" + TOKEN), True),
        (basic(TOKEN + b":"), False),
        (b"Basic !!!", False),
        (b"Bearer " + OTHER, False),
        (b"Bearer", False),
        (TOKEN, False),
        (b"", False),
        (None, False),
    ],
)
def test_the_token_is_a_bearer_token_or_a_password(
    tmp_path: Path, authorization: bytes | None, *, accepted: bool
) -> None:
    path = tmp_path / "token"
    path.write_bytes(TOKEN + b"\n")
    assert TokenFile(path).accepts(authorization) is accepted


def replace(path: Path, content: bytes) -> None:
    """Replace a file as the kubelet does: by another one of its name."""
    new = path.with_suffix(".new")
    new.write_bytes(content)
    os.replace(new, path)  # noqa: PTH105 - of the same name


def test_a_renewed_token_is_in_force_at_once(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_bytes(TOKEN)
    token = TokenFile(path)
    replace(path, OTHER)
    assert token.accepts(b"Bearer " + OTHER)
    assert not token.accepts(b"Bearer " + TOKEN)


@pytest.mark.parametrize("content", [b"", b"short", None])
def test_an_unusable_token_leaves_the_former_one(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "token"
    path.write_bytes(TOKEN)
    token = TokenFile(path)
    if content is None:
        path.unlink()
    else:
        replace(path, content)
    assert token.accepts(b"Bearer " + TOKEN)
    assert not token.accepts(b"Bearer ")
    with pytest.raises(AccessError, match="token"):
        TokenFile(path)


class _Hello:
    """Answers every request."""

    def refuse(self, head: Head) -> Response | None:
        del head
        return None

    async def answer(self, head: Head, body: bytes) -> Response:
        del head, body
        return Response.text(200, "hello")

    def observe(self, head: Head, response: Response, seconds: float) -> None:
        del head, response, seconds


async def get(port: int, client: ssl.SSLContext) -> tuple[bytes, str]:
    """The answer, and the name of the server by its certificate."""
    async with asyncio.timeout(DEADLINE_S):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client)
        writer.write(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        answer = await reader.read()
        subject = writer.get_extra_info("peercert")["subject"]
        writer.close()
        return answer, subject[-1][0][1]


def client_of(authority: Authority, *, user: str = "") -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=authority.certificate)
    if user:
        pair = authority.identity(user, user)
        context.load_cert_chain(pair.certificate, pair.key)
    return context


def test_tls_with_clients_of_an_authority(tmp_path: Path) -> None:
    ours, others = Authority(tmp_path / "ours"), Authority(tmp_path / "others")
    pair = ours.identity("server", "first", hosts=("127.0.0.1",))
    certificates = Certificates(pair.certificate, pair.key, ours.certificate)
    limits = Limits(head_seconds=DEADLINE_S, answer_seconds=DEADLINE_S)

    async def main() -> None:
        server = HttpServer(0, _Hello(), tls=certificates.context, limits=limits)
        task = asyncio.create_task(server.run())
        await server.listening.wait()
        answer, name = await get(server.port, client_of(ours, user="kube-scheduler"))
        assert answer.endswith(b"hello\n")
        assert name == "first"
        stranger = client_of(ours)
        foreign = others.identity("stranger", "stranger")
        stranger.load_cert_chain(foreign.certificate, foreign.key)
        for refused in (client_of(ours), stranger):
            # TLS 1.3 refuses after the handshake, so the connection may just end.
            with suppress(OSError):
                assert (await get(server.port, refused))[0] == b""
        renewed = ours.identity("renewed", "second", hosts=("127.0.0.1",))
        replace(pair.key, renewed.key.read_bytes())
        certificates.reload()  # half of it is renewed: it is not used
        assert (await get(server.port, client_of(ours, user="kube-scheduler")))[1] == "first"
        replace(pair.certificate, renewed.certificate.read_bytes())
        certificates.reload()
        assert (await get(server.port, client_of(ours, user="kube-scheduler")))[1] == "second"
        task.cancel()
        await asyncio.wait([task])

    asyncio.run(main())


def test_certificates_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    pair = Authority(tmp_path).identity("server", "server")
    with pytest.raises(AccessError, match=r"missing.crt: No such file"):
        Certificates(tmp_path / "missing.crt", pair.key)
    with pytest.raises(AccessError, match=r"server.crt"):
        Certificates(pair.certificate, pair.certificate)
    with pytest.raises(AccessError, match=r"server.key"):
        Certificates(pair.certificate, pair.key, pair.key)
