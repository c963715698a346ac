"""The daemon's door for people: one JSON line in, one JSON line out.

The run folder can be entered by its owner only, and so this socket by nobody else.
"""

import asyncio
import json
from collections.abc import Callable
from typing import Any

from kubeshare.tokens.files import Paths

_LINE_MAX = 4096
_TIMEOUT_S = 5.0


async def serve(paths: Paths, snapshot: Callable[[], dict[str, Any]]) -> asyncio.Server:
    """Answer on `RUN/control` until the server is closed."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                reply = _reply(await reader.readline(), snapshot)
                writer.write(json.dumps(reply).encode() + b"\n")
                await writer.drain()
        except (TimeoutError, ValueError, ConnectionError):
            pass  # the asker is slow, says too much or has left: its loss
        finally:
            writer.close()

    paths.control.unlink(missing_ok=True)  # of a daemon that is dead: the lock is ours
    return await asyncio.start_unix_server(answer, paths.control, limit=_LINE_MAX)


def _reply(line: bytes, snapshot: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    try:
        request = json.loads(line)["request"]
    except (ValueError, KeyError, TypeError):
        request = None
    if request == "snapshot":
        return snapshot()
    return {"version": 1, "error": 'ask {"request": "snapshot"}'}
