"""The token daemon's command line; it logs JSON lines."""

import asyncio
import sys
from pathlib import Path

import click
import structlog

from kubeshare.compiled import Code
from kubeshare.core.token import DECAYED_AVERAGE, QUOTA_NS, SLIDING_WINDOW
from kubeshare.kube.logs import LEVEL, LEVELS
from kubeshare.tokens.arbitration import Rules
from kubeshare.tokens.event_loop import EventLoop
from kubeshare.tokens.files.folder_lock import AnotherDaemonError
from kubeshare.tokens.files.run_folder import Paths, default_run_folder
from kubeshare.tokens.serving import Options, serve

log = structlog.get_logger(__name__)

_MEASURES = {"average": DECAYED_AVERAGE, "window": SLIDING_WINDOW}


@click.command(
    context_settings={"max_content_width": 100},
    epilog="\b\nExample:\n  python -m kubeshare.tokens --run-folder /run/kubeshare",
)
@click.option(
    "--run-folder",
    type=click.Path(file_okay=False, path_type=Path),
    help="The folder of grants and pages.  [default: KUBESHARE_RUN, else by user]",
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
    help="Exit after so many seconds without a grant.  [default: never]",
)
@click.option(
    "--usage",
    type=click.Choice(sorted(_MEASURES)),
    default="average",
    show_default=True,
    help="The usage that fairness compares: a decayed average, or the paper's window of 10 s.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    help="Serve /livez, /readyz and /metrics there.  [default: not at all]",
)
@click.option(
    "--nvml",
    help="Ask this NVML for the memory that the driver counts for commands of `kubeshare run` "
    "beyond what the library tracks.  [default: the node agent reports it]",
)
@click.option(
    "--stand-by",
    is_flag=True,
    help="While another daemon serves the folder, wait for it to exit and take over.  "
    "[default: fail]",
)
@click.option(
    "--await-agent",
    is_flag=True,
    help="Serve once the node agent has prepared the folder: it may mount a file system there.",
)
@click.option(
    "--log-level",
    type=click.Choice(LEVELS),
    default=LEVEL,
    show_default=True,
    help="Log what is at least as severe.",
)
@click.pass_obj
def main(  # noqa: PLR0913  one argument an option
    code: Code | None,
    *,
    run_folder: Path | None,
    quota: float,
    idle_exit: float | None,
    usage: str,
    port: int | None,
    nvml: str | None,
    stand_by: bool,
    await_agent: bool,
    log_level: str,
) -> None:
    """Hand out the time tokens of this machine's GPUs."""
    rules = Rules(round(quota * 1e9), _MEASURES[usage])
    options = Options(rules, idle_exit, port, nvml, stand_by, await_agent)
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso"),
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(log_level),
    )
    if code is not None:
        log.info("code chosen", compiled=code.is_compiled, reason=code.why_not)
    try:
        paths = Paths(run_folder or default_run_folder())
        with asyncio.Runner(loop_factory=EventLoop) as runner:
            runner.run(serve(paths, options))
    except (AnotherDaemonError, OSError) as error:
        click.echo(f"kubeshare.tokens: {error}", err=True)
        sys.exit(getattr(error, "exit_code", 3))
