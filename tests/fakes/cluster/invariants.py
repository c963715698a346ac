"""Checks after each change what must always hold, whatever fails."""

import math
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import structlog

from fakes.cluster.actors import Actors
from kubeshare.api.types.constants import WHOLE_GPU_RESOURCE
from kubeshare.api.types.reasons import Reason
from kubeshare.api.types.v1 import GPUNODES, SHAREPODS, VGPUS
from kubeshare.dialects.pod import PREFIX
from kubeshare.dialects.shares import SHARE
from kubeshare.dialects.vcuda import CORE
from kubeshare.kube.resources import NODES, PODS
from kubeshare.simulator.control import FakeApiServer
from kubeshare.simulator.control.storage import ObjectPath
from kubeshare.simulator.control_tier.stored import (
    bound,
    ended,
    holders,
    overcommitted,
    requested,
)

Raw = dict[str, Any]

_UNSIGNED = {"events", "leases", "pods/binding", "pods/eviction"}
"""Each of them names its author itself, or has no fields."""
_REASONS = frozenset(Reason)


class Invariants:
    """Collects violations of the invariants.

    Attributes:
        violations: one sentence for each violation.
        doubles: whether a demand may temporarily hold more shares than it requests.
        restored: whether pods may run that are not in the record, since it is an older one.
    """

    def __init__(self, server: FakeApiServer, actors: Actors) -> None:
        self.violations: list[str] = []
        self.doubles = False
        self.restored = False
        self._server = server
        self._actors = actors
        self._has: dict[str, int] = {}  # node -> the largest number of GPUs that it has offered
        self._asked: dict[str, int] = {}  # uid of a demand -> the number of shares that it requests
        server.storage.after_change.append(self._check)

    def held_twice(self) -> list[str]:
        """The demands that hold more shares than they request."""
        held = Counter(
            each["demand"] for vgpu in self._server.view(VGPUS) for each in holders(vgpu)
        )
        return [
            f"{uid} holds {count} shares"
            for uid, count in sorted(held.items())
            if count > self._asked.get(uid, 1)
        ]

    def unsigned(self) -> list[str]:
        """See :func:`unsigned`."""
        return unsigned(self._server)

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

    def _check(self, path: ObjectPath, new: Raw | None) -> None:
        """Check all that the changed object has a part in."""
        if path.plural == VGPUS.plural:
            self._check_vgpus()
        elif path.plural == SHAREPODS.plural and new is not None:
            self._check_sharepod(new)
        elif path.plural == PODS.plural and new is not None and path.namespace == "default":
            self._record_pod(new)
        if path.plural in (PODS.plural, NODES.plural):
            self._check_nodes()
        if not self.doubles:
            self.violations += self.held_twice()
        if not self.restored:
            self._check_containers()
            self._check_recorded(path, new)

    def _check_vgpus(self) -> None:
        """No vGPU has too much, and at most one stands for a GPU."""
        vgpus = self._server.view(VGPUS)
        self.violations += [wrong for vgpu in vgpus if (wrong := overcommitted(vgpu))]
        uuids = Counter(_uuid(vgpu) for vgpu in vgpus)
        self.violations += [
            f"{count} vGPUs of {uuid}"
            for uuid, count in sorted(uuids.items())
            if uuid and count > 1
        ]

    def _check_nodes(self) -> None:
        """No node allocates more GPUs than it has."""
        allocated: Counter[str] = Counter()
        for pod in self._server.view(PODS):
            if bound(pod) and not ended(pod):
                allocated[pod["spec"]["nodeName"]] += requested(pod, WHOLE_GPU_RESOURCE)
        for node in self._server.view(NODES):
            name = node["metadata"]["name"]
            used = allocated[name]
            counted = node["status"]["allocatable"].get(WHOLE_GPU_RESOURCE, 0)
            offered = self._actors.by_claims.get(name, int(counted))
            # A kubelet that has just started offers fewer GPUs than the node has.
            has = self._has[name] = max(offered, self._has.get(name, 0))
            if used > has:
                self.violations.append(f"{name} gave {used} GPUs")

    def _check_recorded(self, path: ObjectPath, new: Raw | None) -> None:
        """No agent ever calls a pod unrecorded, not even for a moment."""
        if path.plural == GPUNODES.plural and new is not None:
            named = [gpu.get("unrecordedPods") for gpu in new["spec"].get("devices", ())]
            self.violations += [f"{path.name} names unrecorded pods: {one}" for one in named if one]

    def _check_sharepod(self, sharepod: Raw) -> None:
        """Every reason of a condition is a member of ``Reason``."""
        # Kept, since a share is held for a while after its SharePod was deleted.
        self._asked[sharepod["metadata"]["uid"]] = _shares(sharepod["spec"].get("gpu") or {})
        self.violations += [
            f"{condition['reason']} is no reason of a condition"
            for condition in sharepod.get("status", {}).get("conditions", [])
            if condition["reason"] not in _REASONS
        ]

    def _record_pod(self, pod: Raw) -> None:
        annotations = pod["metadata"].get("annotations") or {}
        gpu = {field: annotations.get(PREFIX + field) for field in ("request", "count")}
        shares = [{"name": key} for key in annotations if key.startswith(SHARE)]
        shares += _by_cores(pod)
        self._asked[pod["metadata"]["uid"]] = _shares(gpu | {"shares": shares})

    def _check_containers(self) -> None:
        """No container runs unless its pod holds a share."""
        running = [each for each in self._actors.machines.values() if each.containers]
        if not running:
            return
        vgpus = self._server.view(VGPUS)
        held = {each.get("podUid") for vgpu in vgpus for each in holders(vgpu)}
        for machine in running:
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


def unsigned(server: FakeApiServer) -> list[str]:
    """The writes by which no field shows which program of KubeShare wrote it."""
    return sorted(
        {
            f"{each.client} {each.verb} {each.resource}: no field manager of KubeShare"
            for each in server.requests
            if each.verb in {"create", "patch"}
            and each.client in server.authorizers
            and each.resource not in _UNSIGNED
            and not each.query.get("fieldManager", "").startswith("kubeshare-")
        }
    )
