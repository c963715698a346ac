"""From the other side: is there a daemon, start one, ask it who holds what.

Plain blocking sockets: this is on the way of every `kubeshare run`, where
importing an event loop alone would cost more than all the rest.
"""

import json
import os
import socket
import sys
import time
from pathlib import Path
from typing import Any, Final

from kubeshare.tokens.files.run_folder import Paths
from kubeshare.tokens.files.statuses import DaemonMissingError

IDLE_EXIT_S: Final = 30
"""How long a daemon that `kubeshare run` started outlives the last grant."""

DRIVERS_NVML: Final = "libnvidia-ml.so.1"

_ANSWER_MAX = 16 * 1024 * 1024
_TIMEOUT_S = 5.0
_START_TIMEOUT_S = 15.0


class RequestRefusedError(Exception):
    """The daemon answered that it cannot do what it was asked; the message is its own."""

    exit_code = 1


def ask(paths: Paths, request: str, **values: str | int) -> dict[str, Any]:
    """Ask a machine's daemon something; `control` has the requests and their answers.

    Raises:
        DaemonMissingError: no daemon answers.
        RequestRefusedError: it says why it cannot.
    """
    try:
        with _connect(paths) as connection:
            connection.sendall(json.dumps({"request": request, **values}).encode() + b"\n")
            with connection.makefile("rb") as answer:
                reply: dict[str, Any] = json.loads(answer.readline(_ANSWER_MAX))
    except (OSError, ValueError) as error:
        raise DaemonMissingError(
            f"no token daemon answers on {paths.control} ({error}): "
            "`kubeshare run` starts one; in a cluster it is the node's pod of "
            "kubeshare-token-daemon"
        ) from None
    if "error" in reply:
        raise RequestRefusedError(reply["error"])
    return reply


def ask_snapshot(paths: Paths) -> dict[str, Any]:
    """Ask a machine's daemon who holds what; the fields are those of `snapshot.entries`.

    Raises:
        DaemonMissingError: no daemon answers.
    """
    return ask(paths, "snapshot")


def ask_connections(paths: Paths) -> dict[str, list[int]]:
    """The pids of each claim's connected processes, as the daemon's PID namespace shows them.

    Raises:
        DaemonMissingError: no daemon answers.
    """
    return {entry["claim"]: entry["pids"] for entry in ask(paths, "connections")["claims"]}


def set_overhead(paths: Paths, claim: str, uuid: str, overhead_bytes: int) -> None:
    """Tell what the driver counts for a claim on a GPU beyond what its library tracks.

    Raises:
        DaemonMissingError: no daemon answers.
        RequestRefusedError: it knows no such claim, or no such part of it.
    """
    ask(paths, "overhead", claim=claim, uuid=uuid, bytes=overhead_bytes)


def is_answering(paths: Paths) -> bool:
    """Whether there is a daemon."""
    try:
        _connect(paths).close()
    except OSError:
        return False
    return True


def start_daemon(paths: Paths, nvml: Path | None = None) -> None:
    """Start a daemon that ends by itself, and wait until there is one.

    Two that are started at once are no harm: the second finds the lock taken.

    Args:
        paths: of the run folder.
        nvml: the NVML that it asks what the driver counts; None: the one that the loader finds.

    Raises:
        DaemonMissingError: it did not come up.
    """
    paths.make()
    _spawn(paths, nvml)
    deadline = time.monotonic() + _START_TIMEOUT_S
    while not is_answering(paths):
        if time.monotonic() > deadline:
            raise DaemonMissingError(f"the token daemon did not start: {_last_line(paths.log)}")
        time.sleep(0.005)


def _connect(paths: Paths) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.settimeout(_TIMEOUT_S)
        connection.connect(str(paths.control))
    except BaseException:
        connection.close()
        raise
    return connection


def _spawn(paths: Paths, nvml: Path | None) -> None:
    """Start it as nobody's child: whoever called us may wait for children of its own."""
    middle = os.fork()
    if middle:
        os.waitpid(middle, 0)
        return
    try:
        os.setsid()
        if os.fork() == 0:
            _become_daemon(paths, nvml)
    finally:
        os._exit(1)


def _become_daemon(paths: Paths, nvml: Path | None) -> None:
    nothing = os.open(os.devnull, os.O_RDONLY)
    log = os.open(paths.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for target, source in ((0, nothing), (1, log), (2, log)):
        os.dup2(source, target)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    os.chdir("/")
    command = [sys.executable, "-m", "kubeshare.tokens", "--run-folder", str(paths.root.absolute())]
    command += ["--idle-exit", str(IDLE_EXIT_S), "--nvml", str(nvml or DRIVERS_NVML)]
    os.execv(sys.executable, command)  # noqa: S606  our own program


def _last_line(log: Path) -> str:
    try:
        lines = log.read_text(errors="replace").strip().splitlines()
    except OSError as error:
        return str(error)
    return lines[-1] if lines else f"{log} says nothing"
