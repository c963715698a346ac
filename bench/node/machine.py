"""A run folder and a fake GPU of the bench's own, and who works on it."""

import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kubeshare import fakegpu, native

KUBESHARE = (sys.executable, "-m", "kubeshare")


@contextmanager
def run_folder() -> Iterator[dict[str, str]]:
    """An environment in which `kubeshare run` and the fake GPU keep to a folder of their own."""
    with tempfile.TemporaryDirectory(prefix="kubeshare-bench-", dir="/dev/shm") as name:
        environment = dict(os.environ)
        environment["KUBESHARE_RUN"] = f"{name}/run"
        environment["FAKEGPU_STATE"] = f"{name}/gpu"
        Path(environment["KUBESHARE_RUN"]).mkdir()
        Path(environment["FAKEGPU_STATE"]).mkdir()
        try:
            yield environment
        finally:
            end_daemon(Path(environment["KUBESHARE_RUN"]))


def end_daemon(folder: Path) -> None:
    """End the daemon that `kubeshare run` has started in a run folder."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
            if b"kubeshare.tokens" in words and os.fsencode(folder) in words:
                os.kill(int(process.name), signal.SIGTERM)
        except OSError:
            continue


def kubeshare_run(request: str, limit: str, profile: str, memory: str = "1Gi") -> list[str]:
    """The beginning of a command line that gives the rest a share."""
    return [
        *(*KUBESHARE, "run", "--request", request, "--limit", limit),
        *("--memory", memory, "--fake", profile, "--"),
    ]


def burn(*options: str) -> list[str]:
    """The workload's command line."""
    return [str(native.path("burn")), *options]


def on_fake(environment: dict[str, str], profile: str) -> dict[str, str]:
    """The environment of a program that uses the fake GPU with nothing of ours between."""
    return environment | fakegpu.environment(profile, Path(environment["FAKEGPU_STATE"]))
