"""Jobs that share a GPU, and what they and the token daemon say of a stretch of time."""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import msgspec
from msgspec import Struct

from bench.node import machine
from kubeshare import fakegpu
from kubeshare.tokens.client import ask_snapshot, is_answering
from kubeshare.tokens.files.run_folder import Paths
from kubeshare.tokens.files.statuses import DaemonMissingError

_LINES_AT_MOST = 10_000
_FIRST_LINE_SECONDS = 60.0
_LAST_LINE_SECONDS = 0.5
_DAEMON_SECONDS = 15.0


class NoGpuError(Exception):
    """No GPU answers on this machine."""


class Share(Struct, frozen=True):
    """What a client is given; as `kubeshare run` takes it."""

    request: str
    limit: str = "1"
    memory: str = "1Gi"
    quota: str = ""


class Client:
    """A running job and the rates that it has printed.

    A job prints ``{"kernels_per_s": …}`` about once a second and a summary at the
    end, as ``burn`` does.
    """

    def __init__(self, command: list[str], environment: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            command, env=dict(environment), stdout=subprocess.PIPE, text=True
        )
        self._rates: list[tuple[float, float]] = []
        self._summary: dict[str, Any] = {}
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        """Of the job: `kubeshare run` becomes its command."""
        return self._process.pid

    def rate(self, since: float, until: float) -> float:
        """Kernels a second by the lines printed in a stretch of `time.monotonic` seconds.

        A line covers the second before it. Without a line the job got no turn, which by the
        paper's window can last seconds after another job has started: 0.

        Raises:
            RuntimeError: It has ended.
        """
        half = 0.5
        rates = [rate for when, rate in list(self._rates) if since + half <= when <= until + half]
        if self._process.poll() is not None:
            raise RuntimeError(f"{self._process.args!r} ended within {until - since:.1f} s")
        return sum(rates) / len(rates) if rates else 0.0

    def wait_for_first_line(self, seconds: float) -> None:
        """Wait until the job has said that it works.

        Raises:
            RuntimeError: It ended before, or took too long.
        """
        deadline = time.monotonic() + seconds
        while not self._rates:
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{self._process.args!r} ended or hangs before it printed")
            time.sleep(0.02)

    def wait(self, seconds: float) -> int:
        """The exit code, minus the signal's number where one ended it.

        Raises:
            RuntimeError: It has not ended by then.
        """
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise RuntimeError(f"{self._process.args!r} still runs after {seconds} s") from None

    def finish(self) -> dict[str, Any]:
        """Tell the job to stop, and return the summary that it then prints.

        Raises:
            RuntimeError: The job failed, or printed none.
        """
        self.end()
        if self._process.returncode != 0 or not self._summary:
            code = self._process.returncode
            raise RuntimeError(f"{self._process.args!r} ended with {code}, without a summary")
        return self._summary

    def end(self) -> None:
        """Stop the job, if it still runs, and wait for it."""
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._reader.join(timeout=5)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for text in self._process.stdout:
            line = json.loads(text) if text.startswith("{") else {}
            if "kernels_per_s" in line and len(self._rates) < _LINES_AT_MOST:
                self._rates.append((time.monotonic(), float(line["kernels_per_s"])))
            self._summary = line.get("summary", self._summary)


class Bench(Struct, frozen=True):
    """Where clients run: a run folder of its own, on real GPUs or on fake ones."""

    environment: dict[str, str]
    profile: str | None
    pace: float
    work: float
    """Rounds of arithmetic that the GPU does in a microsecond when it has nothing else to do."""

    def burn(self, *options: str) -> list[str]:
        """The command line of a job whose kernels do fixed work on all of the GPU."""
        return machine.burn("--work", str(self.work), *options)

    def seconds(self, wanted: float) -> float:
        """A duration, shortened when only the script itself is tried."""
        return max(1.5, wanted * self.pace)

    @contextmanager
    def clients(self) -> Iterator["Clients"]:
        """Clients that are all ended with the block."""
        clients = Clients(self)
        try:
            yield clients
        finally:
            clients.end()

    @contextmanager
    def by_the_papers_window(self) -> Iterator["Bench"]:
        """The same with a run folder whose daemon compares use in the last 10 s, as the paper.

        Raises:
            RuntimeError: The daemon does not start.
        """
        with machine.run_folder() as environment:
            folder = environment["KUBESHARE_RUN"]
            command = [sys.executable, "-m", "kubeshare.tokens", "--run-folder", folder]
            with subprocess.Popen([*command, "--usage", "window"], stdout=subprocess.DEVNULL) as it:
                try:
                    _wait_for_daemon(it, Paths(Path(folder)))
                    own = {key: environment[key] for key in ("KUBESHARE_RUN", "FAKEGPU_STATE")}
                    yield msgspec.structs.replace(self, environment=self.environment | own)
                finally:
                    it.terminate()

    def command(self, command: list[str], share: Share | None) -> list[str]:
        """The command line that runs a job with a share, or (None) with nothing between."""
        if share is None:
            return command
        quota = ["--quota", share.quota] if share.quota else []
        return [
            *(*machine.KUBESHARE, "run", "--request", share.request, "--limit", share.limit),
            *("--memory", share.memory, *quota),
            *(["--fake", self.profile] if self.profile else []),
            *("--", *command),
        ]

    def outside(self) -> dict[str, str]:
        """The environment of a program that uses the GPU with nothing of ours between.

        On fake GPUs it shares the engine of those that `kubeshare run` gives shares of.
        """
        if self.profile is None:
            return self.environment
        state = Path(self.environment["KUBESHARE_RUN"]) / f"fakegpu-{self.profile}"
        state.mkdir(parents=True, exist_ok=True)
        return self.environment | fakegpu.environment(self.profile, state)


