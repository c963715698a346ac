"""Client of the token daemon: find it, start it, send it requests.

It uses plain blocking sockets: every `kubeshare run` imports this module, and importing
an event loop would take longer than everything else in it.
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
"""How long a daemon that `kubeshare run` started keeps running without a grant."""

DRIVERS_NVML: Final = "libnvidia-ml.so.1"

_REPLY_MAX = 16 * 1024 * 1024
_TIMEOUT_S = 5.0
_START_TIMEOUT_S = 60.0
_START_AGAIN_S = 3.0
"""At first; then twice as long each time: a busy machine is not to get ever more to start."""


class RequestRefusedError(Exception):
    """The daemon refused a request; the message is its own."""

    exit_code = 1


def ask(paths: Paths, request: str, **values: str | int) -> dict[str, Any]:
    """Send a request to the daemon and return its reply; `control` lists both.

    Raises:
        DaemonMissingError: no daemon answers.
        RequestRefusedError: the daemon refuses; the message says why.
    """
    try:
        with _connect(paths) as connection:
            connection.sendall(json.dumps({"request": request, **values}).encode() + b"\n")
            with connection.makefile("rb") as reader:
                reply: dict[str, Any] = json.loads(reader.readline(_REPLY_MAX))
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
    """Get the state of all sessions; `snapshot.entries` describes the fields.

    Raises:
        DaemonMissingError: no daemon answers.
    """
    return ask(paths, "snapshot")


def ask_connections(paths: Paths) -> dict[str, list[int]]:
    """Get the pids of each claim's connected processes, in the daemon's PID namespace.

    Raises:
        DaemonMissingError: no daemon answers.
    """
    return {entry["claim"]: entry["pids"] for entry in ask(paths, "connections")["claims"]}


def ask_hung(paths: Paths) -> dict[str, dict[str, list[int]]]:
    """Get the claims whose work on a GPU did not end in time: claim → GPU → pids, as above.

    Raises:
        DaemonMissingError: no daemon answers.
        RequestRefusedError: the daemon is older than this request.
    """
    return {entry["claim"]: entry["gpus"] for entry in ask(paths, "hung")["claims"]}


def set_overhead(paths: Paths, claim: str, uuid: str, overhead_bytes: int) -> None:
    """Report the memory that the driver counts for a claim beyond what its library tracks.

    Raises:
        DaemonMissingError: no daemon answers.
        RequestRefusedError: there is no such claim, or it has no share of this GPU.
    """
    ask(paths, "overhead", claim=claim, uuid=uuid, bytes=overhead_bytes)


def is_answering(paths: Paths) -> bool:
    """Whether a daemon answers."""
    try:
        _connect(paths).close()
    except OSError:
        return False
    return True


def start_daemon(paths: Paths, nvml: Path | None = None) -> None:
    """Start a daemon that exits when it is idle, and wait until it answers.

    Starting two at once is harmless: the second one finds the lock taken. `nvml` is the
    library that the daemon asks for the driver's counts; None: the one that the loader finds.

    Raises:
        DaemonMissingError: it did not start.
    """
    paths.make()
    _spawn(paths, nvml)
    began = spawned = time.monotonic()
    pause = _START_AGAIN_S
    while not is_answering(paths):
        now = time.monotonic()
        if now > began + _START_TIMEOUT_S:
            raise DaemonMissingError(f"the token daemon did not start: {_last_line(paths.log)}")
        if now > spawned + pause:
            _spawn(paths, nvml)  # the last daemon was ending, and had the lock still
            spawned, pause = now, 2 * pause
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
    """Start it as no child of this process, which may wait for children of its own."""
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
