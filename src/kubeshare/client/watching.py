"""Watches objects of a kind: their present states, then each change."""

import asyncio
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias, TypeVar

from kubeshare.kube.client.errors import GoneError, TooManyRequestsError, UnreachableError
from kubeshare.kube.controller.backoff import Backoff
from kubeshare.kube.meta import HasMetadata, Key
from kubeshare.kube.resources import Resource

if TYPE_CHECKING:
    from kubeshare.kube.client.client import Client

V = TypeVar("V", bound=HasMetadata)
Event: TypeAlias = tuple[Literal["ADDED", "MODIFIED", "DELETED"], V]
RETRY_SECONDS: Final = 60.0
"""How long an API server may be away before the watch gives up."""


class Selection(NamedTuple):
    """Which objects: of a namespace (``""`` for all), by label and field selectors."""

    namespace: str
    labels: str = ""
    fields: str = ""


async def changes(
    client: "Client", resource: Resource[V], selection: Selection, seen: Iterable[V] = ()
) -> AsyncGenerator[Event[V]]:
    """The present states, then each change, for as long as the caller reads them.

    The first state that is seen of an object counts as ``ADDED``. Objects that the caller has
    ``seen`` come once they have changed. Close the generator with ``contextlib.aclosing``.

    Raises:
        UnreachableError: the API server was away for a minute.
        ApiError: any other refusal.
    """
    known: dict[Key, V] = {each.metadata.key: each for each in seen}
    now = asyncio.get_running_loop().time
    backoff, away_since = Backoff(1.0, 10.0), None
    while True:
        try:
            listed = await client.list(
                resource, selection.namespace, labels=selection.labels, fields=selection.fields
            )
            backoff.reset()
            away_since = None
            for change in _compare(known, listed.items):
                yield change
            async for change in _watch(client, resource, selection, known, listed.resource_version):
                yield change
        except GoneError:
            continue
        except (UnreachableError, TooManyRequestsError):
            away_since = now() if away_since is None else away_since
            if now() - away_since > RETRY_SECONDS:
                raise
            await asyncio.sleep(backoff.next())


async def _watch(
    client: "Client",
    resource: Resource[V],
    selection: Selection,
    known: dict[Key, V],
    version: str,
) -> AsyncGenerator[Event[V]]:
    while True:
        watch = client.watch(
            resource,
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
                    yield "DELETED", event.object
                    continue
                is_new = event.key not in known
                known[event.key] = event.object
                yield "ADDED" if is_new else "MODIFIED", event.object


def _compare(known: dict[Key, V], items: list[V]) -> list[Event[V]]:
    """What a list changes in what is known, which is brought up to date."""
    found = {each.metadata.key: each for each in items}
    made: list[Event[V]] = []
    for key, before in tuple(known.items()):
        after = found.get(key)
        if after is None or after.metadata.uid != before.metadata.uid:
            made.append(("DELETED", known.pop(key)))
    for key, after in found.items():
        if key not in known:
            made.append(("ADDED", after))
        elif known[key].metadata.resource_version != after.metadata.resource_version:
            made.append(("MODIFIED", after))
    known.update(found)
    return made
