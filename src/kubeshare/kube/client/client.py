# ruff: noqa: PLR0913 - the parameters of API requests
"""A client of the Kubernetes API: one method for each verb.

Reads return what ``Resource.shape`` says: raw dicts, or narrow Structs. Writes take raw objects
or patches, never a partially decoded object. Nothing is retried here: the caller knows whether a
retry makes sense.

Which write to choose:

* ``json_patch`` with a ``test`` of ``/metadata/resourceVersion``, if a stale decision must not be
  recorded;
* ``apply`` for everything that one controller owns and states completely each time;
* ``merge_patch`` for single fields whose last writer may win.
"""

import ssl
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any, Self, TypeVar

import httpx2
import msgspec

from kubeshare.kube.cache.watch import WatchEvent, read_watch
from kubeshare.kube.client.answers import parameters, read_answer, with_kind
from kubeshare.kube.client.connection import connect, connect_as
from kubeshare.kube.client.errors import ConflictError, GoneError, InvalidError
from kubeshare.kube.client.http_client import RawResponse
from kubeshare.kube.client.listing import PAGE, Listing, read_pages, read_version
from kubeshare.kube.client.transport import Call, Transport
from kubeshare.kube.resources import Raw, Resource

T = TypeVar("T")
S = TypeVar("S")

_LIST_RESTARTS = 3
_READ_VERBS = frozenset({"get", "list", "watch"})


