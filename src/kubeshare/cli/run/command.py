"""`kubeshare run`: runs a command on shares of GPUs.

Writes a grant that this process owns, waits until the token daemon has activated it, and
executes the command in place of itself. Terminal, signals and exit code are then the
command's own, and the daemon drops the grant when the process ends, however it ends.

This delays every start, so it uses plain sockets, without an event loop or tables.
"""

import os
import re
import shutil
import signal
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import click

from kubeshare import native
from kubeshare.cli.run.gpu_shares import (
    NoRoomError,
    ask_held,
    attempts,
    choose,
    read_gpus,
    read_share,
)
from kubeshare.core.errors import InvalidValueError
from kubeshare.tokens.client import is_answering, start_daemon
from kubeshare.tokens.files.grants import (
    GRANT_VERSION,
    Grant,
    GrantedShare,
    Owner,
    process_start_time,
    remove_grant,
    write_grant,
)
from kubeshare.tokens.files.run_folder import Paths, default_run_folder
from kubeshare.tokens.files.statuses import DaemonMissingError, Status, wait_status
from kubeshare.tokens.gpus import gpus as gpus_of_machine
from kubeshare.tokens.wire.protocol import CLAIM_FOLDER_ENV, COUNTERS_FILE_ENV

EXIT_REFUSED = 1
EXIT_NOT_EXECUTABLE = 126
EXIT_NOT_FOUND = 127

