"""The node agent as a program: its options, and how it fails."""

import asyncio
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kubeshare import native
from kubeshare.node import __main__ as program
from kubeshare.node import lock, run_mount
from kubeshare.node.agent import Settings
from kubeshare.node.library import LibraryError
from kubeshare.node.paths import NodePaths

LIBRARY: Any = object()
MOUNTER: Any = object()


class Ran:
    """What the program ran with, without a cluster or a node."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.settings: Settings | None = None
        self.installed: list[tuple[Path, Path]] = []
        self.error: Exception | None = None
        self.locked: list[Path] = []
        self.is_locked_out = False
        self.return_code = 0
        self.log_level = ""
        self.unmounted: list[Path] = []
        monkeypatch.setattr(program, "configure_logging", partial(setattr, self, "log_level"))
        monkeypatch.setattr(native, "path", Path)
        monkeypatch.setattr(program, "install", self._install)
        monkeypatch.setattr(program, "HostMounter", lambda: MOUNTER)
        monkeypatch.setattr(program, "build", self._build)
        monkeypatch.setattr(program, "run_program", self._run)
        monkeypatch.setattr(lock, "acquire", self._lock)
        monkeypatch.setattr(run_mount, "take_away", lambda at, _: self.unmounted.append(at))

    def _install(self, source: Path, folder: Path) -> object:
        if self.error:
            raise self.error
        self.installed.append((source, folder))
        return LIBRARY

    async def _lock(self, path: Path) -> None:
        self.locked.append(path)
        if self.is_locked_out:
            raise OSError

    async def _build(self, settings: Settings) -> str:
        assert self.locked == [settings.paths.lock]
        self.settings = settings
        return "program"

    def _run(self, build: Callable[[], Any]) -> int:
        with suppress(OSError):
            assert asyncio.run(build()) == "program"
        return self.return_code


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> Ran:
    monkeypatch.setenv("COLUMNS", "300")
    monkeypatch.delenv("NODE_NAME", raising=False)
    return Ran(monkeypatch)


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["node", *arguments])
    return program.main()


def test_in_its_pod_it_needs_no_options(monkeypatch: pytest.MonkeyPatch, ran: Ran) -> None:
    monkeypatch.setenv("NODE_NAME", "n1")
    ran.return_code = 7
    assert run(monkeypatch) == 7
    paths = NodePaths(Path("/"))
    assert ran.unmounted == []
    assert ran.installed == [(Path(native.DEVICE_LIBRARY), paths.library_folder)]
    assert ran.settings == Settings(
        node="n1",
        paths=paths,
        driver_root=Path("/run/nvidia/driver"),
        library=LIBRARY,
        escapes="report",
        kubeconfig=None,
        port=None,
        mounter=MOUNTER,
    )


@pytest.mark.parametrize("is_locked_out", [False, True])
def test_only_the_agent_that_held_the_lock_unmounts_the_run_folder_as_it_ends(
    monkeypatch: pytest.MonkeyPatch, ran: Ran, *, is_locked_out: bool
) -> None:
    ran.is_locked_out = is_locked_out
    assert run(monkeypatch, "--node", "n1") == 0
    assert ran.unmounted == ([] if is_locked_out else [NodePaths(Path("/")).run_folder])


@pytest.mark.parametrize(("options", "level"), [([], "info"), (["--log-level", "error"], "error")])
def test_it_logs_from_the_severity_that_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, ran: Ran, options: list[str], level: str
) -> None:
    run(monkeypatch, "--node", "n1", *options)
    assert ran.log_level == level


def test_options(monkeypatch: pytest.MonkeyPatch, ran: Ran, tmp_path: Path) -> None:
    places = ["--root", str(tmp_path), "--driver-root", "/d", "--kubeconfig", "k"]
    run(monkeypatch, "--node", "n2", "--escapes", "kill", "--port", "9", *places)
    assert ran.settings == Settings(
        node="n2",
        paths=NodePaths(tmp_path),
        driver_root=Path("/d"),
        library=LIBRARY,
        escapes="kill",
        kubeconfig="k",
        port=9,
    )
    assert ran.unmounted == [], "it has mounted nothing there"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "the node is not known: set NODE_NAME (by the downward API) or pass --node"),
        (["--node", "n", "--escapes", "pray"], "argument --escapes: invalid choice: 'pray'"),
    ],
)
def test_wrong_use_is_explained(
    monkeypatch: pytest.MonkeyPatch,
    ran: Ran,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    words: str,
) -> None:
    with pytest.raises(SystemExit) as ended:
        run(monkeypatch, *arguments)
    assert ended.value.code == 2
    assert words in capsys.readouterr().err
    assert ran.settings is None


@pytest.mark.parametrize(
    "error", [native.NativeMissingError("not built"), LibraryError("not writable")]
)
def test_without_the_device_library_it_does_not_start(
    monkeypatch: pytest.MonkeyPatch, ran: Ran, error: Exception
) -> None:
    ran.error = error
    assert run(monkeypatch, "--node", "n1") == 3
    assert ran.settings is None


def test_help_explains_each_option(
    monkeypatch: pytest.MonkeyPatch, ran: Ran, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        run(monkeypatch, "--help")
    assert ended.value.code == 0
    assert ran.settings is None
    text = capsys.readouterr().out
    assert text.startswith("usage: python -m kubeshare.node [-h]")
    attaches = (
        "KubeShare's node agent: publishes this node's GPUs, and attaches shares of them to pods "
        "as the DRA driver vgpu.kubeshare.nthu.\n"
    )
    escapes = (
        " what to do, besides reporting it, about a process of a pod with a share that uses a GPU "
        "without the device library, or more memory than its limit, on nodes without the label "
        "kubeshare.nthu/escapes (default report)\n"
    )
    for words in (
        attaches,
        " this node's name [NODE_NAME]\n",
        " folder below which the GPU driver is installed (default /run/nvidia/driver)\n",
        " where the node's file system is mounted (/)\n",
        escapes,
        " default: KUBECONFIG, or the pod's own account\n",
        " serve /livez, /readyz and /metrics there\n",
    ):
        assert words in text
