"""Reconciles the keys of a work queue, with retries.

A reconcile function gets a key, reads the stores, and acts on the difference between desired and
actual state. It returns None (done), ``RequeueAfter`` (reconcile again later), ``InBackground``
(the worker need not wait for the rest), or raises:

* ``TerminalError``: no retry helps until the object changes;
* any other exception: the key is queued again after its backoff.

No exception of a reconcile function ends the program.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Hashable, Iterable, Iterator
from functools import partial
from itertools import count
from typing import Any, Final, Generic, TypeAlias, TypeVar

import structlog
from msgspec import Struct

from kubeshare.kube.cache.reflector import Reflector
from kubeshare.kube.cache.store import ADDED, Change
from kubeshare.kube.client.errors import (
    ApiError,
    ConflictError,
    TooManyRequestsError,
    UnreachableError,
)
from kubeshare.kube.controller.workqueue import QueueClosedError, WorkQueue
from kubeshare.kube.logs import ReconcileContext, current_reconcile, debugging
from kubeshare.kube.meta import Key, key_of

K = TypeVar("K", bound=Hashable)
S = TypeVar("S")

log = structlog.get_logger(__name__)

_numbers = count(1)


MIN_REQUEUE_SECONDS: Final = 0.001
"""Shortest delay of a requeue, in seconds. A remainder of rounding alone would requeue the key too
early, again and again."""
OBJECTS_AT_ONCE: Final = 100
"""Objects whose keys are queued at the start before others run."""
UNAVAILABLE_RETRY_SECONDS: Final = 60.0
"""Longest delay of a retry while the API server does not answer, in seconds: after a long outage,
keys must not wait as long again."""
_UNAVAILABLE: Final = (UnreachableError, TooManyRequestsError)
_SERVER_ERROR: Final = 500
"""From this HTTP status on, the server failed; below, the request was wrong."""


class RequeueAfter(Struct, frozen=True):
    """Reconcile the key again after so many seconds.

    The next reconcile, if it comes earlier, decides anew: only its own result counts then.
    """

    seconds: float


class InBackground(Struct, frozen=True):
    """The rest of a reconcile, which runs while the worker takes the next key.

    The key stays in process until then, and failures of ``rest`` count as its own.
    """

    rest: Callable[[], Awaitable[RequeueAfter | None]]


def earliest(*requeues: RequeueAfter | None) -> RequeueAfter | None:
    """The earliest requeue; None if all are None."""
    return min(
        (requeue for requeue in requeues if requeue is not None),
        key=lambda requeue: requeue.seconds,
        default=None,
    )


class TerminalError(Exception):
    """The object cannot be reconciled as it is; only a change of it starts a new attempt."""


Outcome: TypeAlias = RequeueAfter | InBackground | None
Reconcile: TypeAlias = Callable[[K], Awaitable[Outcome]]


def own_key(obj: Any) -> tuple[Key]:
    """The object's own key, for ``Controller.watch``."""
    return (key_of(obj),)


def _every_change(_change: Change[Any]) -> bool:
    return True


