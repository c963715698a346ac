"""Parses the heads and chunk sizes of HTTP/1.1 responses (RFC 9112).

Pure functions. Numbers are parsed strictly: ``int`` alone would accept ``0x5``, ``1_0`` or
``+5``, and whoever reads another length than the server means takes the rest of one response
for the next one.
"""

import re
from typing import Final, TypeAlias

Headers: TypeAlias = list[tuple[bytes, bytes]]

HEAD_LIMIT: Final = 256 << 10
"""Largest head of a response, in bytes; also the largest line of a chunked body."""
BODY_LIMIT: Final = 1 << 30
"""Largest body of known length, and largest chunk, in bytes: a page of the largest objects."""

_STATUS_LINE: Final = re.compile(rb"HTTP/1\.[0-9] ([1-9][0-9]{2})(?: .*)?", re.DOTALL)
_DECIMAL: Final = re.compile(rb"[0-9]{1,20}")
_HEXADECIMAL: Final = re.compile(rb"[0-9A-Fa-f]{1,16}")


def request_head(method: str, target: bytes, headers: Headers) -> bytes:
    """The head of a request, with the empty line that ends it."""
    fields = [b"%b: %b" % field for field in headers]
    return b"\r\n".join([b"%b %b HTTP/1.1" % (method.encode(), target), *fields, b"", b""])


def parse_head(head: bytes) -> tuple[int, Headers]:
    """The status and the headers of a response.

    Args:
        head: all lines, with the empty line that ends them.

    Raises:
        ValueError: the head is not one of HTTP/1.
    """
    first, *lines = head[:-4].split(b"\r\n")
    found = _STATUS_LINE.fullmatch(first)
    if found is None:
        raise ValueError(f"not an HTTP/1 response: {first[:40]!r}")
    headers = []
    for line in lines:
        name, colon, value = line.partition(b":")
        if not colon:
            raise ValueError(f"not a header: {line[:40]!r}")
        headers.append((name, value.strip()))
    return int(found[1]), headers


def parse_content_length(value: bytes) -> int:
    """The number of bytes that a Content-Length header gives.

    Raises:
        ValueError: the value is not a decimal number, or is more than ``BODY_LIMIT``.
    """
    if not _DECIMAL.fullmatch(value):
        raise ValueError(f"not a Content-Length: {value[:40]!r}")
    return _bounded(int(value))


def parse_chunk_size(line: bytes) -> int:
    """The number of bytes of the chunk that follows this line; 0 for the last one.

    Args:
        line: the line with its CRLF; chunk extensions are ignored.

    Raises:
        ValueError: the size is not hexadecimal, or is more than ``BODY_LIMIT``.
    """
    size = line.removesuffix(b"\r\n").partition(b";")[0].rstrip(b" \t")
    if not _HEXADECIMAL.fullmatch(size):
        raise ValueError(f"not a chunk size: {line[:40]!r}")
    return _bounded(int(size, 16))


def _bounded(size: int) -> int:
    if size > BODY_LIMIT:
        raise ValueError(f"a body of {size} bytes: more than {BODY_LIMIT}")
    return size
