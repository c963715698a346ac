"""Runs a program: starts its parts, handles signals, and ends in order.

A program has reflectors (which always run, so that a replica that waits for the Lease is warm),
preparations, controllers and leading tasks (which run while it leads, or always if there is no
Lease), and background tasks. SIGTERM ends it in order: take no more keys, finish the keys in
process, release the Lease, write the last events. A second signal, or ``drain_seconds``, cuts that
short.
Readiness means that the stores are filled, not that the replica leads: a waiting replica is ready
to take over.
"""

import asyncio
import signal
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, TypeAlias, TypeVar

import structlog
from prometheus_client import CollectorRegistry, generate_latest

from kubeshare.build_info import BuildInfo
from kubeshare.kube.cache.reflector import Reflector
from kubeshare.kube.client.client import Client
from kubeshare.kube.client.errors import ApiError, ConfigError
from kubeshare.kube.controller.controller import Controller
from kubeshare.kube.controller.events import EventRecorder
from kubeshare.kube.controller.gc_tuning import collections_paused
from kubeshare.kube.controller.health import HealthServer, Page
from kubeshare.kube.controller.leader_election import LeaderElector, LeadershipLostError
from kubeshare.kube.controller.metrics import RuntimeCollector, time_controllers

T = TypeVar("T")
Task: TypeAlias = Callable[[], Awaitable[None]]

log = structlog.get_logger(__name__)

EXIT_UNREACHABLE = 3


