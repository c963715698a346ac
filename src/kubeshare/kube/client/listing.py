"""Reads lists in pages; other tasks run during a long one."""

import asyncio
import sys
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import Struct

from kubeshare.kube.cache.watch import report_unreadable
from kubeshare.kube.client.answers import parameters, read_answer, with_kind
from kubeshare.kube.client.decoding import decoder_for
from kubeshare.kube.client.errors import ResponseTooLargeError
from kubeshare.kube.client.transport import Call, Transport
from kubeshare.kube.meta import Key
from kubeshare.kube.resources import Resource

T = TypeVar("T")
S = TypeVar("S")

PAGE = 500
"""Objects in a page of a list."""
PAGE_BYTES = 16 << 20
"""Bytes of a page; one of larger objects is read again with fewer of them."""

_BYTES_AT_ONCE = 1 << 20
"""Bytes of a list that are decoded before other tasks run."""
_OBJECT_BYTES = 4096
"""As long as it takes to decode so many bytes, something else is done for each object."""


class Listing(Struct, Generic[T], frozen=True):
    """All objects of a list, and the resourceVersion from which a watch continues.

    ``unreadable`` names objects that cannot be decoded into the resource's shape: one strange
    object must not hide all others.
    """

    items: list[T]
    resource_version: str
    unreadable: tuple[Key, ...] = ()


class _ListMeta(Struct, rename="camel"):
    resource_version: str = ""
    continue_: str = ""


class _Page(Struct):
    metadata: _ListMeta
    items: list[msgspec.Raw]


async def read_pages(
    transport: Transport,
    call: Call,
    make: Callable[[T], S],
    selectors: Mapping[str, str],
    most: int,
) -> Listing[S]:
    """What ``make`` returns for each object of a list.

    Args:
        transport: sends the requests.
        call: the list.
        make: called for each object.
        selectors: parameters of the query.
        most: objects in a page.

    Raises:
        GoneError: the list expired on the way.
        ApiError: any other refusal.
    """
    resource = call.resource
    read = decoder_for(resource.shape).decode
    items: list[S] = []
    unreadable: list[Key] = []
    token, count = "", most
    while True:
        query = parameters(**selectors, limit=str(count), **{"continue": token})
        try:
            # A single object is read whatever its size, which etcd bounds.
            limit = PAGE_BYTES if count > 1 else sys.maxsize
            body = await transport.send(call, query=query, limit=limit)
        except ResponseTooLargeError:
            count = max(count // 8, 1)
            continue
        page = read_answer(body, resource.into(_Page))
        count = min(count * 2, most)
        decoded = 0
        for raw in page.items:
            try:
                items.append(make(with_kind(read(raw), resource)))
            except msgspec.ValidationError as error:
                unreadable.append(report_unreadable(raw, resource, error))
            decoded += memoryview(raw).nbytes + _OBJECT_BYTES
            if decoded > _BYTES_AT_ONCE:
                decoded = 0
                await asyncio.sleep(0)
        token = page.metadata.continue_
        if not token:
            return Listing(items, page.metadata.resource_version, tuple(unreadable))


def read_version(body: bytes, resource: Resource[Any]) -> str:
    """The resourceVersion of a page."""
    return read_answer(body, resource.into(_Page)).metadata.resource_version
