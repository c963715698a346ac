"""Watches SharePods: their present states, then each change."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TYPE_CHECKING, Final, NamedTuple

from kubeshare.api.types.v1 import SHAREPODS
from kubeshare.api.types.v1 import SharePod as View
from kubeshare.client.sharepod import Change, SharePodState
from kubeshare.kube.client.errors import GoneError, TooManyRequestsError, UnreachableError
from kubeshare.kube.controller.backoff import Backoff
from kubeshare.kube.meta import Key

if TYPE_CHECKING:
    from kubeshare.kube.client.client import Client

VIEWS: Final = SHAREPODS.into(View)
RETRY_SECONDS: Final = 60.0
"""How long an API server may be away before the watch gives up."""


class Selection(NamedTuple):
    """Which SharePods: of a namespace (``""`` for all), by label and field selectors."""

    namespace: str
    labels: str = ""
    fields: str = ""


async def changes(client: "Client", selection: Selection) -> AsyncGenerator[Change]:
    """The present states, then each change, for as long as the caller reads them.

    Close it with ``contextlib.aclosing``.

    Raises:
        UnreachableError: the API server was away for a minute.
        ApiError: any other refusal.
    """
    known: dict[Key, View] = {}
    now = asyncio.get_running_loop().time
    backoff, away_since = Backoff(1.0, 10.0), None
    while True:
        try:
            listed = await client.list(
                VIEWS, selection.namespace, labels=selection.labels, fields=selection.fields
            )
            backoff.reset()
            away_since = None
            for change in _compare(known, listed.items):
                yield change
            async for change in _watch(client, selection, known, listed.resource_version):
                yield change
        except GoneError:
            continue
        except (UnreachableError, TooManyRequestsError):
            away_since = now() if away_since is None else away_since
            if now() - away_since > RETRY_SECONDS:
                raise
            await asyncio.sleep(backoff.next())


async def _watch(
    client: "Client", selection: Selection, known: dict[Key, View], version: str
) -> AsyncGenerator[Change]:
    while True:
        watch = client.watch(
            VIEWS,
            selection.namespace,
            resource_version=version,
            labels=selection.labels,
            fields=selection.fields,
        )
        async with aclosing(watch) as events:
            async for event in events:
                version = event.identity.resource_version
                if event.object is None:
                    continue
                if event.type == "DELETED":
                    known.pop(event.key, None)
                    yield _change("DELETED", event.object)
                    continue
                is_new = event.key not in known
                known[event.key] = event.object
                yield _change("ADDED" if is_new else "MODIFIED", event.object)


def _compare(known: dict[Key, View], items: list[View]) -> list[Change]:
    """What a list changes in what is known, which is brought up to date."""
    found = {each.metadata.key: each for each in items}
    made: list[Change] = []
    for key, before in tuple(known.items()):
        after = found.get(key)
        if after is None or after.metadata.uid != before.metadata.uid:
            made.append(_change("DELETED", known.pop(key)))
    for key, after in found.items():
        if key not in known:
            made.append(_change("ADDED", after))
        elif known[key].metadata.resource_version != after.metadata.resource_version:
            made.append(_change("MODIFIED", after))
    known.update(found)
    return made


def _change(kind: str, view: View) -> Change:
    return Change(type=kind, sharepod=SharePodState.of(view))  # type: ignore[arg-type]