class Program:
    """The parts of one program, and the order in which they start and end.

    Args:
        name: for logs.
        client: of the API server.
        elector: its candidate for a Lease; None if every replica works.
        recorder: writes its events, or None.
        port: of ``/livez``, ``/readyz``, ``/metrics``; None for no server, 0 for any port.
        drain_seconds: time that keys in process get after SIGTERM. With the release of the Lease
            and the last events, each of which gives up after two seconds, the default leaves less
            than ten seconds to the end.

    Attributes:
        registry: for metrics of the program itself.
        health: the server of probes and metrics, or None.
    """

    def __init__(  # noqa: PLR0913 - the parts of a program
        self,
        name: str,
        client: Client,
        *,
        elector: LeaderElector | None = None,
        recorder: EventRecorder | None = None,
        port: int | None = None,
        drain_seconds: float = 5.0,
    ) -> None:
        self.name = name
        self._client = client
        self._elector = elector
        self._recorder = recorder
        self._drain_seconds = drain_seconds
        self._reflectors: list[Reflector[Any]] = []
        self._controllers: list[Controller[Any]] = []
        self._leading: list[Task] = []
        self._background: list[Task] = []
        self._preparations: list[Task] = []
        self._checks: list[Callable[[], str | None]] = []
        self._stop = asyncio.Event()
        self.registry = CollectorRegistry()
        self.health = (
            None
            if port is None
            else HealthServer(
                port, ready=self.not_ready, metrics=lambda: generate_latest(self.registry)
            )
        )

    def add_reflector(self, reflector: Reflector[T]) -> Reflector[T]:
        """Run a reflector always, and let readiness wait for it; returns it."""
        self._reflectors.append(reflector)
        return reflector

    def add_controller(self, controller: Controller[Any]) -> None:
        """Run a controller while this replica leads."""
        self._controllers.append(controller)

    def add_task(self, task: Task, *, leading: bool = False) -> None:
        """Run a task always, or only while this replica leads.

        It runs until it is cancelled; its failure ends the program.
        """
        (self._leading if leading else self._background).append(task)

    def add_preparation(self, task: Task) -> None:
        """Await a task whenever this replica begins to lead, before its controllers run."""
        self._preparations.append(task)

    def add_check(self, check: Callable[[], str | None]) -> None:
        """Let readiness depend on ``check``, which returns what is wrong, or None."""
        self._checks.append(check)

    def add_page(self, path: str, page: Page) -> None:
        """Serve a page beside the probes, where there is a port."""
        if self.health is not None:
            self.health.pages[path] = page

    def stop(self) -> None:
        """End in order, as after SIGTERM."""
        self._stop.set()

    @property
    def stopping(self) -> bool:
        """Whether ``stop`` has been called."""
        return self._stop.is_set()

    async def run(self) -> None:
        """Run until ``stop``.

        Raises:
            LeadershipLostError: the Lease could not be renewed; all parts have ended.
            ExceptionGroup: a part failed.
        """
        self.register_metrics()
        async with asyncio.TaskGroup() as group:
            background = [
                group.create_task(_as_coroutine(task)) for task in self._background_tasks()
            ]
            work = group.create_task(self._work())
            stopping = group.create_task(_as_coroutine(self._stop.wait))
            await asyncio.wait({work, stopping}, return_when=asyncio.FIRST_COMPLETED)
            log.info("ending", program=self.name)
            await self._drain(work)
            if self._recorder is not None:
                await self._recorder.flush()
            for task in (stopping, *background):
                task.cancel()
        log.info("ended", program=self.name)

    def register_metrics(self) -> None:
        """Register the metrics of the parts that have been added; ``run`` does so."""
        self.registry.register(BuildInfo())
        electors = [] if self._elector is None else [self._elector]
        self.registry.register(
            RuntimeCollector(self._client, self._reflectors, self._controllers, electors)
        )
        time_controllers(self.registry, self._controllers)

    def _background_tasks(self) -> Iterator[Callable[[], Awaitable[Any]]]:
        if self.health is not None:
            yield self.health.run
        if self._recorder is not None:
            yield self._recorder.run
        for reflector in self._reflectors:
            yield reflector.run
        yield from self._background

    async def _work(self) -> None:
        if self._elector is None:
            await self._lead()
        else:
            await self._elector.run(self._lead)

    async def _lead(self) -> None:
        async with asyncio.TaskGroup() as group:
            if not await self._prepared(group):
                return
            tasks = [group.create_task(_as_coroutine(task)) for task in self._leading]
            running = {
                controller: group.create_task(controller.run()) for controller in self._controllers
            }
            await self._stop.wait()
            for task in tasks:
                task.cancel()
            for controller, task in running.items():
                controller.stop()
                if not controller.queue.processing:
                    task.cancel()

    async def _prepared(self, group: asyncio.TaskGroup) -> bool:
        """Run what must be done before the controllers; whether to go on."""
        stopping = group.create_task(_as_coroutine(self._stop.wait))
        for preparation in self._preparations:
            task = group.create_task(_as_coroutine(preparation))
            await asyncio.wait({task, stopping}, return_when=asyncio.FIRST_COMPLETED)
            task.cancel()
        stopping.cancel()
        return not self.stopping

    async def _drain(self, work: asyncio.Task[None]) -> None:
        if work.done():
            return
        if self._elector is not None and not self._elector.leading:
            work.cancel()
        await asyncio.wait({work}, timeout=self._drain_seconds)
        if not work.done():
            log.warning("keys in process are cut off", seconds=self._drain_seconds)
            work.cancel()
            await asyncio.wait({work}, timeout=self._drain_seconds)

    async def wait_for_sync(self) -> None:
        """Wait until all stores are filled."""
        for reflector in self._reflectors:
            await reflector.wait_for_sync()

    def not_ready(self) -> Iterator[str]:
        """The reasons why the program cannot do its work yet, a sentence each."""
        for reflector in self._reflectors:
            if not reflector.synced:
                yield f"{reflector.resource.plural} not listed yet"
        for check in self._checks:
            if problem := check():
                yield problem


def run_program(build: Callable[[], Awaitable[Program]]) -> int:
    """Build a program, run it until SIGTERM or SIGINT, and return its exit code.

    Args:
        build: creates the program inside the event loop; it may send requests.

    Returns:
        0 after a signal, 3 if the API server or the Lease is out of reach, 1 if a part failed. The
        error has been logged.
    """
    return_code = 0
    try:
        asyncio.run(_run(build))
    except* (ConfigError, ApiError, LeadershipLostError, OSError) as errors:
        log.error("cannot go on", error="; ".join(str(leaf) for leaf in _leaves(errors)))  # noqa: TRY400
        return_code = EXIT_UNREACHABLE
    except* Exception as errors:
        log.exception("failed", error="; ".join(str(leaf) for leaf in _leaves(errors)))
        return_code = 1
    return return_code


async def _run(build: Callable[[], Awaitable[Program]]) -> None:
    program = await build()
    loop = asyncio.get_running_loop()
    main = asyncio.current_task()
    assert main is not None

    def end() -> None:
        if program.stopping:
            main.cancel()
        program.stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, end)
    try:
        async with collections_paused(program.wait_for_sync):
            await program.run()
    except asyncio.CancelledError:
        log.warning("ended at once", program=program.name)


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _leaves(inner)
    else:
        yield error


async def _as_coroutine(task: Callable[[], Awaitable[Any]]) -> None:
    await task()
