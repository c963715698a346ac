"""Heads and chunk sizes of responses are parsed strictly."""

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeshare.kube.client.http1 import (
    BODY_LIMIT,
    parse_chunk_size,
    parse_content_length,
    parse_head,
    request_head,
)


@pytest.mark.parametrize(
    ("line", "size"),
    [
        (b"0\r\n", 0),
        (b"5\r\n", 5),
        (b"aF\r\n", 0xAF),
        (b"0010\r\n", 16),
        (b"5;name=value\r\n", 5),
        (b"5 \t;x\r\n", 5),
        (b"40000000\r\n", BODY_LIMIT),
    ],
)
def test_a_chunk_size_is_hexadecimal(line: bytes, size: int) -> None:
    assert parse_chunk_size(line) == size


@pytest.mark.parametrize(
    "line",
    [
        b"0x5\r\n",
        b"1_0\r\n",
        b"+5\r\n",
        b"-1\r\n",
        b" 5\r\n",
        b"\r\n",
        b";x\r\n",
        b"5\n",
        b"5 5\r\n",
        b"g\r\n",
        b"\xb2\r\n",
        b"40000001\r\n",
        b"00000000000000001\r\n",
        b"f" * 20 + b"\r\n",
    ],
)
def test_what_is_no_chunk_size_is_refused(line: bytes) -> None:
    with pytest.raises(ValueError, match=r"chunk size|more than"):
        parse_chunk_size(line)


def test_a_content_length_is_decimal() -> None:
    assert parse_content_length(b"0") == 0
    assert parse_content_length(b"123") == 123
    assert parse_content_length(str(BODY_LIMIT).encode()) == BODY_LIMIT


@pytest.mark.parametrize(
    "value",
    [b"", b"0x5", b"1_0", b"+5", b"-1", b"5, 5", b"5 5", b"1e3", b"9" * 21, b"1073741825"],
)
def test_what_is_no_content_length_is_refused(value: bytes) -> None:
    with pytest.raises(ValueError, match=r"Content-Length|more than"):
        parse_content_length(value)


def test_a_head_has_a_status_and_headers() -> None:
    head = b"HTTP/1.1 404 Not Found\r\nA: b\r\nc:  d e \r\n\r\n"
    assert parse_head(head) == (404, [(b"A", b"b"), (b"c", b"d e")])
    assert parse_head(b"HTTP/1.0 200\r\n\r\n") == (200, [])


@pytest.mark.parametrize(
    "head",
    [
        b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
        b"HTTP/2 200\r\n\r\n",
        b"HTTP/1.1\r\n\r\n",
        b"HTTP/1.1 2_0 OK\r\n\r\n",
        b"HTTP/1.1 +20 OK\r\n\r\n",
        b"HTTP/1.1 2000 OK\r\n\r\n",
        b"HTTP/1.1 099 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nno header\r\n\r\n",
    ],
)
def test_what_is_no_head_is_refused(head: bytes) -> None:
    with pytest.raises(ValueError, match="not a"):
        parse_head(head)


@given(st.integers(0, BODY_LIMIT), st.sampled_from([b"", b";a", b";a=b"]))
def test_sizes_are_those_that_h11_reads(size: int, extension: bytes) -> None:
    line = b"%x%b\r\n" % (size, extension)
    assert parse_chunk_size(line) == size
    if not size:
        return
    peer = h11.Connection(h11.CLIENT)
    peer.send(h11.Request(method="GET", target="/", headers=[("host", "a")]))
    peer.send(h11.EndOfMessage())
    peer.receive_data(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + line + b"x")
    assert isinstance(peer.next_event(), h11.Response)
    data = peer.next_event()
    assert isinstance(data, h11.Data)
    assert (data.chunk_start, data.chunk_end) == (True, size == 1)


def test_a_request_is_one_that_h11_reads() -> None:
    head = request_head("PATCH", b"/a?b=c", [(b"host", b"h"), (b"content-length", b"2")])
    peer = h11.Connection(h11.SERVER)
    peer.receive_data(head + b"{}")
    request = peer.next_event()
    assert isinstance(request, h11.Request)
    assert (request.method, request.target) == (b"PATCH", b"/a?b=c")
    assert request.headers.raw_items() == [(b"host", b"h"), (b"content-length", b"2")]
