"""A fake Kubernetes API server behind an HTTP transport."""

import asyncio
import sys
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import httpx2
import msgspec

from kubeshare.kube.client.client import Client
from kubeshare.kube.client.connection_pool import check_length
from kubeshare.kube.client.http_client import DirectSender, RawResponse
from kubeshare.kube.resources import EVENTS, Resource
from kubeshare.simulator.control.discovery import Discovery
from kubeshare.simulator.control.faults import Fault, Script
from kubeshare.simulator.control.handler import RequestHandler, Rule, expired
from kubeshare.simulator.control.json_copy import clone
from kubeshare.simulator.control.rbac import Access, Authorizer
from kubeshare.simulator.control.requests import Answer, RefusalError, Request, parse_request
from kubeshare.simulator.control.schemas import schema_of
from kubeshare.simulator.control.storage import ObjectPath, Raw, Snapshot, Storage, event_line


class _Connection(httpx2.AsyncClient, DirectSender):
    """A client's connection: as with a real server, only watches go through httpx2."""

    def __init__(self, server: "FakeApiServer", name: str) -> None:
        super().__init__(
            transport=server, base_url="http://fake", timeout=None, headers={"user-agent": name}
        )
        self._server = server
        self._name = name

    def build_request(self, method: str, url: Any, **_: Any) -> httpx2.Request:
        """A request for a watch; merging URLs and headers takes longer than to answer it."""
        return httpx2.Request(method, _url(f"http://fake{url}"), headers=self.headers)

    async def send(self, request: httpx2.Request, **_: Any) -> httpx2.Response:
        """Open a watch; in memory there are no credentials, redirects or cookies."""
        return await self._server.handle_async_request(request)

    async def send_direct(
        self,
        method: str,
        target: str,
        content_type: str = "",
        body: bytes = b"",
        *,
        limit: int = sys.maxsize,
    ) -> RawResponse:
        """Send a request to the server."""
        answer = await self._server.receive(
            method, target, content_type=content_type, body=body, client=self._name
        )
        check_length(len(answer.body), limit)
        return RawResponse(answer.status, answer.headers, answer.body)


@lru_cache(1024)
def _url(text: str) -> httpx2.URL:
    return httpx2.URL(text)