class Stretch(Struct, frozen=True):
    """What was seen in a stretch of time, by client: fractions of the GPU and kernels a second."""

    seconds: float
    charged: dict[str, float]
    rates: dict[str, float]
    turns: dict[str, int]

    def throughput(self, kernel_us: Mapping[str, float]) -> dict[str, float]:
        """Time of the GPU that finished kernels stand for, as fractions."""
        return {name: rate * kernel_us[name] / 1e6 for name, rate in self.rates.items()}


class Clients:
    """Named jobs that run side by side."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._running: dict[str, Client] = {}

    def start(self, name: str, share: Share | None, *options: str) -> Client:
        """Start ``burn`` with these options."""
        return self.start_command(name, share, self._bench.burn(*options))

    def start_command(self, name: str, share: Share | None, command: list[str]) -> Client:
        """Start any job that prints as ``burn`` does."""
        bench = self._bench
        environment = bench.outside() if share is None else bench.environment
        client = Client(bench.command(command, share), environment)
        self._running[name] = client
        return client

    def stop(self, name: str) -> None:
        """End one of them."""
        self._running.pop(name).end()

    def end(self) -> None:
        """End all of them."""
        for name in list(self._running):
            self.stop(name)

    def watch(self, settle: float, seconds: float) -> Stretch:
        """Wait until all of them work, let them settle, then watch for a while; in seconds.

        Raises:
            RuntimeError: One of them does not work.
        """
        for client in self._running.values():
            client.wait_for_first_line(_FIRST_LINE_SECONDS)
        time.sleep(settle)
        before, since = self._charges(), time.monotonic()
        time.sleep(seconds)
        after, until = self._charges(), time.monotonic()
        elapsed = until - since
        time.sleep(_LAST_LINE_SECONDS)
        running = self._running.items()
        held = {name: after[name].minus(before.get(name)) for name in after}
        return Stretch(
            elapsed,
            {name: charge.ns / 1e9 / elapsed for name, charge in held.items()},
            {name: client.rate(since, until) for name, client in running},
            {name: charge.turns for name, charge in held.items()},
        )

    def _charges(self) -> dict[str, "_Charge"]:
        names = {client.pid: name for name, client in self._running.items()}
        try:
            answer = ask_snapshot(Paths(Path(self._bench.environment["KUBESHARE_RUN"])))
        except DaemonMissingError:
            return {}  # no client has a share, so no daemon was needed
        charges: dict[str, _Charge] = {}
        for claim in answer["claims"]:
            pid = int(claim["claim"].split("-")[1])
            if pid in names:
                charges[names[pid]] = _Charge(claim["chargedNs"], claim["waits"])
        return charges


class _Charge(Struct, frozen=True):
    ns: int
    turns: int

    def minus(self, before: Self | None) -> "_Charge":
        if before is None:
            return self
        return _Charge(self.ns - before.ns, self.turns - before.turns)


def _wait_for_daemon(daemon: subprocess.Popen[bytes], paths: Paths) -> None:
    deadline = time.monotonic() + _DAEMON_SECONDS
    while not is_answering(paths):
        if daemon.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"the token daemon of {paths.root} ended or hangs at its start")
        time.sleep(0.02)


@contextmanager
def bench(profile: str | None, pace: float) -> Iterator[Bench]:
    """A run folder with a daemon of its own, ended with the block."""
    with machine.run_folder() as environment:
        environment["PYTHONUNBUFFERED"] = "1"
        place = Bench(environment=environment, profile=profile, pace=pace, work=0)
        yield msgspec.structs.replace(place, work=calibrate(place))


def calibrate(place: Bench) -> float:
    """Rounds of `burn`'s work in a microsecond of a GPU that does nothing else.

    Raises:
        NoGpuError: the driver has none, or it does not answer; the text says what was printed.
    """
    done = subprocess.run(
        machine.burn("--calibrate"),
        env=place.outside(),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    if done.returncode != 0:
        raise NoGpuError((done.stderr or done.stdout).strip())
    return float(json.loads(done.stdout)["work"])
