"""What the kubelet's PodResources API says about CPUs."""

import asyncio
from pathlib import Path

import pytest

from fakes.node import FakeKubelet
from kubeshare.node.gpus.pod_resources import PodResourcesError, exclusive_cpus


@pytest.mark.parametrize("cpus", [[], [1, 2, 55]])
def test_the_kubelet_says_which_cpus_it_assigns(tmp_path: Path, cpus: list[int]) -> None:
    async def main() -> set[int]:
        kubelet = FakeKubelet()
        kubelet.exclusive_cpus = cpus
        async with kubelet.serve_pod_resources(tmp_path / "socket"):
            return await exclusive_cpus(tmp_path / "socket")

    assert asyncio.run(main()) == set(cpus)


def test_a_kubelet_that_does_not_answer_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(PodResourcesError, match="does not answer"):
        asyncio.run(exclusive_cpus(tmp_path / "socket"))
