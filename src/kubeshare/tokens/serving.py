"""Runs the daemon: signals, control socket, metrics, and standing by.

A daemon that stands by is ready while another one serves the folder: its modules are
loaded and its probes are answered, but it does not touch the folder. The serving daemon
releases the folder's lock as its last step, or the kernel does if it is killed; the next
one finds its state in the files. In the same way a daemon waits for the node agent, which
may mount a file system over the folder: what is below it would be hidden from all others.
"""

import asyncio
import contextlib
import ctypes
import gc
import os
import resource
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any, NamedTuple, Protocol

import structlog

from kubeshare.tokens import control
from kubeshare.tokens.arbitration import DEFAULT_RULES, Rules
from kubeshare.tokens.daemon import Daemon
from kubeshare.tokens.files import folder_lock
from kubeshare.tokens.files.folder_lock import AnotherDaemonError
from kubeshare.tokens.files.run_folder import Paths
from kubeshare.tokens.snapshot import Totals

log = structlog.get_logger(__name__)

_NICENESS = -10
_NVML_DELAY_S = 1.0
"""A command waits for the first grant, which loading NVML would delay."""
_SWITCH_S = 0.0005
"""The longest that a thread beside the event loop keeps it from running; 5 ms by default."""
_LOCK_RETRY_S = 0.005
"""Between two attempts to lock the folder; until then processes pace themselves."""
_PREPARED_RETRY_S = 0.1
"""Between two looks for what the node agent has prepared; until then there is no grant."""


class Options(NamedTuple):
    """How to serve.

    Attributes:
        rules: how the tokens are handed out.
        idle_exit_s: exit after so long without a grant; None: never.
        port: of probes and metrics; None: not served.
        nvml: the library that reports the driver's counts for commands; None: not measured.
        stands_by: whether to wait while another daemon serves.
        awaits_agent: whether to wait until the node agent has prepared the folder.
    """

    rules: Rules = DEFAULT_RULES
    idle_exit_s: float | None = None
    port: int | None = None
    nvml: str | None = None
    stands_by: bool = False
    awaits_agent: bool = False


class _UnpreparedError(Exception):
    """The node agent has not prepared the folder."""


async def serve(paths: Paths, options: Options) -> None:
    """Serve until SIGTERM, SIGINT or, with `idle_exit_s`, too long without a grant.

    Raises:
        AnotherDaemonError: the folder has a daemon, and this one does not stand by.
        OSError: the folder cannot be served, or was unmounted before this daemon locked it.
    """
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    _allow_many_connections()
    _raise_priority()
    sys.setswitchinterval(_SWITCH_S)
    idle = IdleExit(loop, options.idle_exit_s, stop)

    def start(*, stood_by: bool = False) -> Daemon:
        if options.awaits_agent:
            _check_prepared(paths)
        return Daemon(
            paths,
            loop,
            rules=options.rules,
            on_scanned=idle.on_scanned,
            on_lost=stop.set,
            stood_by=stood_by,
        )

    serving = _start_now(start, stands_by=options.stands_by)

    def entries() -> list[dict[str, Any]]:
        return serving.entries() if serving else []

    def totals() -> Totals:
        return serving.totals() if serving else Totals()

    async def refresh() -> None:
        if serving:
            await serving.refresh_usage()

    async with contextlib.AsyncExitStack() as background:
        if options.port is not None:
            metrics = _serve_metrics(refresh, entries, totals, options.port)
            await background.enter_async_context(_running(metrics))
        serving = serving or await _start_in_turn(start, stop)
        if serving is None:
            return
        if options.nvml is not None:
            overheads = _watch_overheads(paths, serving, options.nvml)
            await background.enter_async_context(_running(overheads))
        await _serve_until(paths, serving, stop)


def _start_now(start: Callable[[], Daemon], *, stands_by: bool) -> Daemon | None:
    """Start the folder's daemon; None if this one has to wait.

    Raises:
        AnotherDaemonError: another one serves the folder, and this one does not stand by.
    """
    try:
        return start()
    except _UnpreparedError:
        log.info("waiting for the node agent to prepare the folder")
        return None
    except AnotherDaemonError as error:
        if not stands_by:
            raise
        log.info("standing by", why=str(error))
        return None


