"""The steps of a decision about one SharePod, in order.

One decision is made at a time, and the next sees what the last one has written:
that is what keeps two demands of .6 off the same GPU without a refused write. When
a write is refused all the same, somebody else has changed something: it is read
again and decided again, a bounded number of times.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from kubeshare.api import sharepods
from kubeshare.api.inventory import Inventory
from kubeshare.api.latest import Latest
from kubeshare.api.pool import StaleDecisionError, holder_of
from kubeshare.api.reasons import Reason
from kubeshare.api.v1 import VGPU, SharePod
from kubeshare.api.waiting import Waiting
from kubeshare.core.decision import Decision
from kubeshare.core.demand import Demand
from kubeshare.core.errors import InvalidValueError
from kubeshare.core.explain import Change
from kubeshare.core.policies import Policy
from kubeshare.dialects.sharepod import demand_of
from kubeshare.kube.errors import ConflictError, InvalidError, NotFoundError
from kubeshare.kube.meta import Key
from kubeshare.kube.resources import Raw
from kubeshare.scheduler.bind import Binder
from kubeshare.scheduler.decide import change_that_helps, decide, explain
from kubeshare.scheduler.eligibility import Eligibility
from kubeshare.scheduler.events import Events
from kubeshare.scheduler.metrics import Metrics
from kubeshare.scheduler.status import Status

ROUNDS: Final = 5
"""How often one SharePod is decided about again at once before it goes back to the queue."""


class Scheduler:
    """Decides about SharePods.

    Args:
        policy: places a demand.
        inventory: the cluster's GPUs.
        eligibility: the nodes that pods may go to.
        known: the SharePods.
        waiting: where those are noted for which nothing fits.
        binder: tells SharePods.
        status: writes their condition.
        events: tells people.
        metrics: counts.
    """

    def __init__(  # noqa: PLR0913 - its parts
        self,
        *,
        policy: Policy,
        inventory: Inventory,
        eligibility: Eligibility,
        known: Latest[Raw],
        waiting: Waiting,
        binder: Binder,
        status: Status,
        events: Events,
        metrics: Metrics,
    ) -> None:
        self._policy = policy
        self._inventory = inventory
        self._eligibility = eligibility
        self._pool = inventory.pool
        self._known = known
        self._waiting = waiting
        self._binder = binder
        self._status = status
        self._events = events
        self._metrics = metrics

    async def reconcile(self, key: Key) -> None:
        """Decide about one SharePod, if there is anything to decide."""
        for _ in range(ROUNDS):
            self._waiting.discard(key)
            raw = self._known.get(key)
            if raw is None:
                return
            try:
                await self._once(raw, sharepods.view(raw))
            except StaleDecisionError:
                self._metrics.decisions.labels("stale").inc()
            except (ConflictError, NotFoundError):
                await self._read_again(raw)
            else:
                return
        raise ConflictError(f"SharePod {key}: others changed the cluster {ROUNDS} times")

    async def _once(self, raw: Raw, sharepod: SharePod) -> None:
        if sharepods.going(sharepod) or sharepods.finished(sharepod):
            return
        try:
            demand = demand_of(raw)
        except InvalidValueError as error:
            await self._refuse(sharepod, error.field, error.message)
            return
        if demand is None:
            return
        if sharepods.decided(sharepod):
            await self._confirm(sharepod)
            return
        await self._pool.settle()
        held = self._pool.held_by(demand.uid)
        if held:
            await self._take_up(raw, sharepod, demand, held)
            return
        where = self._eligibility.of(raw["spec"])
        ledger = self._inventory.ledger()
        decision = decide(self._policy, ledger, demand, where)
        self._metrics.decisions.labels(decision.outcome).inc()
        if decision.node is None:
            pending = decision.outcome == "pending"
            await self._wait(
                sharepod,
                Reason.NO_ROOM if pending else Reason.NEVER_FITS,
                explain(decision),
                partial(change_that_helps, self._policy, ledger, demand, where)
                if pending
                else None,
            )
            return
        await self._pool.take(demand, decision, demand.attempt + 1)
        await self._bind(raw, demand, decision)

    async def _take_up(
        self, raw: Raw, sharepod: SharePod, demand: Demand, held: Sequence[VGPU]
    ) -> None:
        """Go on where an earlier run of this program was cut off, if that is still right."""
        if len(held) == demand.count and all(_still_right(vgpu, demand) for vgpu in held):
            node = held[0].spec.node_name
            ids = tuple(vgpu.metadata.name for vgpu in held)
            await self._bind(
                raw, demand, Decision(outcome="bound", node=node, devices=ids, reasons={})
            )
            return
        # Another leader may have taken them, and may have told the SharePod meanwhile.
        live = await self._read_again(raw)
        undecided = live is not None and not sharepods.decided(sharepods.view(live))
        if undecided and self._pool.held_by(demand.uid):
            message = "its former pod has not been released by the node yet"
            await self._wait(sharepod, Reason.RELEASING, message)
            return
        raise StaleDecisionError(f"{demand.name} asks for something else now")

    async def _bind(self, raw: Raw, demand: Demand, decision: Decision) -> None:
        assert decision.node is not None
        gpuids = sorted(decision.devices)
        try:
            told = await self._binder.bind(raw, decision.node, gpuids, demand.attempt + 1)
        except InvalidError as error:
            for gpuid in gpuids:
                await self._pool.give_back(gpuid, demand.uid)
            await self._refuse(sharepods.view(raw), "the SharePod is refused", error.message)
            return
        sharepod = sharepods.view(told)
        self._events.bound(sharepod, decision.node, gpuids, new=decision.created)
        await self._confirm(sharepod)

    async def _confirm(self, sharepod: SharePod) -> None:
        """Say in the status that there is a decision, whoever made it."""
        place = f"vGPU {', '.join(sharepods.gpuids(sharepod))} on node {sharepod.spec.node_name}"
        if sharepod.spec.gpu.attempt:
            await self._status.scheduled(sharepod, "True", Reason.BOUND, place)
        else:
            await self._status.scheduled(
                sharepod, "True", Reason.GIVEN, f"given by its author: {place}"
            )

    async def _wait(
        self,
        sharepod: SharePod,
        reason: Reason,
        message: str,
        helps: Callable[[], Change | None] | None = None,
    ) -> None:
        self._waiting.add(sharepod)
        if await self._status.scheduled(sharepod, "False", reason, message):
            # To find that out costs many decisions, so it is told once, with what is news.
            self._events.waits(sharepod, reason, message, helps() if helps else None)

    async def _refuse(self, sharepod: SharePod, field: str, message: str) -> None:
        self._metrics.decisions.labels("invalid").inc()
        if await self._status.scheduled(sharepod, "False", Reason.INVALID, f"{field}: {message}"):
            self._events.invalid(sharepod, field, message)

    async def _read_again(self, raw: Raw) -> Raw | None:
        """Read a SharePod that may have changed, and take back what it does not name."""
        live = await self._binder.refresh(raw)
        named = sharepods.gpuids(sharepods.view(live)) if live is not None else ()
        uid = sharepods.view(raw).metadata.uid
        for vgpu in self._pool.held_by(uid):
            if vgpu.metadata.name not in named:
                await self._pool.give_back(vgpu.metadata.name, uid)
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
