"""What the page about the client shows is what the client does."""

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

import kubeshare.client
from expectations.pods import expect_running
from fakes.cluster import FakeCluster, run_scenario
from kubeshare.client import Cluster, SharePod, SharePodState, SyncCluster, WaitError
from kubeshare.explain.finding import Finding
from kubeshare.simulator.control import FakeApiServer

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "client.md").read_text()


def defined(name: str) -> Any:
    """A function or constant of the page."""
    blocks = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    [code] = [
        block
        for block in blocks
        if re.search(rf"^(?:async )?(?:def )?{name}\b", block, re.MULTILINE)
    ]
    names: dict[str, Any] = {"__name__": "page"}
    exec(code, names)
    return names[name]


def test_the_first_program_runs_to_its_end(capsys: pytest.CaptureFixture[str]) -> None:
    async def play(cluster: FakeCluster) -> None:
        cluster.start()
        async with Cluster(cluster.server.client("user")) as mine:
            running = asyncio.create_task(defined("main")(mine))
            await expect_running(cluster, "train")
            await cluster.quiet(1)
            cluster.end("train")
            await running

    run_scenario(play, n1=1)
    assert capsys.readouterr().out.startswith("n1 ['GPU-")


def test_a_manifest_is_applied_tried_and_followed(capsys: pytest.CaptureFixture[str]) -> None:
    async def play(cluster: FakeCluster) -> None:
        cluster.start()
        async with Cluster(cluster.server.client("user")) as mine:
            path = str(ROOT / "examples" / "sharepod.yaml")
            state = await defined("apply")(mine, path)
            assert isinstance(state, SharePodState)
            assert await defined("try_now")(mine, "trainer")
            cluster.share("b", "0.8")
            assert not await defined("try_now")(mine, "b")
            cluster.delete("b")
            ended = asyncio.create_task(defined("until_all_ended")(mine, ""))
            await cluster.quiet(1)
            assert not ended.done()
            cluster.end("trainer")
            await ended

    run_scenario(play, n1=1)
    why, helps = capsys.readouterr().out.splitlines()
    assert "NoRoom" in why
    assert helps.startswith("it fits when trainer leaves n1/")


def test_the_sync_watch_returns_the_first_that_is_ready() -> None:
    server = FakeApiServer()
    manifest = yaml.safe_load((ROOT / "examples" / "sharepod.yaml").read_text())
    stored = SharePod.from_manifest(manifest).manifest("default")
    stored["status"] = {"conditions": [{"type": "Ready", "status": "True"}]}
    server.seed(kubeshare.api.types.v1.SHAREPODS, stored)
    with SyncCluster(Cluster(server.client())) as mine:
        assert defined("first_ready")(mine) == "trainer"


def test_the_page_names_what_there_is() -> None:
    named = set(re.findall(r"`(\w+(?:Error|State|Cluster))`", PAGE)) - {"TimeoutError"}
    assert named <= set(kubeshare.client.__all__)
    errors = {name for name in kubeshare.client.__all__ if name.endswith("Error")}
    assert errors <= named
    assert all(f"`{field}`" in PAGE for field in SharePodState.__struct_fields__)
    assert set(Finding.__struct_fields__) >= {"held", "decision", "change", "gang", "degraded"}
    methods = {name for name in vars(Cluster) if not name.startswith("_")} - {"connect", "close"}
    assert all(re.search(rf"^\| .*`{name}\(", PAGE, re.MULTILINE) for name in methods)
    assert issubclass(kubeshare.client.WaitTimeoutError, (WaitError, TimeoutError))
