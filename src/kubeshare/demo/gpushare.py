"""Runs pods of Alibaba's gpushare, which share a GPU by memory."""

import json
from collections.abc import Callable
from typing import Any

from rich.console import Console

from kubeshare.demo.cluster import Cluster, DemoError
from kubeshare.demo.figure import burn
from kubeshare.dialects.gpushare import GPU_COUNT, GPU_MEMORY

NAMESPACE = "gpushare"

_INDEX = "ALIYUN_COM_GPU_MEM_IDX"
_SMALL = 2
_OUT_OF_MEMORY = "CUDA_ERROR_OUT_OF_MEMORY"


class GpushareDemo:
    """Plays on one node, which is dedicated to gpushare and has two equal GPUs.

    Args:
        cluster: where, with the namespace of this demo.
        node: the name of the node.
        image: of the pods.
        inspect: returns the tables of ``kubectl inspect gpushare -d`` for the node.
        console: where to show it.
    """

    def __init__(
        self,
        cluster: Cluster,
        *,
        node: str,
        image: str,
        inspect: Callable[[], str],
        console: Console,
    ) -> None:
        self._cluster = cluster
        self._node = node
        self._image = image
        self._inspect = inspect
        self._console = console

    def run(self) -> None:
        """Pack pods, show the memory, and see that a limit holds.

        Raises:
            DemoError: something that KubeShare promises did not happen.
        """
        self._cluster.start_afresh()
        units = self._dedicate()
        self._pack(units)
        self._console.print("\n$ kubectl inspect gpushare -d")
        self._console.print(self._inspect(), highlight=False, soft_wrap=True)
        self._exceed()

    def _dedicate(self) -> int:
        """Let KubeShare own the GPUs of the node for gpushare; returns the units of each GPU."""
        labels = ("kubeshare.nthu/gpus=owned", "gpushare=true")
        self._cluster.kubectl("label", "node", self._node, *labels)

        def offered() -> tuple[int, int] | None:
            found = json.loads(self._cluster.kubectl("get", "node", self._node, "-o", "json"))
            amounts = found["status"]["allocatable"]
            memory, count = (int(amounts.get(name, 0)) for name in (GPU_MEMORY, GPU_COUNT))
            return (memory, count) if memory and count else None

        memory, count = self._cluster.wait(offered, f"{self._node} to offer {GPU_MEMORY}")
        self._console.print(
            f"{self._node} is dedicated to gpushare: {count} GPUs, {GPU_MEMORY} {memory}"
        )
        return memory // count

    def _pack(self, units: int) -> None:
        wanted = {"binpack-1": 0, "binpack-2": 0, "binpack-3": 0, "binpack-4": 1}
        amounts = dict.fromkeys(wanted, _SMALL) | {"binpack-4": units}
        for name, expected in wanted.items():
            self._cluster.create(pod(name, amounts[name], burn(self._image)))
            gpu = self._until_placed(name)
            self._console.print(f"{name} asks for {amounts[name]} GiB and runs on GPU {gpu}")
            if gpu != expected:
                raise DemoError(f"{name} should be on GPU {expected} and is on GPU {gpu}")

    def _until_placed(self, name: str) -> int:
        def running() -> str | None:
            found = self._cluster.get("pod", name)
            annotations = found["metadata"].get("annotations", {})
            is_running = found["status"].get("phase") == "Running"
            return annotations.get(_INDEX) if is_running else None

        return int(self._cluster.wait(running, f"pod {name} to run", f"pod/{name}"))

    def _exceed(self) -> None:
        """See that a pod that allocates more than it asks for is out of memory."""
        for name, allocates, expected in (
            ("greedy", "2Gi", _OUT_OF_MEMORY),
            ("modest", "512Mi", None),
        ):
            command = ["burn", "--memory", allocates, "--seconds", "1"]
            self._cluster.create(pod(name, 1, burn(self._image) | {"command": command}))
            seen = self._error_of(name)
            self._console.print(
                f"{name} asks for 1 GiB and allocates {allocates}: {seen or 'it runs to its end'}"
            )
            if seen != expected:
                raise DemoError(f"{name} should have ended with {expected or 'no error'}")

    def _error_of(self, name: str) -> str | None:
        """The CUDA error with which a pod has ended."""

        def ended() -> bool:
            return self._cluster.phases().get(name) in ("Succeeded", "Failed")

        self._cluster.wait(ended, f"pod {name} to end", f"pod/{name}")
        lines = self._cluster.kubectl("logs", "-n", NAMESPACE, name).splitlines()
        error: str | None = json.loads(lines[-1]).get("error")
        return error


def pod(name: str, units: int, container: dict[str, Any]) -> dict[str, Any]:
    """A pod that asks for units of GPU memory and is not started again."""
    limits = {"limits": {GPU_MEMORY: str(units)}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "containers": [container | {"resources": limits}],
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
        },
    }
