"""When each step of a pod's start was seen by an ordinary client with watches.

A watch delivers a change one to two milliseconds late, for all steps alike.
"""

import asyncio
from collections import defaultdict
from collections.abc import Mapping

from bench.report import median
from kubeshare.api import sharepods
from kubeshare.api.types.core_v1 import Pod
from kubeshare.api.types.v1 import VGPU
from kubeshare.kube.resources import Raw

CREATED = "asked for"


class Steps:
    """Notes the first time at which each step of each pod is seen."""

    def __init__(self) -> None:
        self._seen: dict[str, dict[str, float]] = defaultdict(dict)

    def clear(self) -> None:
        """Forget all."""
        self._seen.clear()

    def note(self, name: str, step: str) -> None:
        """A step of the pod, or SharePod, of that name was seen now."""
        self._seen[name].setdefault(step, asyncio.get_running_loop().time())

    def of_pod(self, pod: Pod) -> None:
        """See how far a pod is."""
        name = pod.metadata.name
        self.note(name, "the pod is made")
        if pod.spec.node_name:
            self.note(name, "bound by kube-scheduler")
        ready = pod.condition("PodReadyToStartContainers")
        if ready is not None and ready.status == "True":
            self.note(name, "its sandbox is there")
        if pod.status.phase == "Running":
            self.note(name, "Running")

    def of_vgpu(self, vgpu: VGPU) -> None:
        """Note which demands hold a share, and whose pod is named in its holder."""
        for holder in vgpu.status.holders:
            self.note(holder.name, "its part is taken")
            if vgpu.spec.uuid:
                self.note(holder.name, "its GPU is known")
            if holder.pod_uid:
                self.note(holder.name, "the pod is named in the holder")

    def of_sharepod(self, raw: Raw) -> None:
        """See whether it is decided."""
        if sharepods.decided(sharepods.view(raw)):
            self.note(raw["metadata"]["name"], "decided")

    def medians(self, kind: str) -> Mapping[str, float]:
        """Milliseconds from creation to each step, in the order of the steps.

        Args:
            kind: with what the names begin.
        """
        took: dict[str, list[float]] = defaultdict(list)
        for name, seen in self._seen.items():
            if name.startswith(f"{kind}-") and CREATED in seen:
                for step, when in seen.items():
                    took[step].append((when - seen[CREATED]) * 1000)
        found = {step: round(median(each), 1) for step, each in took.items() if step != CREATED}
        return dict(sorted(found.items(), key=lambda item: item[1]))
