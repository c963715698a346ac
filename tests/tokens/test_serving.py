"""The daemon as a program, in this process: options, ends, probes and standing by."""

import asyncio
import gc
import json
import os
import resource
import signal
import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import structlog
from click.testing import CliRunner
from structlog.testing import capture_logs

from deadlines import DEADLINE_S
from kubeshare.core.token import DECAYED_AVERAGE, SLIDING_WINDOW
from kubeshare.kube.controller import health
from kubeshare.simulator.control import until
from kubeshare.tokens import overheads, program, serving
from kubeshare.tokens.arbitration import Rules
from kubeshare.tokens.client import ask_snapshot
from kubeshare.tokens.daemon import Daemon
from kubeshare.tokens.files.folder_lock import AnotherDaemonError
from kubeshare.tokens.files.grants import remove_grant, write_grant
from kubeshare.tokens.files.run_folder import Paths
from kubeshare.tokens.files.statuses import read_status
from kubeshare.tokens.metrics import TokenCollector
from kubeshare.tokens.serving import IdleExit, Options, serve
from kubeshare.tokens.snapshot import Totals
from tokens.helpers import GPU_A, Page, grant


@pytest.fixture(autouse=True)
def priorities(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[int, ...]]]:
    """What the daemon asks of the kernel; this process stays as it is."""
    asked: list[tuple[int, ...]] = []
    monkeypatch.setattr(os, "setpriority", lambda *given: asked.append(given))
    monkeypatch.setattr(resource, "setrlimit", lambda *given: asked.append(given))
    monkeypatch.setattr(gc, "freeze", lambda: None)
    interval = sys.getswitchinterval()
    yield asked
    sys.setswitchinterval(interval)


