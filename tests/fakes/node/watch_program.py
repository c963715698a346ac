"""Runs an agent's escape watcher as a program.

    python -m fakes.node.watch_program DRIVER RUN CGROUPS POLICY

It loads NVML from below DRIVER; RUN is the token daemon's run folder, and the file
CGROUPS/PID is a process's cgroup. It prints the events, a JSON list a line (reason, pod,
note), and before them `[]` when it is about to start. It is a process of its own because
NVML, once loaded, stays loaded for the life of a process.
"""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any, cast

from kubeshare.kube.controller.events import EventRecorder, ObjectReference
from kubeshare.kube.logs import configure_logging
from kubeshare.node.escapes.policy import EscapePolicy
from kubeshare.node.escapes.sampling import Sampler
from kubeshare.node.escapes.watcher import EscapeWatch
from kubeshare.node.gpus.discovery import NvmlGpus
from kubeshare.tokens.files.run_folder import Paths


class _Printer:
    """In the place of a recorder of events."""

    def emit(
        self, regarding: ObjectReference, reason: str, _action: str, note: str, **_: Any
    ) -> None:
        sys.stdout.write(json.dumps([reason, regarding.name, note]) + "\n")
        sys.stdout.flush()


def main(driver: str, run: str, cgroups: str, policy: EscapePolicy) -> None:
    """Watch until killed."""
    configure_logging()
    use = Sampler(
        Paths(Path(run)),
        NvmlGpus(Path(driver)).processes,
        lambda pid: (Path(cgroups) / str(pid)).read_text(),
    )
    events = cast("EventRecorder", _Printer())
    sys.stdout.write("[]\n")
    sys.stdout.flush()
    asyncio.run(EscapeWatch(use, dict, events, policy=lambda: policy).run())


if __name__ == "__main__":
    _, driver, run, cgroups, policy = sys.argv
    main(driver, run, cgroups, cast("EscapePolicy", policy))
