"""A lab with KubeShare on it, and namespaces in it, for as long as a block lasts."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from uuid import uuid4

from e2e.space import Space
from e2e.stage import Stage, eventually
from kubeshare.install import manifests, rollout
from kubeshare.kube.client.client import Client
from kubeshare.lab.cluster import Lab, Shape
from kubeshare.lab.node import gpus
from kubeshare.lab.progress import Progress

_NODES, _GPUS_EACH = 2, 2
GPUS = _NODES * _GPUS_EACH
"""The GPUs of a booted lab."""
_SHAPE = Shape(nodes=_NODES, gpus=f"V100x{_GPUS_EACH}")
_ROLLOUT_SECONDS = 300.0


def install(stage: Stage) -> None:
    """Put KubeShare on a lab, and wait until it has found the GPUs."""
    asyncio.run(_install(stage.lab))
    shape = stage.lab.shape
    assert shape is not None
    expected = sum(map(gpus.count, shape.profiles))
    eventually(lambda: gpus_found(stage) == expected, "the GPUs to be found")


async def _install(lab: Lab) -> None:
    async with Client.connect(lab.kubeconfig) as client:
        await rollout.install(
            client,
            manifests.load(manifests.Options()),
            deadline=_ROLLOUT_SECONDS,
            say=Progress().say,
        )


def gpus_found(stage: Stage) -> int:
    """How many GPUs the node agents have found."""
    nodes = stage.items("/apis/kubeshare.nthu/v1/gpunodes")
    return sum(len(node["spec"].get("devices", [])) for node in nodes)


@contextmanager
def booted(
    name: str, kubeshare: Callable[[Stage], None] = install, shape: Shape = _SHAPE
) -> Iterator[Stage]:
    """A lab with KubeShare on it; down at the end.

    Args:
        name: of the lab.
        kubeshare: installs KubeShare on it; by default that of this clone.
        shape: of the lab; by default two nodes with two V100 each.
    """
    lab = Lab(name)
    lab.down()
    try:
        lab.up(shape)
        stage = Stage(lab)
        kubeshare(stage)
        yield stage
    finally:
        lab.down()


def new_space(stage: Stage) -> Space:
    """A new namespace, which is never deleted."""
    name = f"test-{uuid4().hex[:8]}"
    stage.lab.api.send("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    accounts = f"/api/v1/namespaces/{name}/serviceaccounts"
    eventually(lambda: stage.items(accounts), "the default ServiceAccount")
    return Space(stage, name)


@contextmanager
def space_in(stage: Stage) -> Iterator[Space]:
    """A new namespace; at the end every GPU must be given back."""
    space = new_space(stage)
    yield space
    space.clear()
