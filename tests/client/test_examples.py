"""The examples of the client, on a cluster in memory."""

import asyncio
import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from expectations.pods import expect_running
from fakes.cluster import FakeCluster, run_scenario
from kubeshare.api.types.v1 import SHAREPODS
from kubeshare.client import Cluster, SyncCluster
from kubeshare.simulator.control import FakeApiServer

EXAMPLES = Path(__file__).parents[2] / "examples" / "client"


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_each_example_has_a_test() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == {"train", "sweep", "pending"}


def test_a_program_runs_to_its_end(capsys: pytest.CaptureFixture[str]) -> None:
    async def play(cluster: FakeCluster) -> None:
        cluster.start()
        async with Cluster(cluster.server.client("user")) as mine:
            running = asyncio.create_task(example("train").main(mine))
            await expect_running(cluster, "train")
            await cluster.quiet(1)
            cluster.end("train")
            await running
        await cluster.until(lambda: not cluster.vgpus())

    run_scenario(play, n1=1)
    placed, ended = capsys.readouterr().out.splitlines()
    assert placed.startswith("train: on n1, GPU vgpu-")
    assert ended == "train: Succeeded"


def test_several_settings_share_a_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    async def play(cluster: FakeCluster) -> None:
        cluster.start()
        async with Cluster(cluster.server.client("user")) as mine:
            running = asyncio.create_task(example("sweep").main(mine))
            names = ("trial-0", "trial-1", "trial-2")
            await expect_running(cluster, *names)
            assert cluster.shares_gpu(*names)
            for name, phase in zip(names, ("Succeeded", "Failed", "Succeeded"), strict=True):
                cluster.end(name, phase)
            await running
        await cluster.until(lambda: not cluster.server.all(SHAREPODS))

    run_scenario(play, n1=1)
    first, second, third = capsys.readouterr().out.splitlines()
    assert first.startswith("trial-0: Succeeded on GPU vgpu-")
    assert second.startswith("SharePod default/trial-1 has failed; PodFailed: ")
    assert third.endswith("learning rate 0.001")


def test_what_waits_says_why_and_what_helps(capsys: pytest.CaptureFixture[str]) -> None:
    left: list[FakeApiServer] = []

    async def play(cluster: FakeCluster) -> None:
        cluster.start()
        await cluster.run("a", "0.7")
        cluster.share("b", "0.6")
        await cluster.until(lambda: cluster.condition("b", "Scheduled"))
        left.append(cluster.server)

    run_scenario(play, n1=1)
    with SyncCluster(Cluster(left[0].client("user"))) as mine:
        example("pending").main(mine)
    why, helps = capsys.readouterr().out.splitlines()
    assert why.startswith("b: NoRoom: n1/vgpu-")
    assert "a leaves n1/vgpu-" in helps