class _Start(Protocol):
    def __call__(self, *, stood_by: bool = False) -> Daemon: ...


async def _start_in_turn(start: _Start, stop: asyncio.Event) -> Daemon | None:
    """Start the folder's daemon once it is prepared and free; None if stopped before that."""
    stood_by = False
    while not stop.is_set():
        try:
            return start(stood_by=stood_by)
        except AnotherDaemonError:
            stood_by = True
            pause = _LOCK_RETRY_S
        except _UnpreparedError:
            pause = _PREPARED_RETRY_S
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), pause)
    return None


def _check_prepared(paths: Paths) -> None:
    """Check that the node agent mounts nothing over the folder any more.

    A folder with grants is an older agent's, which mounted nothing.

    Raises:
        _UnpreparedError: it may do so yet.
        OSError: it has unmounted what this daemon sees.
    """
    folder_lock.check_mounted(paths)
    if not (paths.boot.exists() or paths.has_grants()):
        raise _UnpreparedError


async def _serve_until(paths: Paths, daemon: Daemon, stop: asyncio.Event) -> None:
    """Answer on the control socket until stopped; the lock is released last."""
    try:
        async with await control.serve(paths, daemon.handlers()):
            gc.freeze()  # all objects of the start stay: keep them out of each collection
            log.info("serving", folder=str(paths.root))
            await stop.wait()
        paths.control.unlink(missing_ok=True)
        log.info("ending: processes run on, paced by themselves")
    finally:
        daemon.close()


@contextlib.asynccontextmanager
async def _running(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run a coroutine in the background until the block ends."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def _serve_metrics(
    refresh: Callable[[], Awaitable[None]],
    entries: Callable[[], list[dict[str, Any]]],
    totals: Callable[[], Totals],
    port: int,
) -> None:
    """Serve probes and metrics until cancelled."""
    from prometheus_client import CollectorRegistry, generate_latest  # noqa: PLC0415  `run` does not

    from kubeshare.kube.controller.health import HealthServer  # noqa: PLC0415  need these
    from kubeshare.tokens.metrics import TokenCollector  # noqa: PLC0415

    async def exposition() -> bytes:
        """Read the daemon's state here, and write it out beside the event loop."""
        await refresh()
        now, counts = entries(), totals()
        registry = CollectorRegistry()
        registry.register(TokenCollector(lambda: now, lambda: counts))
        return await asyncio.to_thread(generate_latest, registry)

    server = HealthServer(port, ready=tuple, metrics=exposition)
    try:
        await server.run()
    except OSError as error:  # tokens are served all the same
        log.warning("no metrics: the port cannot be had", port=port, error=str(error))


async def _watch_overheads(paths: Paths, daemon: Daemon, nvml: str) -> None:
    """Charge commands what the driver counts for them, until cancelled."""
    await asyncio.sleep(_NVML_DELAY_S)
    from kubeshare.tokens import overheads  # noqa: PLC0415  a cluster's daemon needs no NVML

    def report(claim: str, uuid: str, overhead: int) -> None:
        with contextlib.suppress(LookupError):  # the claim has ended
            daemon.set_overhead(control.SetOverhead(claim=claim, uuid=uuid, bytes=overhead))

    try:
        ctypes.CDLL(nvml)  # NVML's bindings find it by its name
    except OSError as error:
        log.warning("contexts are not charged: no NVML", error=str(error))
        return
    await overheads.watch(paths, daemon.commands, report)


class IdleExit:
    """Sets `stop` after `seconds` without a grant; None: never."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, seconds: float | None, stop: asyncio.Event
    ) -> None:
        self._loop = loop
        self._seconds = seconds
        self._stop = stop
        self._timer: asyncio.TimerHandle | None = None

    def on_scanned(self, *, is_empty: bool) -> None:
        """Start or stop the timer, depending on whether there is a grant."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if is_empty and self._seconds is not None:
            self._timer = self._loop.call_later(self._seconds, self._stop.set)


def _allow_many_connections() -> None:
    """Raise the limit of descriptors: each process of each session needs one."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _raise_priority() -> None:
    """Run before the jobs on a busy machine: the GPU may be idle while a token changes hands."""
    with contextlib.suppress(PermissionError):  # only root may
        os.setpriority(os.PRIO_PROCESS, 0, _NICENESS)
