"""Our extender and Alibaba's as processes that read the same API server."""

import http.client
import json
import os
import re
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

import yaml
from msgspec import Struct

from kubeshare.extender.service import INSPECT, PREFIX
from kubeshare.lab import processes
from kubeshare.lab.control_plane.ports import reserve_ports

_HOST: Final = "127.0.0.1"
_START_SECONDS: Final = 600.0
_POLL_SECONDS: Final = 0.2
_REST_SECONDS: Final = 0.002


class StartError(Exception):
    """An extender does not answer."""


class CallError(Exception):
    """An extender answers with an error."""


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

    def call(self, verb: str, arguments: bytes) -> Any:
        """Sends a call; returns the JSON of the answer.

        Raises:
            CallError: the extender refuses.
        """
        return self._decode(*self._send(verb, arguments))

    def inspect(self) -> dict[str, dict[str, Any]]:
        """Name of each node that it knows → the node with its GPUs and their pods, by name.

        Raises:
            CallError: the extender refuses.
        """
        self._connection.request("GET", INSPECT)
        response = self._connection.getresponse()
        nodes = self._decode(response.status, response.read())["nodes"]
        for node in nodes:
            for gpu in node["devs"]:
                gpu["pods"].sort(key=itemgetter("name"))
        return {node["name"]: node for node in nodes}

    def filter(self, arguments: bytes) -> Answer:
        """Sends a filter.

        Raises:
            CallError: the extender refuses.
        """
        cpu, wall = self.cpu_seconds(), time.perf_counter()
        status, body = self._send("filter", arguments)
        ended = time.perf_counter()
        # The kernel counts the time of a thread on another processor when the thread rests.
        time.sleep(_REST_SECONDS)
        used = self.cpu_seconds() - cpu
        names = frozenset(self._decode(status, body)["NodeNames"])
        return Answer(names=names, cpu_ms=used * 1e3, wall_ms=(ended - wall) * 1e3)

    def _send(self, verb: str, arguments: bytes) -> tuple[int, bytes]:
        headers = {"Content-Type": "application/json"}
        self._connection.request("POST", f"{PREFIX}/{verb}", arguments, headers)
        response = self._connection.getresponse()
        return response.status, response.read()

    @staticmethod
    def _decode(status: int, body: bytes) -> Any:
        if status != http.HTTPStatus.OK:
            raise CallError(f"{status}: {body[:200]!r}")
        found = json.loads(body)
        if found.get("Error"):
            raise CallError(found["Error"])
        return found

    def cpu_seconds(self) -> float:
        """Processor time of the process so far."""
        return time.clock_gettime(self._clock)

    def resident_mib(self) -> float:
        """Memory of the process."""
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        [kilobytes] = re.findall(r"^VmRSS:\s+(\d+) kB", status, re.MULTILINE)
        return int(kilobytes) / 1024

    def wait(self, arguments: bytes) -> None:
        """Wait until it answers a filter.

        Raises:
            StartError: it ended, or does not answer within ten minutes.
        """
        deadline = time.monotonic() + _START_SECONDS
        while True:
            try:
                self.call("filter", arguments)
            except (OSError, http.client.HTTPException, CallError) as error:
                self._connection.close()
                if not processes.alive(self._process) or time.monotonic() > deadline:
                    raise StartError(f"no answer to a filter: {error}") from error
                time.sleep(_POLL_SECONDS)
            else:
                return


@contextmanager
def our_extender(kubeconfig: Path, log: Path) -> Iterator[Extender]:
    """Run ours."""
    port, health = reserve_ports(2)
    argv = [sys.executable, "-m", "kubeshare.extender", "--kubeconfig", str(kubeconfig)]
    argv += ["--port", str(port), "--health-port", str(health)]
    with _running(argv, log, {"NO_PROXY": _HOST, "no_proxy": _HOST}) as process:
        yield Extender(process, port)


@contextmanager
def alibabas_extender(binary: Path, kubeconfig: Path) -> Iterator[Extender]:
    """Run Alibaba's, which the user has built."""
    (port,) = reserve_ports(1)
    # Its quietest level, for its sake: its own manifest sets debug. It writes several lines for
    # each node of each filter at any level.
    environment = {"KUBECONFIG": str(kubeconfig), "PORT": str(port), "LOG_LEVEL": "error"}
    with _running([str(binary)], Path(os.devnull), environment) as process:
        yield Extender(process, port)


@contextmanager
def _running(
    argv: Sequence[str], log: Path, environment: Mapping[str, str]
) -> Iterator[processes.Process]:
    process = processes.start(["setpriv", "--pdeathsig", "KILL", *argv], log, environment)
    try:
        yield process
    finally:
        processes.stop([process], gently=False)


def write_kubeconfig(path: Path, url: str) -> Path:
    """Writes a kubeconfig for a plain HTTP server."""
    named = {"name": "bench"}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "bench",
        "clusters": [named | {"cluster": {"server": url}}],
        "users": [named | {"user": {}}],
        "contexts": [named | {"context": {"cluster": "bench", "user": "bench"}}],
    }
    path.write_text(yaml.safe_dump(config))
    return path
