"""Starts, kills and restarts programs against a fake API server."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final

from kubeshare.simulator.control import FakeApiServer

RESTART: Final = 1.0
"""Seconds until the kubelet restarts a program that has ended."""


class Programs:
    """Programs, each of which runs as a task.

    Args:
        server: their API server.
        run: runs a program, given its name and the name of its client.
        on_end: called with the name of a program that has ended by itself, and its error.
    """

    def __init__(
        self,
        server: FakeApiServer,
        run: Callable[[str, str], Coroutine[Any, Any, None]],
        on_end: Callable[[str, BaseException], None],
    ) -> None:
        self._server = server
        self._run = run
        self._on_end = on_end
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._started = 0

    @property
    def names(self) -> list[str]:
        """The names of the programs that run."""
        return list(self._tasks)

    @property
    def clients(self) -> set[str]:
        """The names of the clients of the programs that run."""
        return {task.get_name() for task in self._tasks.values()}

    def start(self, name: str) -> None:
        """Start a program as a new client of the API server, ``NAME-NUMBER``."""
        self._started += 1
        client = f"{name}-{self._started}"
        task = asyncio.create_task(self._run(name, client), name=client)
        task.add_done_callback(partial(self._ended, name))
        self._tasks[name] = task

    async def kill(self, *names: str) -> None:
        """End programs as ``kill -9`` does; by default all."""
        ended = [self.end(name) for name in names or tuple(self._tasks)]
        if tasks := [task for task in ended if task is not None]:
            await asyncio.wait(tasks)

    def end(self, name: str) -> asyncio.Task[None] | None:
        """Let no request of a program arrive any more, and cancel its task, if it runs."""
        task = self._tasks.pop(name, None)
        if task is not None:
            self._server.dead.add(task.get_name())
            task.cancel()
        return task

    def cut_off(self, name: str) -> None:
        """Cut a running program off from the API server."""
        self._server.dead.add(self._tasks[name].get_name())
        self._server.reset_watches()

    def reconnect(self, name: str) -> None:
        """Connect a program to the API server again."""
        self._server.dead.discard(self._tasks[name].get_name())

    def _ended(self, name: str, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is None or self._tasks.get(name) is not task:
            return
        self.end(name)
        self._on_end(name, error)