class FakeApiServer(httpx2.AsyncBaseTransport):
    """An API server in memory.

    Attributes:
        requests: all requests that arrived, in order.
        writes: how many of them change something.
        down: while True, every connection is refused.
        dead: clients that were killed: no request of theirs arrives any more.
        authorizers: client -> what it may do; clients without one may do everything.
        terminating: namespaces that are being deleted: nothing can be created in them.
        refused: one line for each request that an authorizer refused.
        after_answer: called with each request that was answered, and the status of the answer.
        discovery: what it answers about itself.

    Args:
        seed: of uids and generated names.
        seconds: how long each request takes, all of it before it takes effect.
    """

    def __init__(self, seed: int = 0, *, seconds: float = 0.0) -> None:
        self._handler = RequestHandler(Storage(seed))
        self._seconds = seconds
        self.after_answer: list[Callable[[Request, int], None]] = []
        self.requests: list[Request] = []
        self.writes = 0
        self.down = False
        self.dead: set[str] = set()
        self.authorizers: dict[str, Authorizer] = {}
        self.terminating: set[str] = set()
        self.refused: list[str] = []
        self.discovery = Discovery()
        self._scripts: list[Script] = []
        self._at_write: dict[int, Callable[[], Fault]] = {}

    @property
    def storage(self) -> Storage:
        """The objects; two servers may share them."""
        return self._handler.storage

    @storage.setter
    def storage(self, storage: Storage) -> None:
        self._handler.storage = storage

    # Operations of the user, which no fault affects.

    def client(self, name: str = "", *, timeout: float = 15.0) -> Client:
        """A client of this server; ``name`` is its user agent."""
        return Client(_Connection(self, name), timeout=timeout)

    def seed(self, resource: Resource[Any], obj: Raw) -> Raw:
        """Create or overwrite an object with its status, as another actor would."""
        obj = clone({"apiVersion": resource.api_version, "kind": resource.kind} | obj)
        path = self.path(resource, obj["metadata"]["name"], obj["metadata"].get("namespace", ""))
        if path in self.storage.objects:
            return clone(self.storage.update(path, obj))
        return clone(self.storage.create(path, obj))

    def change(
        self,
        resource: Resource[Any],
        name: str,
        namespace: str,
        mutate: Callable[[Raw], object],
    ) -> Raw:
        """Change an object in place, as another actor would."""
        path = self.path(resource, name, namespace)
        obj = clone(self.storage.objects[path])
        mutate(obj)
        return clone(self.storage.update(path, obj))

    def remove(self, resource: Resource[Any], name: str, namespace: str = "") -> None:
        """Remove an object at once, with or without finalizers."""
        self.storage.remove(self.path(resource, name, namespace))

    def delete(self, resource: Resource[Any], name: str, namespace: str = "") -> None:
        """Delete an object as another actor would: finalizers and grace periods delay it."""
        self._handler.delete(self.path(resource, name, namespace), {})

    def stored(self, resource: Resource[Any], name: str, namespace: str = "") -> Raw | None:
        """A copy of an object, or None."""
        return clone(self.storage.objects.get(self.path(resource, name, namespace)))

    def all(self, resource: Resource[Any], namespace: str = "", labels: str = "") -> list[Raw]:
        """Copies of all objects of a kind."""
        return clone(self.view(resource, namespace, labels))

    def view(self, resource: Resource[Any], namespace: str = "", labels: str = "") -> list[Raw]:
        """All objects of a kind as they are stored: whoever reads them must not change them."""
        return self.storage.select(resource.group, resource.plural, namespace, labels, fields="")

    def find(self, resource: Resource[Any], name: str, namespace: str = "") -> Raw | None:
        """An object as it is stored, or None: whoever reads it must not change it."""
        return self.storage.objects.get(self.path(resource, name, namespace))

    def add_rule(self, resource: Resource[Any], rule: Rule) -> None:
        """Refuse writes with 422 if ``rule`` finds something wrong."""
        self._handler.add_rule(resource, rule)

    def add_crd(self, crd: Mapping[str, Any]) -> None:
        """Prune and default objects by the schema of a CustomResourceDefinition."""
        spec = crd["spec"]
        self._handler.add_schema(spec["group"], spec["names"]["plural"], schema_of(crd))

    def inject(  # noqa: PLR0913 - what a request is selected by
        self,
        fault: Fault,
        *,
        verb: str | None = None,
        resource: str | None = None,
        name: str | None = None,
        skip: int = 0,
        times: int = 1,
    ) -> None:
        """Let matching requests (``resource``: ``plural[/subresource]``) meet a fault."""
        self._scripts.append(Script(fault, verb, resource, name, skip, times))

    def inject_at_write(self, number: int, fault: Fault | Callable[[], Fault]) -> None:
        """Let the n-th write (from 1) meet a fault; a function is called when the write arrives."""
        self._at_write[number] = (lambda: fault) if isinstance(fault, Fault) else fault

    def end_watches(self, error: Exception | None = None) -> None:
        """End all open watches, regularly or with a broken connection."""
        for watcher in self.storage.watchers:
            watcher.queue.put_nowait(error)

    def reset_watches(self) -> None:
        """Break the connections of all open watches."""
        self.end_watches(httpx2.ReadError("connection reset by peer"))

    def freeze_watches(self, *, frozen: bool = True) -> None:
        """Let all watches fall silent, as half-open connections do."""
        self.storage.frozen = frozen

    def mute_watches(self) -> None:
        """Let the watches that are open now fall silent for ever, without an error."""
        for watcher in self.storage.watchers:
            watcher.mute = True

    def bookmark(self) -> None:
        """Send a bookmark to all watches but those of events, which have none."""
        version = {"metadata": {"resourceVersion": str(self.storage.version)}}
        for watcher in self.storage.watchers:
            if watcher.plural != EVENTS.plural:
                watcher.queue.put_nowait(event_line("BOOKMARK", version))

    def restore(self, snapshot: Snapshot) -> None:
        """Go back to a former state (``storage.snapshot()``) with all API servers restarted."""
        self.storage.restore(snapshot)
        self.reset_watches()

    def compact(self) -> None:
        """Forget the history: older resourceVersions and continue tokens are 410."""
        self._handler.compact()

    def expire_watches(self) -> None:
        """Forget the history and send an ERROR event with 410 to open watches."""
        self.compact()
        for watcher in self.storage.watchers:
            watcher.queue.put_nowait(event_line("ERROR", expired().status))
            watcher.queue.put_nowait(None)

    @staticmethod
    def path(resource: Resource[Any], name: str, namespace: str = "") -> ObjectPath:
        """Where an object is stored."""
        return ObjectPath(resource.group, resource.plural, namespace, name)

    # Requests of clients.

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Answer one request of an HTTP client."""
        answer = await self.receive(
            request.method,
            request.url.raw_path.decode(),
            content_type=request.headers.get("content-type", ""),
            body=request.content,
            client=request.headers.get("user-agent", ""),
        )
        stream = answer.stream or httpx2.ByteStream(answer.body)
        return httpx2.Response(answer.status, headers=[*answer.headers.items()], stream=stream)

    async def receive(self, method: str, target: str, **request: Any) -> Answer:
        """Answer one request; its parameters are those of ``parse_request``."""
        await asyncio.sleep(self._seconds)
        if self.down:
            raise httpx2.ConnectError("connection refused")
        if (about := self.discovery.answer(target)) is not None:
            return about
        parsed = parse_request(method, target, **request)
        if parsed.client in self.dead:
            raise httpx2.ConnectError("connection refused")
        self.requests.append(parsed)
        self.writes += parsed.is_write
        fault = self._fault(parsed)
        if fault is None:
            return self._answer(parsed)
        return await self._answer_with_fault(parsed, fault)

    def _fault(self, request: Request) -> Fault | None:
        if request.is_write and self.writes in self._at_write:
            return self._at_write.pop(self.writes)()
        for script in self._scripts:
            if script.strikes(request.verb, request.resource, request.path.name):
                return script.fault
        return None

    async def _answer_with_fault(self, request: Request, fault: Fault) -> Answer:
        answer = self._answer(request) if fault.after or fault.kind == "duplicate" else None
        if fault.action is not None:
            fault.action()
        match fault.kind:
            case "refuse":
                raise httpx2.ConnectError("connection refused")
            case "reset":
                raise httpx2.ReadError("connection reset by peer")
            case "hang":
                await asyncio.Event().wait()
            case "end":
                return Answer(200, stream=httpx2.ByteStream(b""))
            case "duplicate" | "none":
                return self._answer(request)
            case "slow":
                await asyncio.sleep(fault.seconds)
                return answer or self._answer(request)
            case "late":
                asyncio.get_running_loop().call_later(fault.seconds, self._answer, request)
                await asyncio.Event().wait()
        refusal = RefusalError(fault.status, fault.reason, "a fault of the script")
        wait = fault.retry_after
        headers = {} if wait is None else {b"retry-after": b"%d" % wait}
        return Answer(fault.status, msgspec.json.encode(refusal.status), headers=headers)

    def _answer(self, request: Request) -> Answer:
        try:
            self._authorize(request)
            self._admit(request)
            answer = self._handler.handle(request)
        except RefusalError as refusal:
            answer = Answer.of(refusal.code, refusal.status)
        for hook in self.after_answer:
            hook(request, answer.status)
        return answer

    def _authorize(self, request: Request) -> None:
        authorizer, path = self.authorizers.get(request.client), request.path
        if authorizer is None:
            return
        applied = "apply-patch" in request.content_type and not request.subresource
        creates = applied and path not in self.storage.objects
        # As in Kubernetes, a list by `metadata.name` needs the right for that name only.
        name = path.name or request.query.get("fieldSelector", "").partition("metadata.name=")[2]
        for verb in (request.verb, "create") if creates else (request.verb,):
            access = Access(verb, path.group, request.resource, path.namespace, name)
            if not authorizer.allow(access):
                message = f"{authorizer.account} may not {access}"
                self.refused.append(message)
                raise RefusalError(403, "Forbidden", message)

    def _admit(self, request: Request) -> None:
        namespace = request.path.namespace
        creates = request.verb == "create" and not request.subresource
        if creates and namespace in self.terminating:
            raise RefusalError(403, "Forbidden", f"namespace {namespace} is being terminated")
