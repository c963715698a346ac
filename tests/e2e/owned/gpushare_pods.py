"""Pods that ask for units of GPU memory, and what gpushare writes into them."""

from typing import Any, Final

from e2e.space import REST, Space, container

GPU_MEM: Final = "aliyun.com/gpu-mem"
GPU_COUNT: Final = "aliyun.com/gpu-count"
PREFIX: Final = "ALIYUN_COM_GPU_MEM_"
"""Of the annotations and environment variables of gpushare."""


def asking(units: int, command: tuple[str, ...] = REST) -> dict[str, Any]:
    """A container that asks for units of GPU memory."""
    return container(command, resources={"limits": {GPU_MEM: str(units)}})


def template(name: str, units: int) -> dict[str, Any]:
    """Pods that ask for units of GPU memory, as in Alibaba's samples."""
    spec = {"terminationGracePeriodSeconds": 1, "containers": [asking(units)]}
    return {"metadata": {"labels": {"app": name}}, "spec": spec}


def published(space: Space, name: str) -> dict[str, str]:
    """What gpushare writes into the pod with this name, or of this app, without its prefix."""
    pod = space.find_pod(name) or next(iter(space.pods(app=name)), None)
    assert pod is not None
    annotations = pod["metadata"].get("annotations", {})
    return {
        key.removeprefix(PREFIX): value
        for key, value in annotations.items()
        if key.startswith(PREFIX)
    }
