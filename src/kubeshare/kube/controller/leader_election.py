"""Leader election by a Lease: at most one replica works.

The replica whose name is in the Lease leads for ``duration`` seconds and renews it while it works.
Clocks of different machines are not compared: a candidate takes over when it has seen the Lease
*unchanged* for ``duration`` seconds of its own monotonic clock. A leader that cannot renew for
``renew_deadline`` seconds of its clock stops; since that is less than ``duration``, it has stopped
before another one starts.

A candidate reads the Lease every 2 x ``retry`` seconds or earlier, and again when the Lease has
been unchanged for ``duration``. So with the defaults a leader that was killed is replaced after at
most 2 x 2.2 + 10 s, while the API server answers at once.

A renewal without an answer may have been carried out. So the next attempt reads the Lease first,
and a renewal that is found there counts from its beginning, for no other saw it earlier.

All writes are conditional on the resourceVersion that was read, so of two candidates one fails.
The last line of defence is elsewhere: a paused process may believe for a moment that it still
leads, and then its conditional writes fail.
"""

import asyncio
import math
import random
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from typing import Final

import structlog
from msgspec import Struct, field

from kubeshare.kube.client.client import Client
from kubeshare.kube.client.errors import AlreadyExistsError, ApiError, ConflictError, NotFoundError
from kubeshare.kube.clock import utc_now
from kubeshare.kube.conditions import micro_timestamp
from kubeshare.kube.meta import ObjectMeta
from kubeshare.kube.resources import LEASES

log = structlog.get_logger(__name__)

_RENEW_AFTER: Final = 0.5
"""The leader renews after this fraction of the renew deadline: one attempt may hang and another
follow, at 15 requests a minute."""
_SHORTEST_PAUSE: Final = 0.85
"""Fraction of a candidate's longest pause that jitter leaves: candidates do not stay in step."""
_TICK: Final = 0.01
"""Seconds added to the expiry of a Lease against rounding."""


class LeadershipLostError(Exception):
    """The Lease was not renewed in time: the program must end."""