class Controller(Generic[K]):
    """A named reconcile function with its queue and workers.

    Args:
        name: for logs and metrics.
        reconcile: reconciles one key; never runs twice at once for the same key.
        workers: how many keys are reconciled at once.
        background: for how many more keys an ``InBackground`` may run.
        timeout: of one reconcile in seconds, and of its ``InBackground`` again.
        queue: a new one by default.

    Attributes:
        queue: the keys to reconcile; anything may add some.
        results: number of reconciles by result: ``success``, ``requeue_after``, ``conflict``,
            ``error``, ``timeout``, ``terminal``.
    """

    def __init__(  # noqa: PLR0913 - the settings of a controller
        self,
        name: str,
        reconcile: Reconcile[K],
        *,
        workers: int = 1,
        background: int = 1,
        timeout: float = 30.0,
        queue: WorkQueue[K] | None = None,
    ) -> None:
        self.name = name
        self._reconcile = reconcile
        self._workers = workers
        self._background = asyncio.Semaphore(background)
        self._timeout = timeout
        self._sources: list[tuple[Reflector[Any], Callable[[Change[Any]], Iterable[K]]]] = []
        self._running = False
        self.queue: WorkQueue[K] = WorkQueue(name) if queue is None else queue
        self.results: Counter[str] = Counter()

    @property
    def running(self) -> bool:
        """Whether it reconciles: not before :meth:`run`."""
        return self._running

    def watch(
        self,
        reflector: Reflector[S],
        keys: Callable[[S], Iterable[K]],
        when: Callable[[Change[S]], bool] = _every_change,
    ) -> None:
        """Queue keys when objects change; ``run`` waits for the reflector's first list.

        Args:
            reflector: watches the objects.
            keys: maps an object to keys (``own_key``: its own); called for the old and for the
                new state, since both may concern a key.
            when: a predicate that selects changes.
        """

        def concerned(change: Change[S]) -> Iterator[K]:
            if when(change):
                for state in (
                    (change.object,) if change.old is None else (change.old, change.object)
                ):
                    yield from keys(state)

        self.watch_changes(reflector, concerned)

    def watch_changes(
        self, reflector: Reflector[S], keys: Callable[[Change[S]], Iterable[K]]
    ) -> None:
        """Queue the keys that ``keys`` returns for a change; ``run`` waits for the first list.

        Before ``run``, nothing is queued: a replica that waits for the Lease would keep every key
        that it has seen. ``run`` begins with the keys of all objects that there are then.
        """

        def enqueue(change: Change[S]) -> None:
            for key in keys(change):
                if self._running:
                    self.queue.add(key, initial=change.initial)

        self._sources.append((reflector, keys))
        reflector.subscribe(enqueue)

    def add(self, key: K) -> None:
        """Queue a key for a reason that is not watched; before ``run``, nothing is queued."""
        if self._running:
            self.queue.add(key)

    async def run(self) -> None:
        """Reconcile until ``stop``; wait for the first lists before."""
        for reflector, _ in self._sources:
            await reflector.wait_for_sync()
        self._running = True
        async with asyncio.TaskGroup() as group:
            for _ in range(self._workers):
                group.create_task(self._run_worker(group))
            await self._queue_known()

    async def _queue_known(self) -> None:
        """Queue the keys of all objects, as their first list does."""
        for reflector, keys in self._sources:
            for number, obj in enumerate(reflector.store.snapshot().values(), start=1):
                for key in keys(Change(ADDED, obj, initial=True)):
                    self.queue.add(key, initial=True)
                if not number % OBJECTS_AT_ONCE:
                    await asyncio.sleep(0)

    def stop(self) -> None:
        """Take no more keys; ``run`` returns when the keys in process are done."""
        self.queue.close()

    async def _run_worker(self, group: asyncio.TaskGroup) -> None:
        while True:
            try:
                key = await self.queue.get()
            except QueueClosedError:
                return
            in_background = False
            try:
                current_reconcile.set(ReconcileContext(self.name, key, next(_numbers)))
                if debugging():
                    log.debug("reconcile begins", failures=self.queue.failures(key))
                rest = await self._attempt(key, partial(self._reconcile, key))
                if rest is not None:
                    await self._background.acquire()
                    group.create_task(self._finish_in_background(key, rest))
                    in_background = True
            finally:
                current_reconcile.set(None)
                if not in_background:
                    self.queue.done(key)
            # A reconcile that awaits nothing must not keep the Lease and the probes waiting.
            await asyncio.sleep(0)

    async def _finish_in_background(self, key: K, rest: InBackground) -> None:
        try:
            await self._attempt(key, rest.rest)
        finally:
            self._background.release()
            self.queue.done(key)

    async def _attempt(
        self, key: K, attempt: Callable[[], Awaitable[Outcome]]
    ) -> InBackground | None:
        """Run one attempt and count its result; raises only when cancelled.

        Returns:
            the rest of the reconcile, if it runs in the background.
        """
        began = _now()
        deadline = asyncio.timeout(self._timeout)
        try:
            async with deadline:
                outcome = await attempt()
        except Exception as error:  # noqa: BLE001 - no exception of a reconcile ends the program
            if isinstance(error, TimeoutError) and deadline.expired():
                self.queue.add_rate_limited(key, UNAVAILABLE_RETRY_SECONDS)
                log.error("took too long, trying again", timeout_seconds=self._timeout)  # noqa: TRY400
                result = "timeout"
            else:
                result = self._handle_error(key, error)
        else:
            if isinstance(outcome, InBackground):
                return outcome
            result = self._handle_success(key, outcome)
        self.results[result] += 1
        if debugging():
            log.debug(
                "reconcile ends",
                result=result,
                duration_seconds=round(_now() - began, 6),
                requeue_seconds=self.queue.delay(key),
            )
        return None

    def _handle_success(self, key: K, outcome: RequeueAfter | None) -> str:
        self.queue.forget(key)
        self.queue.cancel_delay(key)
        if outcome is None:
            return "success"
        self.queue.add_after(key, max(outcome.seconds, MIN_REQUEUE_SECONDS))
        return "requeue_after"

    def _handle_error(self, key: K, error: Exception) -> str:
        match error:
            case TerminalError():
                self.queue.forget(key)
                log.error("cannot be reconciled as it is", error=str(error))
                return "terminal"
            case ConflictError():
                log.info("decided from an old state, trying again", error=str(error))
                self.queue.add_rate_limited(key)
                return "conflict"
            case UnreachableError() | TooManyRequestsError():
                log.warning("API server not available, trying again", error=str(error))
                self._retry(key, error)
            case ApiError():
                log.error("refused, trying again", error=str(error))
                self._retry(key, error)
            case _:
                log.error("failed, trying again", exc_info=error)
                self.queue.add_rate_limited(key)
        return "error"

    def _retry(self, key: K, error: ApiError) -> None:
        if error.retry_after is not None:
            self.queue.add_after(key, error.retry_after)
        elif isinstance(error, _UNAVAILABLE) or error.status >= _SERVER_ERROR:
            self.queue.add_rate_limited(key, UNAVAILABLE_RETRY_SECONDS)
        else:
            self.queue.add_rate_limited(key)


def _now() -> float:
    return asyncio.get_running_loop().time()