_ANSWER_TIMEOUT_S = 2.0
_ANSWER_TRIES = 3
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)(us|ms|s)")
_UNIT_NS = {"us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
_QUOTA_NS_MIN, _QUOTA_NS_MAX = 5_000_000, 10_000_000_000


@click.command(
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    epilog="\b\nExamples:\n"
    "  kubeshare run --request .3 --limit .6 --memory 4Gi -- python train.py\n"
    "  kubeshare run --gpus 2.5 -- python train.py\n"
    "  kubeshare run --fake V100x1 --request .3 --memory 1Gi -- native/build/burn --seconds 30",
)
@click.option("--request", help="Guaranteed share of the GPU's time, 0 to 1.")
@click.option("--limit", help="Share never to be exceeded.  [default: 1]")
@click.option(
    "--limit-alone",
    help="The same while no other command has a share of that GPU.  [default: --limit]",
)
@click.option(
    "--latency-sensitive",
    is_flag=True,
    help="Serve its launches promptly, as long as it uses less than --request.",
)
@click.option(
    "--gpus",
    help="Whole GPUs and the rest of one, such as 2.5, instead of --request.",
)
@click.option(
    "--memory",
    help="Of the GPU's memory: 4Gi, or a share such as .25.  [default: the share of --request]",
)
@click.option("--gpu", help="Index or UUID.  [default: the first GPU with enough room]")
@click.option("--quota", help="Longest time at a turn: 100ms, .05s.  [default: the daemon's]")
@click.option("--fake", metavar="PROFILE", help="Use fake GPUs, for example V100x2.")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def run(  # noqa: PLR0913  one argument an option
    *,
    request: str | None,
    limit: str | None,
    limit_alone: str | None,
    latency_sensitive: bool,
    gpus: str | None,
    memory: str | None,
    gpu: str | None,
    quota: str | None,
    fake: str | None,
    command: tuple[str, ...],
) -> int:
    """Run COMMAND on a share of one of this machine's GPUs, or on several GPUs.

    The command sees a GPU with as much memory as --memory. With --gpus 2.5 it sees two whole
    GPUs and then one with half of its time and memory. Needs no root and no cluster; starts
    a token daemon when none runs, which ends by itself.
    """
    if gpus is not None:
        amounts = {"--request": request, "--limit": limit, "--limit-alone": limit_alone}
        flag = {"--latency-sensitive": "" if latency_sensitive else None}
        _check_excluded({**amounts, **flag, "--memory": memory, "--gpu": gpu})
        shares = read_gpus(gpus)
    elif request is None:
        raise click.UsageError("give --request, a share of one GPU, or --gpus, a number of GPUs")
    else:
        share = read_share(request, limit, limit_alone, memory, latency_sensitive=latency_sensitive)
        shares = (share,)
    quota_ns = None if quota is None else parse_quota(quota)
    program = shutil.which(command[0])
    if program is None:
        click.echo(f"kubeshare run: {command[0]}: no such command", err=True)
        return EXIT_NOT_FOUND
    paths = Paths(default_run_folder())
    variables = dict(os.environ)
    library = None
    if fake is not None:
        _check_profile(fake)
        added = fake_gpus(paths, fake)
        variables.update(added)
        os.environ.update(added)  # for the NVML that is loaded into this process
        library = native.path(f"{native.FAKE_DRIVER_FOLDER}/libnvidia-ml.so.1")
    device_library = native.path(native.DEVICE_LIBRARY)
    chosen = choose(gpus_of_machine(library), gpu)

    try:
        wanted = attempts(shares, chosen, lambda: ask_held(paths))
        granted, refusals = _first_that_fits(paths, wanted, quota_ns, library)
    except NoRoomError as error:
        granted, refusals = None, error.reasons
    if granted is None:
        for refusal in refusals:
            click.echo(f"kubeshare run: refused: {refusal}", err=True)
        return EXIT_REFUSED
    variables.update(_claim_variables(paths, granted, device_library, variables))
    return _become(program, command, variables, paths, granted.claim)


def _check_excluded(options: Mapping[str, str | None]) -> None:
    """Refuse options of one share beside a number of GPUs.

    Raises:
        InvalidValueError: one of them is given.
    """
    given = [name for name, value in options.items() if value is not None]
    if given:
        raise InvalidValueError(
            "--gpus",
            f"gives whole GPUs and the rest of one, with the same part of their memory: leave "
            f"{' and '.join(given)} out, or ask for a share of one GPU with --request",
        )


def parse_quota(text: str) -> int:
    """Read a duration such as `100ms`, in ns.

    Raises:
        InvalidValueError: no duration, or not within 5 ms and 10 s.
    """
    match = _DURATION.fullmatch(text if not text.startswith(".") else f"0{text}")
    if match is None:
        raise InvalidValueError("--quota", f'"{text}" is not a duration such as 100ms or .05s')
    quota_ns = round(float(match[1]) * _UNIT_NS[match[2]])
    if not _QUOTA_NS_MIN <= quota_ns <= _QUOTA_NS_MAX:
        raise InvalidValueError("--quota", f"{text} is not within 5ms and 10s")
    return quota_ns


def fake_gpus(paths: Paths, profile: str) -> dict[str, str]:
    """Build the environment of a profile's fake GPUs, shared by all commands of one user.

    The profile's name seeds the UUIDs, so GPUs of two profiles never look the same.
    """
    from kubeshare.fakegpu import environment  # noqa: PLC0415  not on the way to real GPUs

    paths.make()
    state = paths.root / f"fakegpu-{Path(profile).name}"
    return environment(profile, state=state, seed=Path(profile).name)


def _check_profile(profile: str) -> None:
    """Refuse a profile that cannot be used, before the fake libraries complain of it too.

    Raises:
        InvalidValueError: what is wrong with it.
    """
    from kubeshare import fakegpu  # noqa: PLC0415  not on the way to real GPUs

    try:
        fakegpu.gpus(profile)
    except fakegpu.FakeGpuError as error:
        raise InvalidValueError("--fake", str(error)) from None


def _first_that_fits(
    paths: Paths,
    attempts: Iterator[tuple[GrantedShare, ...]],
    quota_ns: int | None,
    nvml: Path | None,
) -> tuple[Grant | None, Sequence[str]]:
    """Ask for one set of shares after another; return the refusals if all are refused."""
    start_time = process_start_time(os.getpid())
    assert start_time is not None
    refusals = []
    for shares in attempts:
        grant = Grant(
            version=GRANT_VERSION,
            claim=f"run-{os.getpid()}-{os.urandom(4).hex()}",
            gpus=shares,
            owner=Owner(pid=os.getpid(), start_time=start_time),
            quota_ns=quota_ns,
        )
        try:
            status = _ask(paths, grant, nvml)
        except BaseException:
            remove_grant(paths, grant.claim)
            raise
        if status.state == "ACTIVE":
            return grant, []
        refusals.append(status.reason)
        remove_grant(paths, grant.claim)
    return None, refusals


def _ask(paths: Paths, grant: Grant, nvml: Path | None) -> Status:
    """Write a grant and wait for the daemon's answer; start a daemon if none runs."""
    write_grant(paths, grant)
    for _ in range(_ANSWER_TRIES):
        if not is_answering(paths):
            start_daemon(paths, nvml)
        try:
            return wait_status(paths, grant.claim, _ANSWER_TIMEOUT_S)
        except (
            DaemonMissingError
        ):  # an idle daemon may have ended just before the grant was written
            continue
    return wait_status(paths, grant.claim, _ANSWER_TIMEOUT_S)


def _claim_variables(
    paths: Paths, grant: Grant, device_library: Path, present: Mapping[str, str]
) -> dict[str, str]:
    """The variables that connect the command to its session."""
    preloaded = present.get("LD_PRELOAD")
    return {
        "LD_PRELOAD": f"{device_library}:{preloaded}" if preloaded else str(device_library),
        "CUDA_VISIBLE_DEVICES": ",".join(gpu.uuid for gpu in grant.gpus),
        CLAIM_FOLDER_ENV: str(paths.claim(grant.claim).absolute()),
        COUNTERS_FILE_ENV: str(paths.counters(grant.claim).absolute()),
    }


def _become(
    program: str,
    command: tuple[str, ...],
    variables: Mapping[str, str],
    paths: Paths,
    claim: str,
) -> int:
    """Execute the command in place of this process; return only when that fails."""
    for ignored_by_python in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(ignored_by_python, signal.SIG_DFL)
    try:
        os.execve(program, command, variables)  # noqa: S606  running it is what was asked
    except OSError as error:
        remove_grant(paths, claim)
        click.echo(f"kubeshare run: {command[0]}: {error.strerror}", err=True)
        return EXIT_NOT_EXECUTABLE
