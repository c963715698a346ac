"""Watches a lab for over-commits, and finds what is left at the end."""

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Self

from e2e.stage import Stage
from kubeshare.api.types.constants import WHOLE_GPU_RESOURCE
from kubeshare.lab.errors import LabError
from kubeshare.node.dra import cdi
from kubeshare.tokens.files.grants import Grant, read_grant
from kubeshare.tokens.files.run_folder import GrantError, Paths

Raw = dict[str, Any]

CHECK_SECONDS: Final = 0.25
WHOLE: Final = 1_000_000
"""Micros of a GPU."""


class Watcher:
    """Checks for over-commits all the while it is entered as a context.

    Args:
        stage: the lab.

    Attributes:
        overcommitted: a line for each time that too much of a GPU was given.
        checks: how often everything was read and compared.

    Raises:
        AssertionError: at the end, where the watch has ended early or has never checked.
    """

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._error: BaseException | None = None
        self._last = ""
        self.overcommitted: list[str] = []
        self.checks = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._over.set()
        self._thread.join()
        if kind is not None:
            return
        if self._error is not None:
            raise AssertionError("the watch for over-commits ended early") from self._error
        assert self.checks, f"nothing was checked for over-commits: {self._last or 'no time'}"

    def left(self, namespace: str) -> list[str]:
        """What is there although nobody asks for it any more."""
        place = f"namespaces/{namespace}"
        asked = self._stage.items(f"/apis/kubeshare.nthu/v1/{place}/sharepods")
        pods = self._stage.items(f"/api/v1/{place}/pods")
        claims = self._stage.items(f"/apis/resource.k8s.io/v1/{place}/resourceclaims")
        return [
            *(f"SharePod {_name(one)}" for one in asked),
            *(f"pod {_name(one)}" for one in pods),
            *(f"claim {_name(one)}" for one in claims),
            *(f"vGPU {_name(one)}" for one in self._stage.vgpus()),
            *self._stage.placeholders(),
            *(f"grant {grant.claim}" for grant in self._grants()),
            *(f"CDI spec {claim}" for claim in self._specs()),
        ]

    def _watch(self) -> None:
        try:
            while not self._over.wait(CHECK_SECONDS):
                self._check()
        except BaseException as error:  # noqa: BLE001 - whatever it was, the run fails by it
            self._error = error

    def _check(self) -> None:
        try:
            self.overcommitted += [*self._held(), *self._granted(), *self._taken()]
        except LabError as error:  # an overloaded or killed API server is asked again
            self._last = str(error)
        else:
            self.checks += 1

    def _held(self) -> Iterator[str]:
        """By the objects."""
        demands: Counter[str] = Counter()
        for vgpu in self._stage.vgpus():
            holders = vgpu["status"].get("holders", [])
            demands.update(holder["demand"] for holder in holders)
            if sum(holder["requestMicros"] for holder in holders) > WHOLE:
                yield f"the holders of vGPU {_name(vgpu)} ask for more than a GPU"
            if sum(holder["memoryBytes"] for holder in holders) > vgpu["spec"]["memoryBytes"]:
                yield f"the holders of vGPU {_name(vgpu)} ask for more memory than it has"
        yield from (f"demand {uid} has {n} GPUs" for uid, n in demands.items() if n > 1)

    def _granted(self) -> set[str]:
        """By the grants on the nodes.

        One file may have replaced another while they were read, so two checks must agree.
        """
        seen = self._granted_too_much()
        return seen & self._granted_too_much() if seen else seen

    def _granted_too_much(self) -> set[str]:
        micros: Counter[str] = Counter()
        for grant in self._grants():
            for part in grant.gpus:
                micros[part.uuid] += part.request_micros
        return {f"{n} micros of {uuid} are granted" for uuid, n in micros.items() if n > WHOLE}

    def _taken(self) -> Iterator[str]:
        """By the pods that take whole GPUs of a node: placeholders, and others."""
        taken: Counter[str] = Counter()
        for pod in self._stage.items("/api/v1/pods"):
            if pod["status"]["phase"] not in ("Succeeded", "Failed"):
                taken[pod["spec"].get("nodeName", "")] += sum(
                    map(_whole, pod["spec"]["containers"])
                )
        has = {node.name: node.gpus for node in self._stage.lab.nodes}
        yield from (f"{node} gave {taken[node]} GPUs" for node in has if taken[node] > has[node])

    def _grants(self) -> Iterator[Grant]:
        for folder in self._folders("/run/kubeshare"):
            for file in Paths(folder).grants.glob("*.json"):
                with suppress(GrantError, OSError):
                    yield read_grant(file)

    def _specs(self) -> Iterator[str]:
        for folder in self._folders("/var/run/cdi"):
            yield from cdi.claims(folder)

    def _folders(self, inside: str) -> list[Path]:
        return [node.machine.path(inside) for node in self._stage.lab.nodes]


def _name(obj: Raw) -> str:
    return str(obj["metadata"]["name"])


def _whole(container: Raw) -> int:
    return int(container.get("resources", {}).get("limits", {}).get(WHOLE_GPU_RESOURCE, 0))
