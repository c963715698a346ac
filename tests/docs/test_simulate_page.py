"""What the page about the simulator shows is what happens."""

import asyncio
import re
import shlex
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from kubeshare.api.types.v1 import GPUNODES, SHAREPODS
from kubeshare.cli.main import cli
from kubeshare.core.units import GI
from kubeshare.kube import logs
from kubeshare.kube.client.client import Client
from kubeshare.kube.resources import NODES
from kubeshare.simulator.control import FakeApiServer, run_virtual
from kubeshare.simulator.systems import BASELINES
from kubeshare.simulator.workloads import jobs_csv, nodes_csv

PAGE = (Path(__file__).parents[2] / "docs" / "simulate.md").read_text()
FILES = re.findall(
    r"Save th(?:is|ese) as ((?:`[a-z.]+`(?: and )?)+)(.*?\n\n.*?)\n\n(?=```console|The audit)",
    PAGE,
    flags=re.DOTALL,
)
BLOCKS = re.findall(r"```console\n\$ kubeshare ([^\n]*)\n(.*?)```", PAGE, flags=re.DOTALL)
RECORDING = "trace record "


def write_files(folder: Path) -> None:
    """Write each file that the page shows."""
    for names, text in FILES:
        contents = re.findall(r"```(?:csv|json)\n(.*?)```", text, flags=re.DOTALL)
        for name, content in zip(re.findall(r"`([a-z.]+)`", names), contents, strict=True):
            (folder / name).write_text(content)


def recorded_cluster() -> FakeApiServer:
    """A cluster with a node of two GPUs, and two SharePods that run."""
    server = FakeApiServer()
    allocatable = {"cpu": "8", "memory": "64Gi", "nvidia.com/gpu": 2}
    status = {"allocatable": allocatable}
    server.seed(NODES, {"metadata": {"name": "n1"}, "spec": {}, "status": status})
    devices = [
        {"uuid": f"GPU-{index}", "index": index, "model": "T4", "memoryBytes": 15 * GI}
        for index in range(2)
    ]
    server.seed(GPUNODES, {"metadata": {"name": "n1"}, "spec": {"devices": devices}})
    gpu = {"request": "0.5", "memory": "4Gi"}
    for name in ("a", "b"):
        server.seed(
            SHAREPODS,
            {
                "metadata": {"name": name, "namespace": "team"},
                "spec": {"gpu": gpu, "containers": [{"name": "main"}]},
                "status": {"phase": "Running"},
            },
        )
    return server


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write_files(tmp_path)
    return tmp_path


def printed(command: str) -> str:
    result = CliRunner().invoke(cli, shlex.split(command), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def record(command: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run a recording on a fake cluster, whose hour takes no time."""
    server = recorded_cluster()

    async def with_bookmarks(main: Coroutine[Any, Any, object]) -> object:
        task = asyncio.create_task(bookmarks())
        try:
            return await main
        finally:
            task.cancel()

    async def bookmarks() -> None:
        while True:
            await asyncio.sleep(60)
            server.bookmark()

    def run(main: Coroutine[Any, Any, object]) -> object:
        return run_virtual(with_bookmarks(main), end=None)

    monkeypatch.setattr(logs, "configure_logging", lambda *_, **__: None)
    monkeypatch.setattr(Client, "connect", lambda *_: server.client())
    monkeypatch.setattr(asyncio, "run", run)
    return printed(command)


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("command", "expected"),
    [
        pytest.param(command, expected, marks=pytest.mark.slow if "--jobs" in command else ())
        for command, expected in BLOCKS
    ],
)
def test_the_commands_of_the_page_print_what_it_shows(
    monkeypatch: pytest.MonkeyPatch, command: str, expected: str
) -> None:
    if command.startswith(RECORDING):
        assert record(command, monkeypatch) == expected
        return
    if "monday" in command:
        (recording,) = [each for each, _ in BLOCKS if each.startswith(RECORDING)]
        record(recording, monkeypatch)
    assert printed(command) == expected


def test_the_page_has_all_columns_baselines_and_files() -> None:
    words = set(re.findall(r"`([a-z_-]+)`", PAGE))
    for columns in (jobs_csv.COLUMNS, nodes_csv.COLUMNS):
        assert {*columns.required, *columns.optional} <= words
    assert set(BASELINES) <= words
    assert len(FILES) == 4
    assert len(BLOCKS) == 10
