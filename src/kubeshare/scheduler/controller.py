"""The steps of a decision about one asker, in order.

One decision is made at a time, and the next sees what the last one has written:
that is what keeps two demands of .6 off the same GPU without a refused write. When
a write is refused all the same, somebody else has changed something: it is read
again and decided again, a bounded number of times.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Final

from kubeshare.api import set_aside
from kubeshare.api.eligibility import Eligibility, without
from kubeshare.api.inventory import Inventory
from kubeshare.api.pool import StaleDecisionError, holder_of
from kubeshare.api.reasons import Reason
from kubeshare.api.v1 import VGPU
from kubeshare.api.waiting import Waiting
from kubeshare.core.decision import Decision
from kubeshare.core.demand import Demand
from kubeshare.core.errors import InvalidValueError
from kubeshare.core.explain import Change
from kubeshare.core.policies import Policy
from kubeshare.kube.controller import RequeueAfter
from kubeshare.kube.errors import ConflictError, InvalidError, NotFoundError
from kubeshare.scheduler.asker import Asker, AskerKey, Kind
from kubeshare.scheduler.decide import change_that_helps, decide, explain
from kubeshare.scheduler.events import Events
from kubeshare.scheduler.metrics import Metrics

ROUNDS: Final = 5
"""How often one asker is decided about again at once before it goes back to the queue."""


class Scheduler:
    """Decides about askers.

    Args:
        policy: places a demand.
        inventory: the cluster's GPUs.
        eligibility: the nodes that pods may go to.
        kinds: where askers of each kind are found.
        waiting: where those are noted for which nothing fits.
        events: tells people.
        metrics: counts.
        wall_clock: says whether a node is still set aside.
    """

    def __init__(  # noqa: PLR0913 - its parts
        self,
        *,
        policy: Policy,
        inventory: Inventory,
        eligibility: Eligibility,
        kinds: Mapping[str, Kind],
        waiting: Waiting[AskerKey],
        events: Events,
        metrics: Metrics,
        wall_clock: Callable[[], datetime],
    ) -> None:
        self._policy = policy
        self._inventory = inventory
        self._eligibility = eligibility
        self._pool = inventory.pool
        self._kinds = kinds
        self._waiting = waiting
        self._events = events
        self._metrics = metrics
        self._wall_clock = wall_clock

    async def reconcile(self, key: AskerKey) -> RequeueAfter | None:
        """Decide about one asker, if there is anything to decide."""
        for _ in range(ROUNDS):
            self._waiting.discard(key)
            asker = self._kinds[key.kind].get(key.key)
            if asker is None:
                return None
            try:
                return await self._once(asker)
            except StaleDecisionError:
                self._metrics.decisions.labels("stale").inc()
            except (ConflictError, NotFoundError):
                await self._read_again(asker)
        raise ConflictError(f"{key}: others changed the cluster {ROUNDS} times")

    async def _once(self, asker: Asker) -> RequeueAfter | None:
        if asker.over:
            return None
        try:
            demand = asker.demand()
        except InvalidValueError as error:
            await self._refuse(asker, error.field, error.message)
            return None
        if demand is None:
            return None
        if asker.decided:
            await asker.confirm()
            return None
        await self._pool.settle()
        held = self._pool.held_by(demand.uid)
        if held:
            await self._take_up(asker, demand, held)
            return None
        return await self._decide(asker, demand)

    async def _decide(self, asker: Asker, demand: Demand) -> RequeueAfter | None:
        aside = set_aside.active(asker.set_aside, self._wall_clock())
        where = without(self._eligibility.of(asker.pod_spec), aside)
        ledger = self._inventory.ledger()
        decision = decide(self._policy, ledger, demand, where)
        self._metrics.decisions.labels(decision.outcome).inc()
        if decision.node is None:
            pending = decision.outcome == "pending"
            await self._wait(
                asker,
                Reason.NO_ROOM if pending else Reason.NEVER_FITS,
                explain(decision),
                partial(change_that_helps, self._policy, ledger, demand, where)
                if pending
                else None,
            )
            left = set_aside.seconds_left(aside, self._wall_clock())
            return None if left is None else RequeueAfter(left)
        await self._pool.take(demand, decision, demand.attempt + 1)
        await self._bind(asker, demand, decision)
        return None

    async def _take_up(self, asker: Asker, demand: Demand, held: Sequence[VGPU]) -> None:
        """Go on where an earlier run of this program was cut off, if that is still right."""
        if len(held) == demand.count and all(_still_right(vgpu, demand) for vgpu in held):
            node = held[0].spec.node_name
            ids = tuple(vgpu.metadata.name for vgpu in held)
            await self._bind(
                asker, demand, Decision(outcome="bound", node=node, devices=ids, reasons={})
            )
            return
        # Another leader may have taken them, and may have told the asker meanwhile.
        live = await self._read_again(asker)
        undecided = live is not None and not live.decided
        if undecided and self._pool.held_by(demand.uid):
            message = "its former pod has not been released by the node yet"
            await self._wait(asker, Reason.RELEASING, message)
            return
        raise StaleDecisionError(f"{demand.name} asks for something else now")

    async def _bind(self, asker: Asker, demand: Demand, decision: Decision) -> None:
        assert decision.node is not None
        gpuids = sorted(decision.devices)
        try:
            told = await asker.bind(decision.node, gpuids)
        except InvalidError as error:
            for gpuid in gpuids:
                await self._pool.give_back(gpuid, demand.uid)
            await self._refuse(asker, f"the {asker.key.kind} is refused", error.message)
            return
        self._events.bound(told, decision.node, gpuids, new=decision.created)
        await told.confirm()

    async def _wait(
        self,
        asker: Asker,
        reason: Reason,
        message: str,
        helps: Callable[[], Change | None] | None = None,
    ) -> None:
        self._waiting.add(asker.key, asker.created)
        if await asker.tell(reason, message):
            # To find that out costs many decisions, so it is told once, with what is news.
            self._events.waits(asker, reason, message, helps() if helps else None)

    async def _refuse(self, asker: Asker, field: str, message: str) -> None:
        self._metrics.decisions.labels("invalid").inc()
        if await asker.tell(Reason.INVALID, f"{field}: {message}"):
            self._events.invalid(asker, field, message)

    async def _read_again(self, asker: Asker) -> Asker | None:
        """Read an asker that may have changed, and take back what it does not name."""
        live = await asker.refresh()
        named = live.gpuids if live is not None else ()
        for vgpu in self._pool.held_by(asker.uid):
            if vgpu.metadata.name not in named:
                await self._pool.give_back(vgpu.metadata.name, asker.uid)
        return live


def _still_right(vgpu: VGPU, demand: Demand) -> bool:
    """The part that is held is the one that the next decision would ask for."""
    holder = holder_of(vgpu, demand.uid)
    return (
        holder is not None
        and holder.attempt == demand.attempt + 1
        and holder.request_micros == demand.request
        and holder.memory_bytes == demand.memory.on(vgpu.spec.memory_bytes)
        and demand.device_id in ("", vgpu.metadata.name)
        and (demand.nodes is None or vgpu.spec.node_name in demand.nodes)
    )
