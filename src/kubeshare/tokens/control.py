"""The daemon's door for people: one JSON line in, one JSON line out.

The run folder can be entered by its owner only, and so this socket by nobody else.
"""

import asyncio
import json
import socket
from collections.abc import Callable
from typing import Any

from kubeshare.tokens.files import DaemonMissingError, Paths

_LINE_MAX = 4096
_ANSWER_MAX = 16 * 1024 * 1024
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


def ask_snapshot(paths: Paths) -> dict[str, Any]:
    """Ask a machine's daemon who holds what; the fields are those of `snapshot.entries`.

    Raises:
        DaemonMissingError: no daemon answers.
    """
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(_TIMEOUT_S)
            connection.connect(str(paths.control))
            connection.sendall(b'{"version": 1, "request": "snapshot"}\n')
            with connection.makefile("rb") as answer:
                reply: dict[str, Any] = json.loads(answer.readline(_ANSWER_MAX))
                return reply
    except (OSError, ValueError) as error:
        raise DaemonMissingError(
            f"no token daemon answers on {paths.control} ({error}): "
            "`kubeshare run` starts one, in a cluster it is the pod kubeshare-tokens"
        ) from None
