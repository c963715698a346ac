"""Runs the daemon: signals, control socket, metrics, and standing by.

A daemon that stands by is ready while another one serves the folder: its modules are
loaded and its probes are answered, but it does not touch the folder. The serving daemon
releases the folder's lock as its last step, or the kernel does if it is killed; the next
one finds its state in the files.
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
_NVML_DELAY_S = 1.0
"""A command waits for the first grant, which loading NVML would delay."""
_LOCK_RETRY_S = 0.005
"""Between two attempts to lock the folder; until then processes pace themselves."""


class Options(NamedTuple):
    """How to serve.

    Attributes:
        rules: how the tokens are handed out.
        idle_exit_s: exit after so long without a grant; None: never.
        port: of probes and metrics; None: not served.
        nvml: the library that reports the driver's counts for commands; None: not measured.
        stands_by: whether to wait while another daemon serves.
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
    _raise_priority()
    idle = IdleExit(loop, options.idle_exit_s, stop)

    def start() -> Daemon:
        return Daemon(
            paths, loop, rules=options.rules, on_scanned=idle.on_scanned, on_lost=stop.set
        )

    serving = _start_now(start, stands_by=options.stands_by)

    def entries() -> list[dict[str, Any]]:
        return serving.entries() if serving else []

    def dropped() -> int:
        return serving.dropped if serving else 0

    async with contextlib.AsyncExitStack() as background:
        if options.port is not None:
            metrics = _serve_metrics(entries, dropped, options.port)
            await background.enter_async_context(_running(metrics))
        serving = serving or await _start_in_turn(start, stop)
        if serving is None:
            return
        if options.nvml is not None:
            overheads = _watch_overheads(paths, serving, options.nvml)
            await background.enter_async_context(_running(overheads))
        await _serve_until(paths, serving, stop)


def _start_now(start: Callable[[], Daemon], *, stands_by: bool) -> Daemon | None:
    """Start the folder's daemon; None if another one serves it and this one stands by."""
    try:
        return start()
    except AnotherDaemonError as error:
        if not stands_by:
            raise
        log.info("standing by", why=str(error))
        return None


async def _start_in_turn(start: Callable[[], Daemon], stop: asyncio.Event) -> Daemon | None:
    """Start the folder's daemon once no other one serves it; None if stopped before that."""
    while not stop.is_set():
        with contextlib.suppress(AnotherDaemonError):
            return start()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), _LOCK_RETRY_S)
    return None


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
    entries: Callable[[], list[dict[str, Any]]], dropped: Callable[[], int], port: int
) -> None:
    """Serve probes and metrics until cancelled."""
    from prometheus_client import CollectorRegistry, generate_latest  # noqa: PLC0415  `run` does not

    from kubeshare.kube.controller.health import HealthServer  # noqa: PLC0415  need these
    from kubeshare.tokens.metrics import TokenCollector  # noqa: PLC0415

    registry = CollectorRegistry()
    registry.register(TokenCollector(entries, dropped))
    server = HealthServer(port, ready=tuple, metrics=lambda: generate_latest(registry))
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
