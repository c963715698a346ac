"""`python -m kubeshare.tokens`: the token daemon as a program. Logs JSON lines to stdout."""

import asyncio
import contextlib
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
def main(
    run_folder: Path | None, quota: float, idle_exit: float | None, usage: str, port: int | None
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
        asyncio.run(serve(Paths(run_folder or default_run_folder()), rules, idle_exit, port))
    except (AnotherDaemonError, OSError) as error:
        click.echo(f"kubeshare.tokens: {error}", err=True)
        sys.exit(getattr(error, "exit_code", 3))


async def serve(paths: Paths, rules: Rules, idle_exit_s: float | None, port: int | None) -> None:
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
            server = tasks.create_task(_serve_metrics(daemon, port)) if port is not None else None
            await stop.wait()
            if server is not None:
                server.cancel()
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
