"""Runs pods of Alibaba's gpushare, which share a GPU by memory."""

import json
from collections.abc import Callable
from typing import Final

from kubeshare.demo.cluster import DemoError
from kubeshare.demo.dedicated_node import DedicatedNode, pod
from kubeshare.demo.figure import burn
from kubeshare.dialects.gpushare import GPU_COUNT, GPU_MEMORY

NAMESPACE: Final = "gpushare"

_INDEX = "ALIYUN_COM_GPU_MEM_IDX"
_SMALL = 2
_OUT_OF_MEMORY = "CUDA_ERROR_OUT_OF_MEMORY"


class GpushareDemo:
    """Plays on one node, which is dedicated to gpushare and has two equal GPUs.

    Args:
        node: where.
        image: of the pods.
        inspect: returns the tables of ``kubectl inspect gpushare -d`` for the node.
    """

    def __init__(self, node: DedicatedNode, image: str, inspect: Callable[[], str]) -> None:
        self._node = node
        self._image = image
        self._inspect = inspect

    def run(self) -> None:
        """Pack pods, show the memory, and see that a limit holds.

        Raises:
            DemoError: something that KubeShare promises did not happen.
        """
        self._node.cluster.start_afresh()
        resources = (GPU_COUNT, GPU_MEMORY)
        count, memory = self._node.dedicate("gpushare", "gpushare=true", resources=resources)
        self._pack(memory // count)
        self._node.show("kubectl inspect gpushare -d", self._inspect())
        self._exceed()

    def _pack(self, units: int) -> None:
        wanted = {"binpack-1": 0, "binpack-2": 0, "binpack-3": 0, "binpack-4": 1}
        amounts = dict.fromkeys(wanted, _SMALL) | {"binpack-4": units}
        for name, expected in wanted.items():
            limits = {GPU_MEMORY: amounts[name]}
            self._node.cluster.create(pod(name, NAMESPACE, limits, burn(self._image)))
            gpu = int(self._node.until_placed(name, _INDEX))
            self._node.console.print(f"{name} asks for {amounts[name]} GiB and runs on GPU {gpu}")
            if gpu != expected:
                raise DemoError(f"{name} should be on GPU {expected} and is on GPU {gpu}")

    def _exceed(self) -> None:
        """See that a pod that allocates more than it asks for is out of memory."""
        for name, allocates, expected in (
            ("greedy", "2Gi", _OUT_OF_MEMORY),
            ("modest", "512Mi", None),
        ):
            container = burn(self._image)
            container["command"] = ["burn", "--memory", allocates, "--seconds", "1"]
            self._node.cluster.create(pod(name, NAMESPACE, {GPU_MEMORY: 1}, container))
            seen = self._error_of(name)
            self._node.console.print(
                f"{name} asks for 1 GiB and allocates {allocates}: {seen or 'it runs to its end'}"
            )
            if seen != expected:
                raise DemoError(f"{name} should have ended with {expected or 'no error'}")

    def _error_of(self, name: str) -> str | None:
        """The CUDA error with which a pod has ended."""
        cluster = self._node.cluster

        def ended() -> bool:
            return cluster.phases().get(name) in ("Succeeded", "Failed")

        cluster.wait(ended, f"pod {name} to end", f"pod/{name}")
        lines = cluster.kubectl("logs", "-n", NAMESPACE, name).splitlines()
        error: str | None = json.loads(lines[-1]).get("error")
        return error
