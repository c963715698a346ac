"""Scheduler and device manager as processes of this machine, killed and started again."""

import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Final

from kubeshare.lab.control_plane.ports import reserve_ports

MODULES: Final = {"scheduler": "kubeshare.scheduler", "devices": "kubeshare.device_manager"}
ACCOUNTS: Final = {"scheduler": "kubeshare-scheduler", "devices": "kubeshare-device-manager"}
RESTART: Final = 1.0
"""Seconds until a killed one is started again."""


class Programs:
    """The two of them.

    Args:
        kubeconfigs: program -> how it reaches the API server.
        folder: where their logs go.
    """

    def __init__(self, kubeconfigs: dict[str, Path], folder: Path) -> None:
        self._kubeconfigs = kubeconfigs
        self._folder = folder
        self._lock = threading.Lock()
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._due = dict.fromkeys(kubeconfigs, 0.0)  # program -> when it is to be started
        self._over = threading.Event()
        # One thread starts them all: when it ends, so do they, however that comes about.
        self._supervisor = threading.Thread(target=self._supervise, daemon=True)
        self._supervisor.start()

    def kill(self, *names: str) -> None:
        """End programs with SIGKILL; they are started again after a moment."""
        with self._lock:
            for name in names or tuple(self._kubeconfigs):
                self._end(name)
                self._due[name] = time.monotonic() + RESTART

    def stop(self) -> None:
        """End them for good."""
        self._over.set()
        self._supervisor.join()
        with self._lock:
            for name in tuple(self._running):
                self._end(name)

    def said(self) -> str:
        """What they have written."""
        return "".join(file.read_text() for file in sorted(self._folder.glob("*.log")))

    def _supervise(self) -> None:
        while not self._over.wait(0.05):
            with self._lock:
                now = time.monotonic()
                for name in [name for name, when in self._due.items() if when <= now]:
                    del self._due[name]
                    self._start(name)

    def _start(self, name: str) -> None:
        (port,) = reserve_ports(1)
        words = ["--kubeconfig", str(self._kubeconfigs[name]), "--port", str(port)]
        words += ["--no-election"]
        guarded = ["setpriv", "--pdeathsig", "KILL", sys.executable, "-m", MODULES[name]]
        with (self._folder / f"{name}.log").open("ab") as log:
            self._running[name] = subprocess.Popen([*guarded, *words], stdout=log, stderr=log)

    def _end(self, name: str) -> None:
        process = self._running.pop(name, None)
        if process is not None:
            process.send_signal(signal.SIGKILL)
            process.wait()
