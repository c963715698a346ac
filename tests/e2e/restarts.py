"""Keeps what programs logged before each of their restarts.

The kubelet keeps the log of a container's last life only, and a program whose Lease cannot be
renewed on an overloaded machine may end several times in a minute.
"""

import threading
from typing import Final, Self

from e2e.stage import Stage

LOOK_SECONDS: Final = 2.0


class Restarts:
    """Looks at KubeShare's pods every two seconds while it is entered as a context.

    Args:
        stage: the lab.

    Attributes:
        logs: pod of KubeShare -> what its containers logged in the lives that have ended.
    """

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._seen: dict[str, int] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.logs: dict[str, str] = {}

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def look(self) -> None:
        """Keep the logs of the lives that have ended since the last look."""
        for pod, times in self._stage.restarts_now().items():
            if times > self._seen.get(pod, 0):
                self._seen[pod] = times
                self.logs[pod] = self.logs.get(pod, "") + self._stage.logs_before_restart(pod)

    def _watch(self) -> None:
        while not self._over.wait(LOOK_SECONDS):
            try:
                self.look()
            except Exception:  # noqa: BLE001 - no answer, whatever the reason
                continue
