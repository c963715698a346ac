"""The lab with KubeShare on it, and a namespace for each test."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import uuid4

import pytest

from cluster.space import Space
from cluster.stage import Stage, eventually
from kubeshare.install import manifests, rollout
from kubeshare.kube.api import Api
from kubeshare.lab.cluster import Lab, Shape
from kubeshare.lab.progress import Progress

_NODES, _GPUS_EACH = 2, 2
_ROLLOUT_SECONDS = 180.0


@pytest.fixture(scope="package")
def stage() -> Iterator[Stage]:
    """A lab of two nodes with two V100 each, with KubeShare on it; down at the end."""
    lab = Lab("cluster")
    lab.down()
    try:
        lab.up(Shape(nodes=_NODES, gpus=f"V100x{_GPUS_EACH}"))
        asyncio.run(_install(lab))
        stage = Stage(lab)
        eventually(lambda: _gpus_found(stage) == _NODES * _GPUS_EACH, "the GPUs to be found")
        yield stage
    finally:
        lab.down()


async def _install(lab: Lab) -> None:
    async with Api.connect(lab.kubeconfig) as api:
        await rollout.install(
            api,
            manifests.load(manifests.Options()),
            deadline=_ROLLOUT_SECONDS,
            say=Progress().say,
        )


def _gpus_found(stage: Stage) -> int:
    nodes = stage.items("/apis/kubeshare.nthu/v1/gpunodes")
    return sum(len(node["spec"].get("devices", [])) for node in nodes)


@contextmanager
def _space(stage: Stage) -> Iterator[Space]:
    name = f"test-{uuid4().hex[:8]}"
    stage.kubectl("create", "namespace", name)
    accounts = f"/api/v1/namespaces/{name}/serviceaccounts"
    eventually(lambda: stage.items(accounts), "the default ServiceAccount")
    space = Space(stage, name)
    yield space
    space.clear()


@pytest.fixture
def space(stage: Stage) -> Iterator[Space]:
    """A namespace of the test's own; at its end every GPU must be given back."""
    with _space(stage) as space:
        yield space


@pytest.fixture(scope="module")
def shared_space(stage: Stage) -> Iterator[Space]:
    """A namespace in which all tests of a module look at the same SharePods."""
    with _space(stage) as space:
        yield space
