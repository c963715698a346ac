"""A machine of the lab, made of namespaces.

Its first process only holds the namespaces and reaps orphans (``lab/pause.c``). When it is
killed, the kernel kills everything else in its PID namespace, and with the last process go its
mounts, its network and its pods' networks: so no crash leaves anything behind.

A lab keeps no list of its processes, which could be stale. Each process that it starts has two
environment variables that name its lab and its part; :func:`find_parts` reads them from /proc.
"""

import os
import signal
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from kubeshare.lab import processes
from kubeshare.lab.control_plane.api_server import wait_until
from kubeshare.lab.errors import LabError
from kubeshare.lab.layout import Layout
from kubeshare.lab.node import cgroups
from kubeshare.lab.processes import Process

_LAB = "KUBESHARE_LAB_FOLDER"
_PART = "KUBESHARE_LAB_PART"
_INIT = "pause"
_COMM_LENGTH = 15
_START_SECONDS = 60.0
_EVERYTHING = ("--mount", "--net", "--pid", "--uts")
# Joins the lab's cgroups before it executes the program: neither the end of a
# login session nor its limits then affect the lab.
_JOIN = (
    'groups=$1; shift; for group in $groups; do echo $$ > "$group/cgroup.procs"; done; exec "$@"'
)


def _environment(pid: int) -> dict[str, str]:
    try:
        text = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace")
    except OSError:
        return {}
    return dict(entry.split("=", 1) for entry in text.split("\0") if "=" in entry)


def _marked(layout: Layout) -> Iterable[tuple[Process, str]]:
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        environment = _environment(int(entry.name))
        if environment.get(_LAB) == str(layout.folder):
            process = processes.identify(int(entry.name))
            if process is not None:
                yield process, environment.get(_PART, "")


def _command_name(process: Process) -> str:
    try:
        return Path(f"/proc/{process.pid}/comm").read_text().strip()
    except OSError:
        return ""


def find_processes(layout: Layout) -> set[Process]:
    """Every process that belongs to a lab: by its environment or by its cgroup."""
    found = {process for process, _ in _marked(layout)}
    for pid in cgroups.members(layout.cgroup):
        process = processes.identify(pid)
        if process is not None:
            found.add(process)
    return found


def find_parts(layout: Layout) -> dict[str, Process]:
    """The running parts of a lab, as ``{"node-1/kubelet": process, "node-1/pause": ...}``.

    Children inherit the variables (a shim has those of containerd), so the program's name must
    match as well.
    """
    found: dict[str, Process] = {}
    for process, part in _marked(layout):
        program = part.rpartition("/")[2][:_COMM_LENGTH]
        if _command_name(process) != program or not processes.alive(process):
            continue
        # A child between fork and exec still looks like its parent.
        known = found.get(part)
        if known is None or process.start_time < known.start_time:
            found[part] = process
    return found


def end_everything(layout: Layout) -> None:
    """Kill all processes of a lab and wait until the last one is gone.

    Raises:
        LabError: some could not be killed.
    """

    def all_gone() -> bool:
        left = find_processes(layout)
        processes.stop(left, gently=False)
        return not any(processes.alive(process) for process in left)

    wait_until(all_gone, f"the end of the processes of lab {layout.name}")


class Machine:
    """One machine of a lab, running or not.

    Args:
        layout: of the lab.
        name: its host name.
    """

    def __init__(self, layout: Layout, name: str) -> None:
        self.layout = layout
        self.name = name
        self.logs = layout.folder / "logs" / name

    def init(self) -> Process | None:
        """The process that holds the namespaces, or None when it does not run."""
        return find_parts(self.layout).get(f"{self.name}/{_INIT}")

    def _start(
        self, part: str, argv: Sequence[str], environment: Mapping[str, str] | None = None
    ) -> Process:
        groups = " ".join(map(str, cgroups.folders(f"{self.layout.cgroup}/system")))
        marks = {_LAB: str(self.layout.folder), _PART: f"{self.name}/{part}"}
        log = self.logs / f"{part}.log"
        joined = ["sh", "-c", _JOIN, "sh", groups, *argv]
        return processes.start(joined, log, {**(environment or {}), **marks})

    def boot(self, init_program: Path) -> bool:
        """Make the namespaces; return False when they were there already."""
        if self.init() is not None:
            return False
        argv = ["unshare", "--mount", "--net", "--pid", "--uts", "--fork", "--kill-child=KILL"]
        holder = self._start(_INIT, [*argv, "--mount-proc", str(init_program)])
        wait_until(
            lambda: self.init() is not None,
            f"the namespaces of {self.name}",
            still_possible=lambda: None if processes.alive(holder) else self.log_tail(_INIT),
            seconds=_START_SECONDS,
        )
        self.run("hostname", self.name)
        return True

    def _holder(self) -> Process:
        init = self.init()
        if init is None:
            lab = self.layout.name
            raise LabError(f"{self.name} does not run: `kubeshare lab up --name {lab}` repairs it")
        return init

    def _enter(self, *namespaces: str) -> list[str]:
        return ["nsenter", f"--target={self._holder().pid}", *namespaces, "--"]

    def run(self, *argv: str, stdin: str | None = None) -> str:
        """Run a command inside and return its standard output.

        Raises:
            LabError: it failed; the message has its output.
        """
        return self._finish([*self._enter(*_EVERYTHING), *argv], stdin)

    def run_in_network(self, script: str) -> str:
        """Run shell lines in its network only, where pids are those of this machine."""
        return self._finish([*self._enter("--net"), "sh", "-ec", script])

    def _finish(self, command: Sequence[str], stdin: str | None = None) -> str:
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            argv = command[command.index("--") + 1 :]
            words = (done.stderr or done.stdout).strip()
            raise LabError(f"{self.name}: {argv[0]} ended with {done.returncode}: {words}")
        return done.stdout

    def path(self, inside: str) -> Path:
        """The path on this machine of a file of that one.

        Raises:
            LabError: it does not run.
        """
        return Path(f"/proc/{self._holder().pid}/root{inside}")

    def start(
        self, part: str, argv: Sequence[str], environment: Mapping[str, str] | None = None
    ) -> None:
        """Start a long-running program inside, unless it runs already; return when it runs.

        Args:
            part: the program's name as the kernel shows it.
            argv: its command line.
            environment: added to this process's own.

        Raises:
            LabError: it ended at once; the message has the end of its log.
        """
        name = f"{self.name}/{part}"
        if name in find_parts(self.layout):
            return
        entering = self._start(part, [*self._enter(*_EVERYTHING), *argv], environment)
        wait_until(
            lambda: name in find_parts(self.layout),
            f"the start of {name}",
            still_possible=lambda: None if processes.alive(entering) else self.log_tail(part),
            seconds=_START_SECONDS,
        )

    def stop(self, part: str, *, gently: bool = True) -> None:
        """End a program that was started inside, if it runs."""
        process = find_parts(self.layout).get(f"{self.name}/{part}")
        if process is not None:
            processes.stop([process], gently=gently)

    def power_off(self) -> None:
        """End its namespaces and all that runs in them, at once."""
        self.stop(_INIT, gently=False)

    def signal(self, part: str, number: signal.Signals) -> None:
        """Send a signal to a program that was started inside, if it runs."""
        process = find_parts(self.layout).get(f"{self.name}/{part}")
        if process is not None:
            os.kill(process.pid, number)

    def log_tail(self, part: str) -> str:
        """The last lines that a program wrote."""
        return processes.tail(self.logs / f"{part}.log")
