"""``python -m fakes.node.watch_program DRIVER RUN CGROUPS POLICY``: an agent's watch of its GPUs.

NVML is that of the driver below DRIVER, the token daemon's run folder RUN; a process's
cgroup is the text of the file CGROUPS/PID. What a pod's events would say is printed, a JSON
list a line: the reason, the pod's name, the note; before them `[]`: it is about to watch.
A process of its own, since NVML, once loaded, stays for the life of a process.
"""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any, cast

from kubeshare.kube.controller.events import EventRecorder, ObjectReference
from kubeshare.kube.logs import configure_logging
from kubeshare.node.escapes.sampling import Sampler
from kubeshare.node.escapes.watcher import EscapePolicy, EscapeWatch
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
    asyncio.run(EscapeWatch(use, dict, events, policy=policy).run())


if __name__ == "__main__":
    _, driver, run, cgroups, policy = sys.argv
    main(driver, run, cgroups, cast("EscapePolicy", policy))
