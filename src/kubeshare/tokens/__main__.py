"""`python -m kubeshare.tokens`: the token daemon as a program. Logs JSON lines to stdout."""

import asyncio
import contextlib
import ctypes
import gc
import os
import resource
import signal
import sys
from pathlib import Path

import click
import structlog

from kubeshare.core.token import DECAYED_AVERAGE, QUOTA_NS, SLIDING_WINDOW
from kubeshare.tokens import control
from kubeshare.tokens.arbitration import Rules
from kubeshare.tokens.daemon import AnotherDaemonError, Daemon
from kubeshare.tokens.files import Paths, default_run_folder

log = structlog.get_logger(__name__)

_NICENESS = -10
_FIRST_GRANT_S = 1.0
"""Somebody waits for it: until then nothing is loaded that it does not need."""

_MEASURES = {"average": DECAYED_AVERAGE, "window": SLIDING_WINDOW}


@click.command(
    context_settings={"max_content_width": 100},
    epilog="\b\nExample:\n  python -m kubeshare.tokens --run-folder /run/kubeshare",
)
@click.option(
    "--run-folder",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where grants come in and pages go out.  [default: KUBESHARE_RUN, else by user]",
)
@click.option(
    "--quota",
    type=click.FloatRange(0.005, 10),
    default=QUOTA_NS / 1e9,
    show_default=True,
    help="Seconds between two decisions about a GPU.",
)
@click.option(
    "--idle-exit",
    type=click.FloatRange(min=0),
    help="End after so many seconds without a grant.  [default: never]",
)
@click.option(
    "--usage",
    type=click.Choice(sorted(_MEASURES)),
    default="average",
    show_default=True,
    help="What fairness compares: a decayed average, or the paper's window of 10 s.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    help="Serve /livez, /readyz and /metrics there.  [default: not at all]",
)
@click.option(
    "--nvml",
    help="Ask this NVML what the driver counts for commands of `kubeshare run` beyond what the "
    "library tracks.  [default: the node agent tells]",
)
def main(  # noqa: PLR0913  one argument an option
    *,
    run_folder: Path | None,
    quota: float,
    idle_exit: float | None,
    usage: str,
    port: int | None,
    nvml: str | None,
) -> None:
    """Hand out the time tokens of this machine's GPUs."""
    rules = Rules(round(quota * 1e9), _MEASURES[usage])
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso"),
            structlog.processors.JSONRenderer(),
        ]
    )
    try:
        paths = Paths(run_folder or default_run_folder())
        asyncio.run(serve(paths, rules, idle_exit, port, nvml))
    except (AnotherDaemonError, OSError) as error:
        click.echo(f"kubeshare.tokens: {error}", err=True)
        sys.exit(getattr(error, "exit_code", 3))


async def serve(
    paths: Paths, rules: Rules, idle_exit_s: float | None, port: int | None, nvml: str | None
) -> None:
    """Serve until SIGTERM, SIGINT or, with `idle_exit_s`, too long without a grant."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    _allow_many_connections()
    _ask_for_punctuality()
    idle = IdleExit(loop, idle_exit_s, stop)
    daemon = Daemon(
        paths,
        loop,
        rules=rules,
        on_looked=idle.on_looked,
        on_lost=stop.set,
    )
    try:
        door = await control.serve(paths, daemon.answers())
        gc.freeze()  # what lives now lives on: no collection needs to look at it
        log.info("serving", folder=str(paths.root))
        async with door, asyncio.TaskGroup() as tasks:
            beside = []
            if port is not None:
                beside.append(tasks.create_task(_serve_metrics(daemon, port)))
            if nvml is not None:
                beside.append(tasks.create_task(_watch_overheads(paths, daemon, nvml)))
            await stop.wait()
            for task in beside:
                task.cancel()
        paths.control.unlink(missing_ok=True)
        log.info("ending: processes run on, paced by themselves")
    finally:
        daemon.close()


async def _serve_metrics(daemon: Daemon, port: int) -> None:
    """Serve probes and metrics until cancelled."""
    from prometheus_client import CollectorRegistry, generate_latest  # noqa: PLC0415  `run` needs

    from kubeshare.kube.health import HealthServer  # noqa: PLC0415  none of it, and starts sooner
    from kubeshare.tokens.metrics import TokenCollector  # noqa: PLC0415

    registry = CollectorRegistry()
    registry.register(TokenCollector(daemon.entries, lambda: daemon.dropped))
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


if __name__ == "__main__":
    main()
