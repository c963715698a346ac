"""What the kubelet's PodResources API says about CPUs."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from fakes.node import FakeKubelet
from kubeshare.node.gpus.pod_resources import (
    PodResourcesError,
    allocated_gpus,
    exclusive_cpus,
    gpus_in_use,
    gpus_of_others,
    list_cdi_devices,
)


@pytest.mark.parametrize("cpus", [[], [1, 2, 55]])
def test_the_kubelet_says_which_cpus_it_assigns(tmp_path: Path, cpus: list[int]) -> None:
    async def main() -> set[int]:
        kubelet = FakeKubelet()
        kubelet.exclusive_cpus = cpus
        async with kubelet.serve_pod_resources(tmp_path / "socket"):
            return await exclusive_cpus(tmp_path / "socket")

    assert asyncio.run(main()) == set(cpus)


def _uuid_of(_: object) -> str:
    return ""


@pytest.mark.parametrize(
    "ask",
    [
        exclusive_cpus,
        partial(allocated_gpus, uuid_of=_uuid_of, namespace="default", name="a"),
        partial(gpus_in_use, uuid_of=_uuid_of),
        partial(gpus_of_others, uuid_of=_uuid_of),
    ],
)
def test_a_kubelet_that_does_not_answer_is_an_error(
    tmp_path: Path, ask: Callable[[Path], Coroutine[Any, Any, object]]
) -> None:
    with pytest.raises(PodResourcesError, match=f"does not answer at {tmp_path / 'socket'}: "):
        asyncio.run(ask(tmp_path / "socket"))


def test_without_the_kubelet_nobody_knows_which_devices_containers_have(tmp_path: Path) -> None:
    with pytest.raises(PodResourcesError, match=f"does not answer at {tmp_path / 'socket'}: "):
        list_cdi_devices(tmp_path / "socket")
