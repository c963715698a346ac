"""Our extender and Alibaba's as processes that read the same API server."""

import http.client
import json
import os
import re
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import yaml
from msgspec import Struct

from kubeshare.extender.service import PREFIX
from kubeshare.lab import processes
from kubeshare.lab.control_plane.ports import reserve_ports

_HOST: Final = "127.0.0.1"
_START_SECONDS: Final = 600.0
_POLL_SECONDS: Final = 0.2
_REST_SECONDS: Final = 0.002


class StartError(Exception):
    """An extender does not answer."""


class Answer(Struct, frozen=True):
    """The answer to a filter, and what it took.

    Attributes:
        names: the nodes that fit.
        cpu_ms: processor time of the extender, of all its threads, until 2 ms after the answer.
        wall_ms: from the first byte of the request to the last of the answer.
    """

    names: frozenset[str]
    cpu_ms: float
    wall_ms: float


class Extender:
    """A running extender, called over one connection as kube-scheduler does.

    Args:
        process: runs it.
        port: on which it serves.
    """

    def __init__(self, process: processes.Process, port: int) -> None:
        self._process = process
        self._connection = http.client.HTTPConnection(_HOST, port)
        # The clock of another process: CPUCLOCK_SCHED of its pid, as clock_getcpuclockid has it.
        self._clock = (~process.pid << 3) | 2

    def filter(self, arguments: bytes) -> Answer:
        """Sends a filter."""
        path, headers = f"{PREFIX}/filter", {"Content-Type": "application/json"}
        cpu, wall = self.cpu_seconds(), time.perf_counter()
        self._connection.request("POST", path, arguments, headers)
        response = self._connection.getresponse()
        body = response.read()
        ended = time.perf_counter()
        # The kernel counts the time of a thread on another processor when the thread rests.
        time.sleep(_REST_SECONDS)
        used = self.cpu_seconds() - cpu
        if response.status != http.HTTPStatus.OK:
            raise http.client.HTTPException(f"{response.status}: {body[:200]!r}")
        found = json.loads(body)
        if found.get("Error"):
            raise http.client.HTTPException(found["Error"])
        names = frozenset(found["NodeNames"])
        return Answer(names=names, cpu_ms=used * 1e3, wall_ms=(ended - wall) * 1e3)

    def cpu_seconds(self) -> float:
        """Processor time of the process so far."""
        return time.clock_gettime(self._clock)

    def resident_mib(self) -> float:
        """Memory of the process."""
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        [kilobytes] = re.findall(r"^VmRSS:\s+(\d+) kB", status, re.MULTILINE)
        return int(kilobytes) / 1024

    def wait(self, arguments: Mapping[str, Any]) -> None:
        """Wait until it answers.

        Raises:
            StartError: it ended, or does not answer within ten minutes.
        """
        body, deadline = json.dumps(arguments).encode(), time.monotonic() + _START_SECONDS
        while True:
            try:
                self.filter(body)
            except (OSError, http.client.HTTPException) as error:
                self._connection.close()
                if not processes.alive(self._process) or time.monotonic() > deadline:
                    raise StartError(f"no answer to a filter: {error}") from error
                time.sleep(_POLL_SECONDS)
            else:
                return


@contextmanager
def running(binary: Path, url: str, folder: Path) -> Iterator[tuple[Extender, Extender]]:
    """Run both; yields ours and Alibaba's.

    Args:
        binary: Alibaba's, built by the user.
        url: of the API server, plain HTTP.
        folder: gets our log and a kubeconfig.
    """
    kubeconfig = write_kubeconfig(folder / "kubeconfig", url)
    port, health, other_port = reserve_ports(3)
    options = ["--kubeconfig", str(kubeconfig), "--port", str(port), "--health-port", str(health)]
    ours = ["setpriv", "--pdeathsig", "KILL", sys.executable, "-m", "kubeshare.extender", *options]
    theirs = ["setpriv", "--pdeathsig", "KILL", str(binary)]
    # Its quietest level, for its sake: its own manifest sets debug.
    quiet = {"KUBECONFIG": str(kubeconfig), "PORT": str(other_port), "LOG_LEVEL": "error"}
    started = [
        processes.start(ours, folder / "extender.log", {"NO_PROXY": _HOST, "no_proxy": _HOST}),
        # It writes several lines for each node of each filter at any level.
        processes.start(theirs, Path(os.devnull), quiet),
    ]
    try:
        yield Extender(started[0], port), Extender(started[1], other_port)
    finally:
        processes.stop(started, gently=False)


def write_kubeconfig(path: Path, url: str) -> Path:
    """Writes a kubeconfig for a plain HTTP server."""
    cluster = {"name": "bench", "cluster": {"server": url}}
    user = {"name": "bench", "user": {}}
    context = {"name": "bench", "context": {"cluster": "bench", "user": "bench"}}
    config = {"apiVersion": "v1", "kind": "Config", "current-context": "bench"}
    config |= {"clusters": [cluster], "users": [user], "contexts": [context]}  # type: ignore[dict-item]
    path.write_text(yaml.safe_dump(config))
    return path