class Client:
    """A client of one API server.

    Every request may also raise ``ConfigError`` if its credentials cannot be obtained.

    Args:
        client: sends the requests; ``Client.connect`` creates it from a kubeconfig.
        namespace: the default namespace of the configuration.
        timeout: of each response in seconds; ``asyncio.timeout`` around a call shortens it. A watch
            has none.
    """

    def __init__(
        self, client: httpx2.AsyncClient, *, namespace: str = "default", timeout: float = 15.0
    ) -> None:
        self._transport = Transport(client, timeout)
        self.namespace = namespace

    @classmethod
    def connect(
        cls,
        kubeconfig: str | Path | None = None,
        context: str | None = None,
        *,
        impersonate: str = "",
        timeout: float = 15.0,
    ) -> Self:
        """A client for a kubeconfig, or for the pod's own service account.

        Args:
            kubeconfig: as for :func:`kubeshare.kube.client.connection.connect`, as the next two.
            context: of that file.
            impersonate: the user in whose name the requests are made.
            timeout: of each response in seconds.

        Raises:
            ConfigError: no usable configuration.
        """
        client, namespace = connect(kubeconfig, context, impersonate)
        return cls(client, namespace=namespace, timeout=timeout)

    @classmethod
    def with_token(cls, server: str, context: ssl.SSLContext, token: str) -> Self:
        """A client with a bearer token, and no other credentials.

        Args:
            server: the address of the API server.
            context: checks its certificate, where the address has one.
            token: sent with each request.

        Raises:
            ValueError: the address is none.
        """
        return cls(connect_as(server, context, token))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections."""
        await self._transport.close()

    @property
    def requests(self) -> Counter[tuple[str, str]]:
        """Number of requests by ``(verb, plural[/subresource])``."""
        return self._transport.requests

    @property
    def reads(self) -> int:
        """Number of get, list and watch requests."""
        return sum(count for (verb, _), count in self.requests.items() if verb in _READ_VERBS)

    @property
    def writes(self) -> int:
        """Number of requests that change something."""
        return self.requests.total() - self.reads

    async def read(self, path: str, *, limit: int, **query: str) -> RawResponse:
        """The response to a GET of a path that has no objects, such as ``/version`` or a log.

        Args:
            path: of the URL.
            limit: the most bytes of the response's body that are read.
            query: parameters of the URL.

        Raises:
            ResponseTooLargeError: that body is longer.
            ApiError: refused, or no response.
        """
        return await self._transport.read(path, query, limit)

    async def get(self, resource: Resource[T], name: str, namespace: str = "") -> T:
        """The object of that name.

        Raises:
            NotFoundError: there is none.
            ApiError: any other refusal.
        """
        body = await self._transport.send(Call("get", resource, namespace, name))
        return read_answer(body, resource)

    async def list(
        self,
        resource: Resource[T],
        namespace: str = "",
        *,
        labels: str = "",
        fields: str = "",
        page: int = PAGE,
    ) -> Listing[T]:
        """All objects, read in pages; a list that expires on the way is started again.

        Args:
            resource: their kind.
            namespace: ``""`` for all.
            labels: label selector, for example ``app=a,tier in (x, y)``.
            fields: field selector, for example ``spec.nodeName=n1``.
            page: objects in a page.

        Raises:
            GoneError: the list expired several times.
            ApiError: any other refusal.
        """
        return await self.list_each(
            resource, lambda item: item, namespace, labels=labels, fields=fields, page=page
        )

    async def list_each(
        self,
        resource: Resource[T],
        make: Callable[[T], S],
        namespace: str = "",
        *,
        labels: str = "",
        fields: str = "",
        page: int = PAGE,
    ) -> Listing[S]:
        """What ``make`` returns for each object; never more than a page of objects is in memory.

        Args:
            resource: their kind.
            make: called for each object.
            namespace: ``""`` for all.
            labels: label selector.
            fields: field selector.
            page: objects in a page.

        Raises:
            GoneError: the list expired several times.
            ApiError: any other refusal.
        """
        selectors = parameters(labelSelector=labels, fieldSelector=fields)
        call = Call("list", resource, namespace)
        for _ in range(_LIST_RESTARTS):
            try:
                return await read_pages(self._transport, call, make, selectors, page)
            except GoneError as error:
                expired = error
        raise expired

    async def latest_version(
        self, resource: Resource[Any], namespace: str = "", *, labels: str = "", fields: str = ""
    ) -> str:
        """The resourceVersion of the present state, for a watch of what comes from now on.

        Costs the server one object, however many there are. A selector makes it search: give one
        only where the caller may list nothing else.
        """
        call = Call("list", resource, namespace)
        query = parameters(limit="1", labelSelector=labels, fieldSelector=fields)
        body = await self._transport.send(call, query=query)
        return read_version(body, resource)

    async def watch(
        self,
        resource: Resource[T],
        namespace: str = "",
        *,
        resource_version: str,
        labels: str = "",
        fields: str = "",
        lifetime: float = 300.0,
    ) -> AsyncGenerator[WatchEvent[T]]:
        """Changes since a resourceVersion, until the server ends the stream.

        Close it with ``contextlib.aclosing`` when leaving early. It waits as long as nothing
        comes; a bookmark comes about once a minute.

        Args:
            resource: kind of the objects.
            namespace: ``""`` for all.
            resource_version: of a list, or of the last event of an earlier watch.
            labels: label selector.
            fields: field selector.
            lifetime: seconds after which the server ends the stream.

        Raises:
            GoneError: the resourceVersion is too old (as status or as event): list again.
            UnreachableError: the connection was refused or reset.
            ApiError: any other refusal.
        """
        query = parameters(
            watch="true",
            resourceVersion=resource_version,
            allowWatchBookmarks="true",
            timeoutSeconds=str(int(lifetime)),
            labelSelector=labels,
            fieldSelector=fields,
        )
        call = Call("watch", resource, namespace)
        async with (
            self._transport.stream(call, query) as response,
            aclosing(read_watch(response, resource, str(call))) as events,
        ):
            async for event in events:
                yield event

    async def create(
        self,
        resource: Resource[T],
        body: Mapping[str, Any],
        namespace: str = "",
        *,
        field_manager: str = "",
        strict: bool = False,
    ) -> T:
        """Create an object; returns it as stored.

        Args:
            resource: its kind.
            body: the whole object; ``apiVersion`` and ``kind`` may be missing.
            namespace: by default the one in the metadata of the body.
            field_manager: recorded as the owner of the fields.
            strict: refuse fields that the kind does not have; by default they are dropped.

        Raises:
            AlreadyExistsError: the name is in use.
            InvalidError: the object breaks a rule; ``causes`` names the fields.
            ApiError: any other refusal.
        """
        namespace = namespace or body["metadata"].get("namespace", "")
        answer = await self._transport.send(
            Call("create", resource, namespace),
            body=with_kind(dict(body), resource),
            query=parameters(
                fieldManager=field_manager, fieldValidation="Strict" if strict else ""
            ),
        )
        return read_answer(answer, resource)

    async def delete(
        self,
        resource: Resource[Any],
        name: str,
        namespace: str = "",
        *,
        uid: str = "",
        resource_version: str = "",
        grace: int | None = None,
        propagation: str = "Background",
    ) -> None:
        """Delete an object; finalizers and grace periods may delay it.

        Args:
            resource: its kind.
            name: its name.
            namespace: its namespace.
            uid: delete only the object with this uid.
            resource_version: delete only this state of the object.
            grace: seconds that containers get to end; None for the object's own period.
            propagation: for its dependents: ``Background``, ``Foreground`` or ``Orphan``.

        Raises:
            NotFoundError: there is no such object.
            ConflictError: a precondition does not hold.
            ApiError: any other refusal.
        """
        options: Raw = {"apiVersion": "v1", "kind": "DeleteOptions"}
        options["propagationPolicy"] = propagation
        if grace is not None:
            options["gracePeriodSeconds"] = grace
        if conditions := parameters(uid=uid, resourceVersion=resource_version):
            options["preconditions"] = conditions
        await self._transport.send(Call("delete", resource, namespace, name), body=options)

    async def json_patch(
        self,
        resource: Resource[T],
        name: str,
        operations: Sequence[Mapping[str, Any]],
        namespace: str = "",
        *,
        subresource: str = "",
        field_manager: str = "",
    ) -> T:
        """Change an object by operations (RFC 6902), all or none.

        Raises:
            ConflictError: a ``test`` does not hold.
            InvalidError: the result breaks a rule, or an operation names a missing field.
            NotFoundError: there is no such object.
            ApiError: any other refusal.
        """
        try:
            answer = await self._transport.send(
                Call("patch", resource, namespace, name, subresource),
                body=list(operations),
                content_type="application/json-patch+json",
                query=parameters(fieldManager=field_manager),
            )
        except InvalidError as error:
            # A patch that does not fit gets a Status without details; a broken rule gets one
            # with the object's name and causes.
            if (
                error.status != 422
                or error.details
                or not any(step["op"] == "test" for step in operations)
            ):
                raise
            raise ConflictError(
                f"patch {resource.plural} {name}: the object is not as the patch expects it, "
                "it was changed",
                status=error.status,
                reason=error.reason,
            ) from error
        return read_answer(answer, resource)

    async def merge_patch(
        self,
        resource: Resource[T],
        name: str,
        patch: Mapping[str, Any],
        namespace: str = "",
        *,
        subresource: str = "",
        field_manager: str = "",
    ) -> T:
        """Overwrite single fields (RFC 7386); null removes, lists are replaced whole.

        ``metadata.resourceVersion`` in the patch makes it conditional.

        Raises:
            ConflictError: the resourceVersion in the patch is not the current one.
            ApiError: any other refusal.
        """
        answer = await self._transport.send(
            Call("patch", resource, namespace, name, subresource),
            body=patch,
            content_type="application/merge-patch+json",
            query=parameters(fieldManager=field_manager),
        )
        return read_answer(answer, resource)

    async def apply(
        self,
        resource: Resource[T],
        body: Mapping[str, Any],
        namespace: str = "",
        *,
        field_manager: str,
        force: bool = False,
        subresource: str = "",
    ) -> T:
        """State all fields that one manager owns (server-side apply).

        Fields that the manager stated before and omits now are removed.

        Args:
            resource: its kind.
            body: all owned fields, with ``metadata.name``.
            namespace: by default the one in the metadata of the body.
            field_manager: one stable name for each controller.
            force: take fields over from other managers.
            subresource: for example ``status``.

        Raises:
            ConflictError: another manager owns a field and ``force`` is not set.
            ApiError: any other refusal.
        """
        metadata = body["metadata"]
        namespace = namespace or metadata.get("namespace", "")
        answer = await self._transport.send(
            Call("patch", resource, namespace, metadata["name"], subresource),
            body=with_kind(dict(body), resource),
            content_type="application/apply-patch+yaml",
            query=parameters(fieldManager=field_manager, force="true" if force else ""),
        )
        return read_answer(answer, resource)

    async def post(
        self,
        resource: Resource[Any],
        name: str,
        subresource: str,
        body: Mapping[str, Any],
        namespace: str = "",
    ) -> Raw:
        """Post to a subresource: a pod's ``binding`` or ``eviction``, an account's ``token``.

        Raises:
            TooManyRequestsError: an eviction that a disruption budget refuses now.
            ApiError: any other refusal.
        """
        call = Call("create", resource, namespace, name, subresource)
        answer = await self._transport.send(call, body=body)
        decoded: Raw = msgspec.json.decode(answer)
        return decoded
