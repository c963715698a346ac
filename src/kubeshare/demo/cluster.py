"""Drives a cluster for the demo, by kubectl as a person would.

Each wait has a deadline, and its error says what it waited for.
"""

import json
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, TypeVar

from msgspec import Struct

NAMESPACE = "figure-6"
SYSTEM_NAMESPACE = "kubeshare-system"
_POLL_SECONDS = 0.3

Found = TypeVar("Found")


class DemoError(Exception):
    """The demo cannot go on; the message says what was expected and what was seen."""

    def __init__(self, message: str, exit_code: int = 1) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class Kubectl(Protocol):
    """Runs kubectl with some arguments and returns what it prints."""

    def __call__(self, *arguments: str, stdin: str | None = None) -> str:
        """Run it; raise when it fails, with its own message."""
        ...


class ConfiguredKubectl:
    """The kubectl of this machine's PATH, on the cluster of a kubeconfig."""

    def __init__(self, kubeconfig: Path) -> None:
        self._kubeconfig = kubeconfig

    def __call__(self, *arguments: str, stdin: str | None = None) -> str:
        """Run it on that cluster.

        Raises:
            DemoError: there is no kubectl, or it failed.
        """
        command = ["kubectl", f"--kubeconfig={self._kubeconfig}", *arguments]
        try:
            done = subprocess.run(  # noqa: S603 - our own arguments
                command, input=stdin, capture_output=True, text=True, check=False, timeout=300
            )
        except FileNotFoundError:
            raise DemoError("there is no kubectl on the PATH: install it", exit_code=3) from None
        if done.returncode:
            raise DemoError(f"kubectl {' '.join(arguments)}: {done.stderr.strip()}", exit_code=3)
        return done.stdout


class Place(Struct, frozen=True):
    """Where a SharePod runs."""

    node: str
    gpuid: str
    uuid: str


class Cluster:
    """The demo's namespace on a cluster.

    Args:
        kubectl: how to reach it.
        namespace: the demo's.
        deadline: seconds for any one thing to happen.
    """

    def __init__(
        self, kubectl: Kubectl, namespace: str = NAMESPACE, *, deadline: float = 120.0
    ) -> None:
        self.kubectl = kubectl
        self._namespace = namespace
        self._deadline = deadline

    def start_afresh(self) -> None:
        """Make an empty namespace, whatever an earlier demo left."""
        self.kubectl("delete", "namespace", self._namespace, "--ignore-not-found", "--wait=true")
        self.kubectl("create", "namespace", self._namespace)

    def create(self, manifest: dict[str, object]) -> None:
        """Create an object."""
        self.kubectl("create", "-f", "-", stdin=json.dumps(manifest))

    def delete(self, kind: str, *names: str) -> None:
        """Delete objects and wait until they are gone."""
        self.kubectl(
            "delete", kind, "-n", self._namespace, *names, "--ignore-not-found", "--wait=true"
        )

    def place_of(self, name: str) -> Place:
        """Wait until a SharePod is ready; return where it runs.

        Raises:
            DemoError: it is not ready in time; the message has its conditions.
        """

        def ready() -> Place | None:
            status = self.get("sharepod", name).get("status", {})
            conditions = {one["type"]: one["status"] for one in status.get("conditions", [])}
            if conditions.get("Ready") != "True":
                return None
            gpu = status["gpus"][0]
            return Place(status["nodeName"], gpu["id"], gpu.get("uuid", ""))

        return self.wait(ready, f"SharePod {name} to be ready", f"shp/{name}")

    def wait_until_gone(self, kind: str, name: str) -> None:
        """Wait until there is no such object in the demo's namespace (or cluster-wide)."""

        def gone() -> bool:
            found = self.kubectl(
                "get", kind, name, "-n", self._namespace, "--ignore-not-found", "-o", "name"
            )
            return not found.strip()

        self.wait(gone, f"{kind} {name} to be gone", f"{kind}/{name}")

    def phases(self) -> dict[str, str]:
        """The phase of each pod of the demo."""
        pods = json.loads(self.kubectl("get", "pods", "-n", self._namespace, "-o", "json"))["items"]
        return {pod["metadata"]["name"]: pod["status"].get("phase", "") for pod in pods}

    def gpu_count(self) -> int:
        """How many GPUs the node agents have found."""
        nodes = json.loads(self.kubectl("get", "gpunodes", "-o", "json"))["items"]
        return sum(len(node["spec"].get("devices", [])) for node in nodes)

    def wait(self, look: Callable[[], Found | None], what: str, describe: str = "") -> Found:
        """Poll until something is there.

        Args:
            look: polled; returns something false until it is there.
            what: for the error, as in "waiting for ...".
            describe: an object of the namespace whose description belongs to the error.

        Raises:
            DemoError: it did not happen in time.
        """
        deadline = time.monotonic() + self._deadline
        while not (found := look()):
            if time.monotonic() > deadline:
                words = (
                    self.kubectl("describe", "-n", self._namespace, describe) if describe else ""
                )
                raise DemoError(f"waited {self._deadline:.0f} s in vain for {what}\n{words}")
            time.sleep(_POLL_SECONDS)
        return found

    def get(self, kind: str, name: str) -> dict[str, Any]:
        """An object of the demo's namespace."""
        found: dict[str, Any] = json.loads(
            self.kubectl("get", kind, name, "-n", self._namespace, "-o", "json")
        )
        return found
