"""The daemon's control socket: one JSON line in, one JSON line out.

People (`kubeshare top`) and the node agent use it. Only the owner of the run folder can
enter that folder and connect.

========================  =================================================================
`{"request": …}`          reply, beside `"version": 1`
========================  =================================================================
`snapshot`                the state of all sessions: `pid`, `nowNs`, `claims`
                          (`snapshot.entries`)
`connections`             `claims`: `claim`, `connections` (how many processes have sent
                          HELLO and are connected) and `pids`, those of them that are
                          visible in the daemon's own PID namespace
`hung`                    `claims`: `claim` and `gpus`, for each GPU on which it did not
                          finish its work in time and has not since, those `pids` of
                          `connections` of which no end was reported
`overhead`                with `claim`, `uuid` and `bytes`: the memory that the driver counts
                          for the claim on this GPU beyond what its library tracks.
                          The reply has no other field
========================  =================================================================

A request that fails is answered with `"error"`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

import msgspec

from kubeshare.tokens.files.run_folder import Paths

_LINE_MAX = 4096
_TIMEOUT_S = 5.0

Handler: TypeAlias = Callable[[bytes], Awaitable[dict[str, Any]]]
"""Returns the reply to one request, which is a whole JSON document.

Raises:
    LookupError: there is no such claim or share; the message says which.
    ValueError: the request is invalid.
"""


class SetOverhead(msgspec.Struct, frozen=True):
    """The request `overhead`; `bytes` fits into the page's cell."""

    claim: str
    uuid: str
    bytes: int

    def __post_init__(self) -> None:
        if not 0 <= self.bytes < 2**63:
            raise ValueError(f"bytes {self.bytes} is not within 0 and 2^63")


class _Request(msgspec.Struct, frozen=True):
    request: str


async def serve(paths: Paths, handlers: Mapping[str, Handler]) -> asyncio.Server:
    """Answer requests on `RUN/control` by these handlers until the server is closed."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                reply = await _reply(await reader.readline(), handlers)
                writer.write(msgspec.json.encode(reply) + b"\n")
                await writer.drain()
        except (TimeoutError, ValueError, ConnectionError):
            pass  # a client that is slow, sends too much or disconnects gets no reply
        finally:
            writer.close()

    paths.control.unlink(missing_ok=True)  # left by a dead daemon: this one holds the lock
    return await asyncio.start_unix_server(handle, paths.control, limit=_LINE_MAX)


async def _reply(line: bytes, handlers: Mapping[str, Handler]) -> dict[str, Any]:
    try:
        request = msgspec.json.decode(line, type=_Request).request
        return {"version": 1, **await handlers[request](line)}
    except KeyError:
        error = f"ask for one of {', '.join(sorted(handlers))}"
    except (LookupError, ValueError, RecursionError) as problem:
        error = str(problem)
    return {"version": 1, "error": error}
