"""Checks after each change what must always hold, whatever fails."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import structlog

from fakes.cluster.actors import Actors
from fakes.cluster.pods import ended, holders, requested
from kubeshare.api.types.constants import WHOLE_GPU_RESOURCE
from kubeshare.api.types.reasons import Reason
from kubeshare.api.types.v1 import SHAREPODS, VGPUS
from kubeshare.dialects.pod import PREFIX
from kubeshare.dialects.shares import SHARE
from kubeshare.dialects.vcuda import CORE
from kubeshare.kube.resources import NODES, PODS
from kubeshare.simulator.control import FakeApiServer

Raw = dict[str, Any]

_UNSIGNED = {"events", "leases", "pods/binding", "pods/eviction"}
"""Each of them names its author itself, or has no fields."""


class Invariants:
    """Collects violations of the invariants.

    Attributes:
        violations: one sentence for each violation.
        doubles: whether a demand may temporarily hold more shares than it requests.
    """

    def __init__(self, server: FakeApiServer, actors: Actors) -> None:
        self.violations: list[str] = []
        self.doubles = False
        self._server = server
        self._actors = actors
        self._has: dict[str, int] = {}  # node -> the largest number of GPUs that it has offered
        self._asked: dict[str, int] = {}  # uid of a demand -> the number of shares that it requests
        server.storage.after_change.append(lambda *_: self._check())

    def held_twice(self) -> list[str]:
        """The demands that hold more shares than they request."""
        held = [each["demand"] for vgpu in self._server.all(VGPUS) for each in holders(vgpu)]
        return [
            f"{uid} holds {held.count(uid)} shares"
            for uid in sorted(set(held))
            if held.count(uid) > self._asked.get(uid, 1)
        ]

    def unsigned(self) -> list[str]:
        """The writes by which no field shows which program of KubeShare wrote it."""
        writes = [each for each in self._server.requests if each.verb in {"create", "patch"}]
        return sorted(
            {
                f"{each.client} {each.verb} {each.resource}: no field manager of KubeShare"
                for each in writes
                if each.client in self._server.authorizers
                and each.resource not in _UNSIGNED
                and not each.query.get("fieldManager", "").startswith("kubeshare-")
            }
        )

    @contextmanager
    def no_bugs(self) -> Iterator[None]:
        """A program that meets an exception other than the API server's has a bug.

        It logs the exception and tries again, so the scenario might succeed all the same.
        """
        processors = structlog.get_config()["processors"]
        processors.insert(0, self._see)
        try:
            yield
        finally:
            if self._see in processors:
                processors.remove(self._see)

    def _see(
        self, _: structlog.typing.WrappedLogger, __: str, line: structlog.typing.EventDict
    ) -> structlog.typing.EventDict:
        if error := line.get("exc_info"):
            self.violations.append(f"{line['event']}: {error!r}")
        return line

    def _check(self) -> None:
        for vgpu in self._server.all(VGPUS):
            if wrong := overcommitted(vgpu):
                self.violations.append(wrong)
        self._check_uuids()
        self._check_nodes()
        self._check_sharepods()
        if not self.doubles:
            self.violations += self.held_twice()
        self._check_containers()

    def _check_uuids(self) -> None:
        """At most one vGPU stands for a GPU."""
        uuids = [vgpu["spec"]["uuid"] for vgpu in self._server.all(VGPUS) if _uuid(vgpu)]
        self.violations += [
            f"{uuids.count(uuid)} vGPUs of {uuid}"
            for uuid in sorted(set(uuids))
            if uuids.count(uuid) > 1
        ]

    def _check_nodes(self) -> None:
        """No node allocates more GPUs than it has."""
        for node in self._server.all(NODES):
            name = node["metadata"]["name"]
            pods = [each for each in self._server.all(PODS) if each["spec"].get("nodeName") == name]
            used = sum(requested(pod, WHOLE_GPU_RESOURCE) for pod in pods if not ended(pod))
            counted = node["status"]["allocatable"].get(WHOLE_GPU_RESOURCE, 0)
            offered = self._actors.by_claims.get(name, int(counted))
            # A kubelet that has just started offers fewer GPUs than the node has.
            has = self._has[name] = max(offered, self._has.get(name, 0))
            if used > has:
                self.violations.append(f"{name} gave {used} GPUs")

    def _check_sharepods(self) -> None:
        """Every reason of a condition is a member of ``Reason``."""
        for each in self._server.all(SHAREPODS):
            # Kept, since a share is held for a while after its SharePod was deleted.
            self._asked[each["metadata"]["uid"]] = _shares(each["spec"].get("gpu") or {})
            conditions = each.get("status", {}).get("conditions", [])
            self.violations += [
                f"{condition['reason']} is no reason of a condition"
                for condition in conditions
                if condition["reason"] not in set(Reason)
            ]
        for pod in self._server.all(PODS, "default"):
            annotations = pod["metadata"].get("annotations") or {}
            gpu = {field: annotations.get(PREFIX + field) for field in ("request", "count")}
            shares = [{"name": key} for key in annotations if key.startswith(SHARE)]
            shares += _by_cores(pod)
            self._asked[pod["metadata"]["uid"]] = _shares(gpu | {"shares": shares})

    def _check_containers(self) -> None:
        """No container runs unless its pod holds a share."""
        for machine in self._actors.machines.values():
            vgpus = self._server.all(VGPUS)
            held = {each.get("podUid") for vgpu in vgpus for each in holders(vgpu)}
            free = sorted(machine.containers - held)
            self.violations += [f"{uid} runs on {machine.name} without a share" for uid in free]


def _shares(gpu: Raw) -> int:
    """The number of shares that a SharePod requests, one for each GPU of a count."""
    if named := gpu.get("shares"):
        return sum(each.get("count", 1) for each in named)
    if gpu.get("count"):
        return int(gpu["count"])
    try:
        return max(1, math.ceil(float(gpu.get("request") or 1)))
    except ValueError:
        return 1  # in another unit, or not valid


def _by_cores(pod: Raw) -> list[Raw]:
    """The share of each container that asks for cores."""
    limits = [each.get("resources", {}).get("limits", {}) for each in pod["spec"]["containers"]]
    cores = [int(each[CORE]) for each in limits if CORE in each]
    return [{"count": max(1, each // 100)} for each in cores]


def _uuid(vgpu: Raw) -> str:
    return str(vgpu["spec"].get("uuid", ""))


def overcommitted(vgpu: Raw, _before: Raw | None = None) -> str | None:
    """Why the rules of the CRD refuse a vGPU; None if they accept it."""
    found = holders(vgpu)
    if sum(each["requestMicros"] for each in found) > 1_000_000:
        return "the holders' requests would be more than one GPU"
    if sum(each["memoryBytes"] for each in found) > vgpu["spec"]["memoryBytes"]:
        return "the holders' memory would be more than the GPU has"
    if found and vgpu.get("status", {}).get("phase") == "Deleting":
        return "a vGPU that is being given back takes no holders"
    return None