class LeaseSpec(Struct, frozen=True, kw_only=True, rename="camel"):
    """The holder of a Lease and its times; an empty holder means that there is none."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class Lease(Struct, frozen=True, kw_only=True):
    """The fields of a Lease that are read."""

    metadata: ObjectMeta
    spec: LeaseSpec = field(default_factory=LeaseSpec)


TYPED_LEASES: Final = LEASES.into(Lease)


class LeaderElector:
    """A candidate for a Lease.

    Args:
        client: of the API server.
        namespace: of the Lease.
        name: of the Lease.
        identity: of this replica, different from all others (the pod's name).
        duration: seconds without a renewal after which others may take over.
        renew_deadline: seconds without a renewal after which this one stops.
        retry: a candidate reads the Lease every 2 x ``retry`` seconds or a little earlier; a leader
            renews after half its ``renew_deadline``, and retries every ``retry`` / 4 seconds.
        annotations: written into the Lease with each change of its holder, beside those of others.
        wall_clock: for the times in the Lease, which only people read.
        draw: returns a random number in [0, 1), for jitter.

    Attributes:
        leading: whether this replica leads now.
        transitions: how often the Lease has changed hands, as last read.
    """

    def __init__(  # noqa: PLR0913 - the parameters of the protocol
        self,
        client: Client,
        namespace: str,
        name: str,
        identity: str,
        *,
        duration: float = 10.0,
        renew_deadline: float = 8.0,
        retry: float = 2.2,
        annotations: Mapping[str, str] | None = None,
        wall_clock: Callable[[], datetime] = utc_now,
        draw: Callable[[], float] = random.random,
    ) -> None:
        if not retry < renew_deadline < duration:
            raise ValueError("a lease needs retry < renew_deadline < duration")
        self._client = client
        self._namespace = namespace
        self.name = name
        self.identity = identity
        self._duration = duration
        self._renew_deadline = renew_deadline
        self._retry = retry
        self._annotations = dict(annotations or {})
        self._wall_clock = wall_clock
        self._draw = draw
        self._seen: Lease | None = None
        self._seen_at = 0.0
        self._unanswered: dict[str, float] = {}
        """When a renewal began, monotonic, by its ``renewTime``: all since the last answer."""
        self._lease_name = f"lease {namespace}/{name}"
        self.leading = False
        self.transitions = 0

    async def run(self, work: Callable[[], Awaitable[None]]) -> None:
        """Wait for leadership, run ``work`` until it returns, and release the Lease.

        ``work`` is cancelled if leadership is lost. An exception of ``work`` is raised.

        Raises:
            LeadershipLostError: the Lease was not renewed in time.
        """
        renewed = await self._acquire()
        self.leading = True
        log.info("leading", lease=self.name, identity=self.identity)
        try:
            async with asyncio.TaskGroup() as group:
                renewing = group.create_task(self._renew(renewed))
                await work()
                renewing.cancel()
        except BaseExceptionGroup as errors:
            lost = errors.subgroup(LeadershipLostError)
            if lost is not None:
                self.leading = False
                raise LeadershipLostError(str(lost.exceptions[0])) from errors
            raise
        finally:
            if self.leading:
                self.leading = False
                await self._release()

    async def _acquire(self) -> float:
        """Try until this replica leads; returns the monotonic time before the successful write."""
        while True:
            started = _now()
            try:
                async with asyncio.timeout(self._renew_deadline):
                    if (held := await self._try(started)) is not None:
                        return held
            except (ApiError, TimeoutError) as error:
                log.warning("cannot get the lease, trying again", error=str(error) or "no answer")
            pause = 2 * self._retry * (_SHORTEST_PAUSE + (1 - _SHORTEST_PAUSE) * self._draw())
            await asyncio.sleep(min(pause, self._expires_in()))

    def _expires_in(self) -> float:
        """Seconds until the Lease of another may be taken; infinite if none is known."""
        if self._seen is None:
            return math.inf
        left = self._seen_at + self._seconds(self._seen) - _now()
        return left + _TICK if left > 0 else math.inf

    async def _renew(self, renewed: float) -> None:
        """Renew until cancelled.

        Args:
            renewed: monotonic time before the last successful write; others saw that write
                later.

        Raises:
            LeadershipLostError: no success for ``renew_deadline`` seconds, or another leads.
        """
        while True:
            due = renewed + _RENEW_AFTER * self._renew_deadline
            await asyncio.sleep(max(0.0, due - _now()))
            renewed = await self._renew_once(renewed + self._renew_deadline)

    async def _renew_once(self, deadline: float) -> float:
        """Try until the Lease is renewed; returns the monotonic time before the write."""
        reason = "no answer"
        while (started := _now()) < deadline:
            try:
                # An attempt without an answer must leave time for another one.
                async with asyncio.timeout_at(min(deadline, started + self._renew_deadline / 3)):
                    if (held := await self._try(started)) is not None:
                        return held
                    raise LeadershipLostError(f"{self._lease_name} is held by another")
            except (ApiError, TimeoutError) as error:
                reason = str(error) or "no answer"
                log.warning("cannot renew the lease, trying again", error=reason)
            await asyncio.sleep(min(self._retry / 4, max(0.0, deadline - _now())))
        raise LeadershipLostError(
            f"{self._lease_name} not renewed for {self._renew_deadline:g} s: {reason}"
        )

    async def _try(self, now: float) -> float | None:
        """Try once to hold the Lease from ``now`` on.

        A leader does not read before it writes, since no other should have written.

        Returns:
            Since when it is held: ``now``, or the monotonic time before an earlier write that was
            not answered; None if another holds it.
        """
        lease = self._seen if self.leading else None
        if lease is None:
            lease = await self._read()
        if lease is None:
            return now if await self._create() else None
        self._observe(lease)
        holder = lease.spec.holder_identity
        if holder and holder != self.identity and now < self._seen_at + self._seconds(lease):
            return None
        renewals = self._unanswered
        if holder == self.identity and lease.spec.renew_time in renewals:
            held = renewals[lease.spec.renew_time]
            renewals.clear()
            return held
        claim = self._claim(lease)
        if self.leading:
            self._seen = None  # without an answer, the next attempt reads what became of this one
            if claim["renewTime"] != lease.spec.renew_time:  # else the wall clock stands still
                renewals.setdefault(str(claim["renewTime"]), now)
        try:
            self._observe(await self._write(lease, claim))
        except (ConflictError, NotFoundError):
            if self.leading:
                raise
            return None
        renewals.clear()
        return now

    async def _read(self) -> Lease | None:
        try:
            return await self._client.get(TYPED_LEASES, self.name, self._namespace)
        except NotFoundError:
            return None

    async def _create(self) -> bool:
        body = {
            "metadata": {
                "name": self.name,
                "namespace": self._namespace,
                "annotations": self._annotations,
            },
            "spec": self._claim(None),
        }
        try:
            self._observe(await self._client.create(TYPED_LEASES, body))
        except AlreadyExistsError:
            return False
        return True

    async def _write(self, lease: Lease, spec: dict[str, object]) -> Lease:
        annotations = lease.metadata.annotations | self._annotations
        described = {"op": "add", "path": "/metadata/annotations", "value": annotations}
        changed = annotations != lease.metadata.annotations
        return await self._client.json_patch(
            TYPED_LEASES,
            self.name,
            [
                {
                    "op": "test",
                    "path": "/metadata/resourceVersion",
                    "value": lease.metadata.resource_version,
                },
                {"op": "add", "path": "/spec", "value": spec},
                *([described] if changed else ()),
            ],
            self._namespace,
        )

    def _claim(self, lease: Lease | None) -> dict[str, object]:
        present = micro_timestamp(self._wall_clock())
        old = LeaseSpec() if lease is None else lease.spec
        ours = old.holder_identity == self.identity
        self.transitions = (old.lease_transitions or 0) + (lease is not None and not ours)
        return {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": int(self._duration),
            "acquireTime": (old.acquire_time if ours else None) or present,
            "renewTime": present,
            "leaseTransitions": self.transitions,
        }

    async def _release(self) -> None:
        """Release the Lease, so that the next leader need not wait; tried for ``retry`` seconds."""
        try:
            async with asyncio.timeout(self._retry):
                lease = await self._read()
                if lease is None or lease.spec.holder_identity != self.identity:
                    return
                present = micro_timestamp(self._wall_clock())
                released = {
                    "holderIdentity": "",
                    "leaseDurationSeconds": 1,
                    "acquireTime": present,
                    "renewTime": present,
                    "leaseTransitions": lease.spec.lease_transitions or 0,
                }
                await self._write(lease, released)
                log.info("lease released", lease=self.name)
        except (ApiError, TimeoutError) as error:
            log.warning("lease not released, it will expire", error=str(error) or "no answer")

    def _observe(self, lease: Lease) -> None:
        # Timed after the answer: the holder wrote before, and counts from its own write.
        if self._seen is None or (
            self._seen.metadata.resource_version != lease.metadata.resource_version
        ):
            self._seen, self._seen_at = lease, _now()

    def _seconds(self, lease: Lease) -> float:
        """How long the Lease is valid without a renewal: at least as long as its holder says."""
        return max(self._duration, float(lease.spec.lease_duration_seconds or 0))


def _now() -> float:
    return asyncio.get_running_loop().time()