def run(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(DEADLINE_S):
            await scenario()

    asyncio.run(bounded())


def granted(paths: Paths, claim: str) -> bool:
    status = read_status(paths, claim)
    return status is not None and status.state == "ACTIVE"


def terminate() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def test_it_serves_until_it_is_told_to_end(paths: Paths, priorities: list[tuple[int, ...]]) -> None:
    async def scenario() -> None:
        paths.make()
        task = asyncio.create_task(serve(paths, Options()))
        await until(paths.control.exists, seconds=DEADLINE_S)
        found = await asyncio.to_thread(ask_snapshot, paths)
        assert (found["pid"], found["claims"]) == (os.getpid(), [])
        assert sys.getswitchinterval() == pytest.approx(0.0005)
        terminate()
        await task
        assert not paths.control.exists()

    run(scenario)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    assert priorities[:2] == [
        (resource.RLIMIT_NOFILE, (hard, hard)),
        (os.PRIO_PROCESS, 0, -10),
    ]


def test_without_a_grant_for_too_long_it_ends(paths: Paths) -> None:
    async def scenario() -> None:
        paths.make()
        write_grant(paths, grant("a"))
        task = asyncio.create_task(serve(paths, Options(idle_exit_s=0.05)))
        await until(lambda: granted(paths, "a"), seconds=DEADLINE_S)
        remove_grant(paths, "a")
        await task

    run(scenario)


class Timers:
    """A loop that only keeps its timers."""

    def __init__(self) -> None:
        self.kept: list[tuple[float, Callable[[], None]]] = []

    def call_later(self, seconds: float, call: Callable[[], None]) -> Any:
        timer = (seconds, call)
        self.kept.append(timer)
        return SimpleNamespace(cancel=lambda: self.kept.remove(timer))


def test_the_time_without_a_grant_begins_anew_with_each_scan() -> None:
    timers: Any = Timers()
    stop = asyncio.Event()
    idle = IdleExit(timers, 7.0, stop)
    for is_empty, running in ((False, 0), (True, 1), (True, 1), (False, 0), (False, 0), (True, 1)):
        idle.on_scanned(is_empty=is_empty)
        assert len(timers.kept) == running
    [(seconds, call)] = timers.kept
    call()
    assert (seconds, stop.is_set()) == (7.0, True)
    forever = IdleExit(timers, None, stop)
    forever.on_scanned(is_empty=True)
    assert len(timers.kept) == 1


@pytest.fixture
def starts(monkeypatch: pytest.MonkeyPatch) -> list[Paths]:
    """The attempts to serve a folder."""
    attempts: list[Paths] = []

    class Counted(Daemon):
        def __init__(self, paths: Paths, *given: Any, **more: Any) -> None:
            attempts.append(paths)
            super().__init__(paths, *given, **more)

    monkeypatch.setattr(serving, "Daemon", Counted)
    return attempts


def test_a_second_one_fails_unless_it_stands_by(paths: Paths) -> None:
    async def scenario() -> None:
        paths.make()
        first = Daemon(paths, asyncio.get_running_loop())
        with pytest.raises(AnotherDaemonError):
            await serve(paths, Options())
        first.close()

    run(scenario)


@pytest.mark.parametrize("follows", [True, False])
def test_one_that_stands_by_follows_or_ends(
    paths: Paths, starts: list[Paths], follows: bool
) -> None:
    async def scenario() -> None:
        paths.make()
        first = Daemon(paths, asyncio.get_running_loop())
        second = asyncio.create_task(serve(paths, Options(stands_by=True)))
        await until(lambda: len(starts) > 3, seconds=DEADLINE_S)
        assert not paths.control.exists()
        if follows:
            first.close()
            await until(paths.control.exists, seconds=DEADLINE_S)
        terminate()
        await second
        assert not paths.control.exists()
        if not follows:
            first.close()

    run(scenario)


def is_waiting(logs: list[Any]) -> bool:
    return any(each["event"].startswith("waiting for the node agent") for each in logs)


def test_one_that_awaits_the_agent_leaves_the_folder_alone_until_it_is_prepared(
    paths: Paths, starts: list[Paths]
) -> None:
    paths.root.mkdir(mode=0o700, exist_ok=True)

    async def scenario() -> None:
        with capture_logs() as logs:
            task = asyncio.create_task(serve(paths, Options(stands_by=True, awaits_agent=True)))
            await until(lambda: is_waiting(logs), seconds=DEADLINE_S)
        assert list(paths.root.iterdir()) == []
        hidden = paths.root.with_name("hidden")
        paths.root.rename(hidden)
        paths.root.mkdir(mode=0o700)
        paths.boot.touch()
        await until(paths.control.exists, seconds=DEADLINE_S)
        assert (list(hidden.iterdir()), len(starts)) == ([], 1)
        terminate()
        await task

    run(scenario)


def test_one_that_awaits_the_agent_serves_the_grants_of_an_older_one(paths: Paths) -> None:
    async def scenario() -> None:
        paths.make()
        write_grant(paths, grant("a"))
        task = asyncio.create_task(serve(paths, Options(awaits_agent=True)))
        await until(lambda: granted(paths, "a"), seconds=DEADLINE_S)
        terminate()
        await task

    run(scenario)


def test_one_that_awaits_the_agent_ends_when_told_to(paths: Paths, starts: list[Paths]) -> None:
    async def scenario() -> None:
        with capture_logs() as logs:
            task = asyncio.create_task(serve(paths, Options(awaits_agent=True)))
            await until(lambda: is_waiting(logs), seconds=DEADLINE_S)
            terminate()
            await task

    run(scenario)
    assert starts == []


def test_one_that_awaits_the_agent_ends_where_it_sees_what_was_unmounted(paths: Paths) -> None:
    async def scenario() -> None:
        with capture_logs() as logs:
            task = asyncio.create_task(serve(paths, Options(awaits_agent=True)))
            await until(lambda: is_waiting(logs), seconds=DEADLINE_S)
            paths.root.mkdir(mode=0o700, exist_ok=True)
            paths.unmounted.touch()
            with pytest.raises(OSError, match="start again"):
                await task

    run(scenario)


def test_probes_and_metrics_are_served(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    servers: list[Any] = []

    class Watched(health.HealthServer):
        def __init__(self, *given: Any, **more: Any) -> None:
            super().__init__(*given, **more)
            servers.append(self)

    monkeypatch.setattr(health, "HealthServer", Watched)

    async def ask(path: str) -> str:
        reader, writer = await asyncio.open_connection("127.0.0.1", servers[0].port)
        writer.write(f"GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n".encode())
        answer = (await reader.read()).decode()
        writer.close()
        return answer

    async def scenario() -> None:
        paths.make()
        write_grant(paths, grant("a"))
        task = asyncio.create_task(serve(paths, Options(port=0)))
        await until(lambda: granted(paths, "a"), seconds=DEADLINE_S)
        await until(lambda: servers, seconds=DEADLINE_S)
        await servers[0].listening.wait()
        assert (await ask("/readyz")).startswith("HTTP/1.1 200")
        metrics = await ask("/metrics")
        assert 'kubeshare_token_request{claim="a"' in metrics
        assert "kubeshare_token_connections_dropped_total 0.0" in metrics
        terminate()
        await task

    run(scenario)


def test_one_that_stands_by_is_ready_and_has_no_claims(
    paths: Paths, starts: list[Paths], monkeypatch: pytest.MonkeyPatch
) -> None:
    collectors: list[TokenCollector] = []

    async def serve_metrics(
        refresh: Callable[[], Awaitable[None]],
        entries: Callable[[], list[dict[str, Any]]],
        totals: Callable[[], Totals],
        port: int,
    ) -> None:
        assert port == 9
        await refresh()
        collectors.append(TokenCollector(entries, totals))
        await asyncio.Event().wait()

    monkeypatch.setattr(serving, "_serve_metrics", serve_metrics)

    async def scenario() -> None:
        paths.make()
        write_grant(paths, grant("a"))
        first = Daemon(paths, asyncio.get_running_loop())
        second = asyncio.create_task(serve(paths, Options(port=9, stands_by=True)))
        await until(lambda: collectors and len(starts) > 2, seconds=DEADLINE_S)
        assert claims(collectors[0]) == set()
        first.close()
        await until(paths.control.exists, seconds=DEADLINE_S)
        assert claims(collectors[0]) == {"a"}
        terminate()
        await second

    run(scenario)


def claims(collector: TokenCollector) -> set[str]:
    """The claims that have metrics; the number of dropped connections is there without any."""
    samples = [sample for metric in collector.collect() for sample in metric.samples]
    own = {sample.name: sample.value for sample in samples if not sample.labels}
    assert own == {
        "kubeshare_token_connections_dropped_total": 0,
        "kubeshare_token_pauses_total": 0,
        "kubeshare_token_counters_skipped": 0,
        "kubeshare_token_wait_duration_seconds_count": 0,
        "kubeshare_token_wait_duration_seconds_sum": 0,
    }
    of_all = {"kubeshare_build_info", "kubeshare_token_wait_duration_seconds_bucket"}
    labelled = [sample for sample in samples if sample.labels]
    return {each.labels["claim"] for each in labelled if each.name not in of_all}


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        ([], Options(Rules(100_000_000, DECAYED_AVERAGE))),
        (
            ["--quota", "0.05", "--usage", "window", "--idle-exit", "3", "--port", "9"],
            Options(Rules(50_000_000, SLIDING_WINDOW), 3.0, 9),
        ),
        (
            ["--nvml", "libfake.so", "--stand-by"],
            Options(Rules(100_000_000, DECAYED_AVERAGE), nvml="libfake.so", stands_by=True),
        ),
        (["--await-agent"], Options(awaits_agent=True)),
    ],
)
def test_the_options_of_the_program(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, arguments: list[str], options: Options
) -> None:
    served: list[tuple[Path, Options]] = []

    async def record(paths: Paths, given: Options) -> None:
        served.append((paths.root, given))

    monkeypatch.setattr(program, "serve", record)
    monkeypatch.setattr(structlog, "configure", lambda **_: None)
    result = CliRunner().invoke(program.main, ["--run-folder", str(tmp_path), *arguments])
    assert (result.exit_code, served) == (0, [(tmp_path, options)])


