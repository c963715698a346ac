"""The daemon's door for people and for the node agent: one JSON line in, one JSON line out.

The run folder can be entered by its owner only, and so this socket by nobody else.

========================  =================================================================
`{"request": …}`          answer, beside `"version": 1`
========================  =================================================================
`snapshot`                who holds what now: `pid`, `nowNs`, `claims` (`snapshot.entries`)
`connections`             `claims`: `claim`, `connections` (how many processes have said
                          HELLO and are connected) and `pids`, those of them that the
                          daemon's own PID namespace shows
`overhead`                with `claim`, `uuid` and `bytes`: what the driver counts for the
                          claim on this GPU beyond what its library tracks. Nothing more
========================  =================================================================

What cannot be done is answered with `"error"`.
"""

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from kubeshare.tokens.files.run_folder import Paths

_LINE_MAX = 4096
_TIMEOUT_S = 5.0

Handler = Callable[[bytes], dict[str, Any]]
"""Answers one request, which is a whole JSON document.

Raises:
    LookupError: it asks about what there is not; the message says what.
    ValueError: it is not what this request has to say.
"""


class SetOverhead(msgspec.Struct, frozen=True):
    """The request `overhead`; `bytes` fit the page's cell."""

    claim: str
    uuid: str
    bytes: int

    def __post_init__(self) -> None:
        if not 0 <= self.bytes < 2**63:
            raise ValueError(f"bytes {self.bytes} is not within 0 and 2^63")


class _Request(msgspec.Struct, frozen=True):
    request: str


async def serve(paths: Paths, answers: Mapping[str, Handler]) -> asyncio.Server:
    """Answer on `RUN/control` until the server is closed.

    Args:
        paths: of the run folder.
        answers: by request.
    """

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                reply = _reply(await reader.readline(), answers)
                writer.write(json.dumps(reply).encode() + b"\n")
                await writer.drain()
        except (TimeoutError, ValueError, ConnectionError):
            pass  # the asker is slow, says too much or has left: its loss
        finally:
            writer.close()

    paths.control.unlink(missing_ok=True)  # of a daemon that is dead: the lock is ours
    return await asyncio.start_unix_server(answer, paths.control, limit=_LINE_MAX)


def _reply(line: bytes, answers: Mapping[str, Handler]) -> dict[str, Any]:
    try:
        asked = msgspec.json.decode(line, type=_Request).request
        return {"version": 1, **answers[asked](line)}
    except KeyError:
        error = f"ask for one of {', '.join(sorted(answers))}"
    except (LookupError, ValueError) as problem:
        error = str(problem)
    return {"version": 1, "error": error}
