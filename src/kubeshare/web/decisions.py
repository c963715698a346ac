"""Computes decisions of the scheduler on the state that is watched.

The same functions answer as in ``kubeshare explain``. They may take a second on a large cluster,
so they run in a thread, one at a time.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from itertools import islice
from typing import Any, Final

from kubeshare.api.quotas.gpu_quotas import rows_of_all
from kubeshare.api.quotas.policy import Quotas
from kubeshare.api.quotas.resource_quotas import rows
from kubeshare.api.types.v1 import SHAREPODS
from kubeshare.core.policies import Policy
from kubeshare.explain.cluster_reader import Lists, Seen, seen_of
from kubeshare.explain.errors import NotAllowedError
from kubeshare.explain.finding import Finding, finding_of, members_of
from kubeshare.explain.formats import finding_fields
from kubeshare.explain.gang import Member
from kubeshare.explain.scheduler_policy import SchedulerPolicy, scheduler_policy
from kubeshare.kube.client.client import Client
from kubeshare.kube.clock import utc_now
from kubeshare.kube.resources import PODS, Raw, Resource
from kubeshare.web.sources import Source, Sources

MOST_WAITING: Final = 8
"""Questions that wait for an answer; further ones are refused."""
MOST_REASONS: Final = 200
"""Reasons in an answer."""

_KINDS: Final[Mapping[str, Resource[Raw]]] = {"SharePod": SHAREPODS, "Pod": PODS}


class BusyError(Exception):
    """Too many questions wait for an answer."""


class UnknownObjectError(ValueError):
    """There is no object of that kind and name."""


class Decisions:
    """Answers where a SharePod or pod would go.

    Args:
        client: has the user's rights.
        sources: the cluster.
        policy: decides; None for the scheduler's, as it is when a question is asked.
        turn: limits the decisions that are computed at once; one by default.
        now: the present, aware.
    """

    def __init__(
        self,
        client: Client,
        sources: Sources,
        policy: Policy | None,
        *,
        turn: asyncio.Semaphore | None = None,
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        self._client = client
        self._sources = sources
        self._policy = policy
        self._now = now
        self._turn = turn or asyncio.Semaphore(1)
        self._waiting = 0

    async def explain(self, kind: str, namespace: str, name: str) -> dict[str, Any]:
        """Where an object is or would go, why not elsewhere, and what would help.

        Raises:
            NotAllowedError: the user may not see what this depends on.
            BusyError: too many questions are waiting.
            UnknownObjectError: there is no such kind.
            NothingToExplainError: it asks for no share of a GPU.
            UnknownPolicyError: the scheduler's policy is not installed here.
            ApiError: the object cannot be read.
        """
        resource = _KINDS.get(kind)
        if resource is None:
            raise UnknownObjectError(f"{kind} is not a kind to explain: SharePod or Pod is")
        self._check_rights()
        raw = await self._client.get(resource, name, namespace)
        return await self._ask(resource, raw)

    async def try_out(self, sharepod: Raw) -> dict[str, Any]:
        """The same for a SharePod that does not exist; nothing is written.

        Raises:
            NotAllowedError: the user may not see what this depends on.
            BusyError: too many questions are waiting.
            NothingToExplainError: it asks for no share of a GPU.
            UnknownPolicyError: the scheduler's policy is not installed here.
        """
        self._check_rights()
        return await self._ask(SHAREPODS, sharepod)

    def _check_rights(self) -> None:
        if missing := self._sources.missing_for_decisions():
            raise NotAllowedError(missing)

    async def _ask(self, resource: Resource[Raw], raw: Raw) -> dict[str, Any]:
        if self._waiting >= MOST_WAITING:
            raise BusyError("many questions are being answered: try again in a moment")
        self._waiting += 1
        try:
            async with self._turn:
                chosen = await scheduler_policy(self._client, self._policy)
                build = self._build(raw["metadata"]["namespace"], chosen)
                seen = await asyncio.to_thread(build)
                members = await members_of(self._client, seen, raw)
                return await asyncio.to_thread(_answer, seen, resource, raw, members)
        finally:
            self._waiting -= 1

    def _build(self, namespace: str, chosen: SchedulerPolicy) -> Callable[[], Seen]:
        """What builds the ledger in a thread, from copies that no watch changes."""
        sources = self._sources
        of_namespace = rows(_of(sources.resourcequotas, namespace))
        by_model = rows_of_all(_of(sources.gpuquotas, namespace))
        configuration = sources.configuration()
        vgpus, gpunodes = sources.vgpus.snapshot(), sources.gpunodes.snapshot()
        nodes, pods = sources.nodes.snapshot(), sources.pods.snapshot()

        def build() -> Seen:
            return seen_of(
                Lists(vgpus=vgpus(), gpunodes=gpunodes(), nodes=nodes(), pods=pods()),
                chosen,
                Quotas(lambda _: of_namespace, lambda _: by_model),
                configuration,
                self._now(),
            )

        return build


def _of(source: Source[Any], namespace: str) -> list[Any]:
    return [each for each in source.all() if each.metadata.namespace == namespace]


def _answer(
    seen: Seen, resource: Resource[Raw], raw: Raw, members: Sequence[Member]
) -> dict[str, Any]:
    return shortened(finding_of(seen, resource, raw, members))


def shortened(finding: Finding) -> dict[str, Any]:
    """A finding as the fields of a JSON object, with as many reasons as a page shows.

    ``moreReasons`` is the number of those left out.
    """
    fields = finding_fields(finding)
    reasons = fields["reasons"]
    fields["reasons"] = dict(islice(reasons.items(), MOST_REASONS))
    fields["moreReasons"] = max(0, len(reasons) - MOST_REASONS)
    if finding.change is not None:
        fields["help"] = str(finding.change)
    return fields
