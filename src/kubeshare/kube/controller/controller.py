"""Takes keys from a queue and brings what they name to where it should be.

A reconcile function is told a key, looks at the stores, and acts on the difference
between wish and fact. It returns None (all is well), ``RequeueAfter`` (look again
then), ``Beside`` (the next key need not wait for the rest), or raises:

* ``TerminalError``: no retry helps until the object changes;
* anything else: the key comes back after a backoff of its own.

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
from kubeshare.kube.cache.store import Change
from kubeshare.kube.client.errors import (
    ApiError,
    ConflictError,
    TooManyRequestsError,
    UnreachableError,
)
from kubeshare.kube.controller.workqueue import QueueClosedError, WorkQueue
from kubeshare.kube.logs import ReconcileContext, current_reconcile
from kubeshare.kube.meta import Key, key_of

K = TypeVar("K", bound=Hashable)
S = TypeVar("S")

log = structlog.get_logger(__name__)

_numbers = count(1)


MIN_REQUEUE_SECONDS: Final = 0.001
"""Seconds of the shortest wait that is worth one: a remainder that only rounding has left
would come back too early, again and again."""
UNAVAILABLE_RETRY_SECONDS: Final = 60.0
"""Seconds after which a key is tried again at the latest that the API server did not answer: one
that was away for long is not to be waited for as long again."""
_NO_ANSWER: Final = (UnreachableError, TooManyRequestsError)
_FAILING: Final = 500
"""HTTP statuses from here on say that it failed, and not what was asked."""


class RequeueAfter(Struct, frozen=True):
    """Look at the key again after that many seconds, unless another look says otherwise.

    A look works out anew what it waits for, so what the last one said is what counts.
    """

    seconds: float


class InBackground(Struct, frozen=True):
    """What is left to do for the key while its worker takes the next one.

    Until it is done the key is in process like any other, and its failures are the key's.
    """

    rest: Callable[[], Awaitable[RequeueAfter | None]]


def earliest(*agains: RequeueAfter | None) -> RequeueAfter | None:
    """The one that is due first; None where there is none."""
    return min(
        (again for again in agains if again is not None),
        key=lambda again: again.seconds,
        default=None,
    )


class TerminalError(Exception):
    """The object cannot be reconciled as it is; it is looked at again when it changes."""


Outcome: TypeAlias = RequeueAfter | InBackground | None
Reconcile = Callable[[K], Awaitable[Outcome]]


def own_key(obj: Any) -> tuple[Key]:
    """The object's own key, for ``Controller.watch``."""
    return (key_of(obj),)


def _always(_change: Change[Any]) -> bool:
    return True


class Controller(Generic[K]):
    """A named reconcile function with its queue and workers.

    Args:
        name: for logs and metrics.
        reconcile: brings one key in order; runs for one key at most once at a time.
        workers: how many keys at once.
        background: for how many more keys the rest may be going on.
        timeout: seconds that one reconcile may take, and its rest once more.
        queue: its own by default.

    Attributes:
        queue: keys that need a look; anything may add some.
        results: how reconciles ended, by ``success``, ``requeue_after``, ``conflict``,
            ``error``, ``timeout``, ``terminal``.
    """

    def __init__(  # noqa: PLR0913 - how it works
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
        self._reflectors: list[Reflector[Any]] = []
        self.queue: WorkQueue[K] = WorkQueue(name) if queue is None else queue
        self.results: Counter[str] = Counter()

    def watch(
        self,
        reflector: Reflector[S],
        keys: Callable[[S], Iterable[K]],
        when: Callable[[Change[S]], bool] = _always,
    ) -> None:
        """Queue keys when objects change; ``run`` waits for the reflector's first list.

        Args:
            reflector: what to watch.
            keys: which keys an object concerns (``own_key``: its own); asked for the
                object before and after the change, since both may be concerned.
            when: which changes matter.
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
        """Queue the keys that a change concerns; ``run`` waits for the reflector's first list."""

        def enqueue(change: Change[S]) -> None:
            for key in keys(change):
                self.queue.add(key, initial=change.initial)

        self._reflectors.append(reflector)
        reflector.subscribe(enqueue)

    async def run(self) -> None:
        """Work until ``stop``; wait for the stores to be filled first."""
        for reflector in self._reflectors:
            await reflector.wait_for_sync()
        async with asyncio.TaskGroup() as group:
            for _ in range(self._workers):
                group.create_task(self._work(group))

    def stop(self) -> None:
        """Take no further key; ``run`` returns when those in process are done."""
        self.queue.close()

    async def _work(self, group: asyncio.TaskGroup) -> None:
        while True:
            try:
                key = await self.queue.get()
            except QueueClosedError:
                return
            handed_on = False
            try:
                current_reconcile.set(ReconcileContext(self.name, key, next(_numbers)))
                rest = await self._attempt(key, partial(self._reconcile, key))
                if rest is not None:
                    await self._background.acquire()
                    group.create_task(self._finish(key, rest))
                    handed_on = True
            finally:
                current_reconcile.set(None)
                if not handed_on:
                    self.queue.done(key)

    async def _finish(self, key: K, rest: InBackground) -> None:
        try:
            await self._attempt(key, rest.rest)
        finally:
            self._background.release()
            self.queue.done(key)

    async def _attempt(self, key: K, do: Callable[[], Awaitable[Outcome]]) -> InBackground | None:
        """Do it once, and note how it ended; never raises but for cancellation.

        Returns:
            what is left to do.
        """
        deadline = asyncio.timeout(self._timeout)
        try:
            async with deadline:
                outcome = await do()
        except Exception as error:  # noqa: BLE001 - no exception of a reconcile ends the program
            if isinstance(error, TimeoutError) and deadline.expired():
                self.queue.add_rate_limited(key, UNAVAILABLE_RETRY_SECONDS)
                log.error("took too long, trying again", timeout_seconds=self._timeout)  # noqa: TRY400
                self.results["timeout"] += 1
            else:
                self.results[self._failed(key, error)] += 1
            return None
        if isinstance(outcome, InBackground):
            return outcome
        self.queue.forget(key)
        self.queue.cancel_delay(key)
        if outcome is None:
            self.results["success"] += 1
        else:
            self.queue.add_after(key, max(outcome.seconds, MIN_REQUEUE_SECONDS))
            self.results["requeue_after"] += 1
        return None

    def _failed(self, key: K, error: Exception) -> str:
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
        elif isinstance(error, _NO_ANSWER) or error.status >= _FAILING:
            self.queue.add_rate_limited(key, UNAVAILABLE_RETRY_SECONDS)
        else:
            self.queue.add_rate_limited(key)