@pytest.mark.parametrize(
    ("options", "logged"), [([], ["info", "warning"]), (["--log-level", "warning"], ["warning"])]
)
def test_it_logs_from_the_severity_that_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, options: list[str], logged: list[str]
) -> None:
    async def serve(_: Paths, __: Options) -> None:
        for level in ("debug", "info", "warning"):
            getattr(structlog.get_logger(), level)("line")

    monkeypatch.setattr(program, "serve", serve)
    before = structlog.get_config()
    try:
        result = CliRunner().invoke(program.main, ["--run-folder", str(tmp_path), *options])
    finally:
        structlog.configure(**before)
    assert [json.loads(line)["level"] for line in result.stdout.splitlines()] == logged


@pytest.mark.parametrize(
    ("error", "code"), [(OSError("no room"), 3), (AnotherDaemonError("one serves it"), 1)]
)
def test_what_hinders_the_program_is_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, error: Exception, code: int
) -> None:
    async def fail(_: Paths, __: Options) -> None:
        raise error

    monkeypatch.setattr(program, "serve", fail)
    monkeypatch.setattr(structlog, "configure", lambda **_: None)
    result = CliRunner().invoke(program.main, ["--run-folder", str(tmp_path)])
    assert result.output == f"kubeshare.tokens: {error}\n"
    assert result.exit_code == code


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The libraries that were loaded; ``libnone.so`` is not there."""
    names: list[object] = []

    def load(name: object) -> None:
        names.append(name)
        if name == "libnone.so":
            raise OSError("not there")

    monkeypatch.setattr(serving, "ctypes", SimpleNamespace(CDLL=load))
    monkeypatch.setattr(serving, "_NVML_DELAY_S", 0.0)
    return names


def test_commands_are_charged_what_the_driver_counts(
    paths: Paths, monkeypatch: pytest.MonkeyPatch, loaded: list[object]
) -> None:
    ended = asyncio.Event()

    async def watch(given: Paths, held: Callable[[], object], report: Callable[..., None]) -> None:
        assert (given, held()) == (paths, {})
        report("a", GPU_A, 7)
        report("gone", GPU_A, 7)
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    monkeypatch.setattr(overheads, "watch", watch)

    async def scenario() -> None:
        paths.make()
        write_grant(paths, grant("a"))
        task = asyncio.create_task(serve(paths, Options(nvml="libfake.so")))
        page = paths.claim("a") / "page"
        await until(lambda: page.exists() and Page(page).cell()[8] == 7, seconds=DEADLINE_S)
        terminate()
        await task
        assert ended.is_set()

    run(scenario)
    assert loaded == ["libfake.so"]


def test_without_nvml_commands_are_served_all_the_same(
    paths: Paths, monkeypatch: pytest.MonkeyPatch, loaded: list[object]
) -> None:
    monkeypatch.delattr(overheads, "watch")

    async def scenario() -> None:
        paths.make()
        task = asyncio.create_task(serve(paths, Options(nvml="libnone.so")))
        await until(lambda: loaded, seconds=DEADLINE_S)
        write_grant(paths, grant("a"))
        await until(lambda: granted(paths, "a"), seconds=DEADLINE_S)
        terminate()
        await task

    with capture_logs() as logs:
        run(scenario)
    [warning] = [each for each in logs if each["log_level"] == "warning"]
    assert (warning["event"], warning["error"]) == (
        "contexts are not charged: no NVML",
        "not there",
    )
