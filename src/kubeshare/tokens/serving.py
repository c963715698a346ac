"""The daemon from its start to its end: signals, the door, metrics, and the wait for its turn.

A daemon that may stand by is ready while another one serves the folder: everything is
loaded and its probes are answered, but of the folder it touches nothing. The one that
ends lets go of the folder's lock as the last thing that it does, and where it is killed
the kernel does; then the next one finds all that it needs in the files.
"""

import asyncio
import contextlib
import ctypes
import gc
import os
import resource
import signal
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, NamedTuple

import structlog

from kubeshare.tokens import control
from kubeshare.tokens.arbitration import DEFAULT_RULES, Rules
from kubeshare.tokens.daemon import AnotherDaemonError, Daemon
from kubeshare.tokens.files.run_folder import Paths

log = structlog.get_logger(__name__)

_NICENESS = -10
_FIRST_GRANT_S = 1.0
"""Somebody waits for it: until then nothing is loaded that it does not need."""
_TURN_S = 0.005
"""Between two attempts to be the folder's daemon: processes pace themselves meanwhile."""


class Options(NamedTuple):
    """How to serve.

    Args:
        rules: by what the tokens are handed out.
        idle_exit_s: end after so long without a grant; None: never.
        port: of probes and metrics; None: none.
        nvml: the library to ask what the driver counts for commands; None: nobody is asked.
        stands_by: whether to wait while there is another daemon.
    """

    rules: Rules = DEFAULT_RULES
    idle_exit_s: float | None = None
    port: int | None = None
    nvml: str | None = None
    stands_by: bool = False


async def serve(paths: Paths, options: Options) -> None:
    """Serve until SIGTERM, SIGINT or, with `idle_exit_s`, too long without a grant.

    Raises:
        AnotherDaemonError: the folder has a daemon, and this one does not stand by.
        OSError: the folder cannot be served.
    """
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    _allow_many_connections()
    _ask_for_punctuality()
    idle = IdleExit(loop, options.idle_exit_s, stop)

    def begin() -> Daemon:
        return Daemon(paths, loop, rules=options.rules, on_looked=idle.on_looked, on_lost=stop.set)

    serving = _at_once(begin, stands_by=options.stands_by)

    def entries() -> list[dict[str, Any]]:
        return serving.entries() if serving else []

    def dropped() -> int:
        return serving.dropped if serving else 0

    async with contextlib.AsyncExitStack() as beside:
        if options.port is not None:
            metrics = _serve_metrics(entries, dropped, options.port)
            await beside.enter_async_context(_until_then(metrics))
        serving = serving or await _in_turn(begin, stop)
        if serving is None:
            return
        if options.nvml is not None:
            overheads = _watch_overheads(paths, serving, options.nvml)
            await beside.enter_async_context(_until_then(overheads))
        await _hand_out(paths, serving, stop)


def _at_once(begin: Callable[[], Daemon], *, stands_by: bool) -> Daemon | None:
    """The folder's daemon; None where there is another one, for whose end this one waits."""
    try:
        return begin()
    except AnotherDaemonError as error:
        if not stands_by:
            raise
        log.info("standing by", why=str(error))
        return None


async def _in_turn(begin: Callable[[], Daemon], stop: asyncio.Event) -> Daemon | None:
    """The folder's daemon once there is no other; None: told to end before that."""
    while not stop.is_set():
        with contextlib.suppress(AnotherDaemonError):
            return begin()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), _TURN_S)
    return None


async def _hand_out(paths: Paths, daemon: Daemon, stop: asyncio.Event) -> None:
    """Answer at the door until it is time to end; the lock goes last."""
    try:
        async with await control.serve(paths, daemon.answers()):
            gc.freeze()  # what lives now lives on: no collection needs to look at it
            log.info("serving", folder=str(paths.root))
            await stop.wait()
        paths.control.unlink(missing_ok=True)
        log.info("ending: processes run on, paced by themselves")
    finally:
        daemon.close()


@contextlib.asynccontextmanager
async def _until_then(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Do something else until the block ends."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def _serve_metrics(
    entries: Callable[[], list[dict[str, Any]]], dropped: Callable[[], int], port: int
) -> None:
    """Serve probes and metrics until cancelled."""
    from prometheus_client import CollectorRegistry, generate_latest  # noqa: PLC0415  `run` needs

    from kubeshare.kube.controller.health import HealthServer  # noqa: PLC0415  none of it, and starts sooner
    from kubeshare.tokens.metrics import TokenCollector  # noqa: PLC0415

    registry = CollectorRegistry()
    registry.register(TokenCollector(entries, dropped))
    server = HealthServer(port, ready=tuple, metrics=lambda: generate_latest(registry))
    try:
        await server.run()
    except OSError as error:  # the tokens matter more
        log.warning("no metrics: the port cannot be had", port=port, error=str(error))


async def _watch_overheads(paths: Paths, daemon: Daemon, nvml: str) -> None:
    """Charge commands what the driver counts for them, until cancelled."""
    await asyncio.sleep(_FIRST_GRANT_S)
    from kubeshare.tokens import overheads  # noqa: PLC0415  in a cluster nobody needs NVML here

    def tell(claim: str, uuid: str, overhead: int) -> None:
        with contextlib.suppress(LookupError):  # it has ended meanwhile
            daemon.set_overhead(control.SetOverhead(claim=claim, uuid=uuid, bytes=overhead))

    try:
        ctypes.CDLL(nvml)  # NVML's bindings find it again by its name
    except OSError as error:
        log.warning("contexts are not charged: no NVML", error=str(error))
        return
    await overheads.watch(paths, daemon.commands, tell)


class IdleExit:
    """Sets `stop` after `seconds` without a grant; None: never."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, seconds: float | None, stop: asyncio.Event
    ) -> None:
        self._loop = loop
        self._seconds = seconds
        self._stop = stop
        self._timer: asyncio.TimerHandle | None = None

    def on_looked(self, *, is_empty: bool) -> None:
        """Whether there is a grant may have changed."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if is_empty and self._seconds is not None:
            self._timer = self._loop.call_later(self._seconds, self._stop.set)


def _allow_many_connections() -> None:
    """Each process of each claim is a descriptor: take as many as this user may have."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _ask_for_punctuality() -> None:
    """On a busy machine, go before the jobs: while a token changes hands the GPU may be idle."""
    with contextlib.suppress(PermissionError):  # without root one has to wait in line
        os.setpriority(os.PRIO_PROCESS, 0, _NICENESS)
