"""The fake server: requests in, answers and faults out."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx2

from kubeshare.kube.client.client import Client
from kubeshare.kube.resources import Resource
from kubeshare.simulator.control.faults import Fault, Script
from kubeshare.simulator.control.json_copy import clone
from kubeshare.simulator.control.patches import (
    PatchError,
    apply_leaves,
    json_patch,
    leaves,
    merge_patch,
)
from kubeshare.simulator.control.rbac import Access, Authorizer
from kubeshare.simulator.control.requests import RefusalError, Request
from kubeshare.simulator.control.storage import (
    STATUSLESS,
    ObjectPath,
    Raw,
    Storage,
    Watcher,
    wall_clock,
)

Rule = Callable[[Raw, Raw | None], str | None]
"""Given an object and its state before (None: new), what is wrong with it, or None."""

_VERBS = {"GET": "get", "POST": "create", "DELETE": "delete", "PATCH": "patch"}
_NAMESPACE_SUBRESOURCES = {"status", "finalize"}


class FakeApiServer(httpx2.AsyncBaseTransport):
    """An API server in memory.

    Attributes:
        storage: the objects.
        requests: all requests that arrived, in order.
        writes: how many of them asked for a change.
        down: while True nobody listens.
        dead: clients that were killed: no request of theirs arrives any more.
        rights: client -> what it may; those who are not here may do anything.
        ending: namespaces that are being deleted: nothing new is made in them.
        refused: what clients asked for that they may not, a line each.

    Args:
        seed: of uids.
    """

    def __init__(self, seed: int = 0) -> None:
        self.storage = Storage(seed)
        self.requests: list[Request] = []
        self.writes = 0
        self.down = False
        self.dead: set[str] = set()
        self.rights: dict[str, Authorizer] = {}
        self.ending: set[str] = set()
        self.refused: list[str] = []
        self._scripts: list[Script] = []
        self._at_write: dict[int, Callable[[], Fault]] = {}
        self._rules: dict[str, list[Rule]] = {}
        self._pages: dict[str, list[Raw]] = {}

    # What tests do to it.

    def client(self, name: str = "", *, timeout: float = 15.0) -> Client:
        """A connection to this server, of a client of that name."""
        client = httpx2.AsyncClient(
            transport=self, base_url="http://fake", timeout=None, headers={"user-agent": name}
        )
        return Client(client, timeout=timeout)

    def seed(self, resource: Resource[Any], obj: Raw) -> Raw:
        """Create or overwrite an object with its status, as another actor would."""
        obj = clone({"apiVersion": resource.api_version, "kind": resource.kind} | obj)
        place = self.place(resource, obj["metadata"]["name"], obj["metadata"].get("namespace", ""))
        if place in self.storage.objects:
            return clone(self.storage.update(place, obj))
        return clone(self.storage.create(place, obj))

    def change(
        self,
        resource: Resource[Any],
        name: str,
        namespace: str,
        mutate: Callable[[Raw], object],
    ) -> Raw:
        """Change an object in place, as another actor would."""
        place = self.place(resource, name, namespace)
        obj = clone(self.storage.objects[place])
        mutate(obj)
        return clone(self.storage.update(place, obj))

    def remove(self, resource: Resource[Any], name: str, namespace: str = "") -> None:
        """Remove an object at once, finalizers or not."""
        self.storage.remove(self.place(resource, name, namespace))

    def delete(self, resource: Resource[Any], name: str, namespace: str = "") -> None:
        """Ask for an object's deletion, as another actor would."""
        place = self.place(resource, name, namespace)
        self._remove(place, clone(self.storage.objects[place]), {})

    def stored(self, resource: Resource[Any], name: str, namespace: str = "") -> Raw | None:
        """A copy of an object, or None."""
        return clone(self.storage.objects.get(self.place(resource, name, namespace)))

    def all(self, resource: Resource[Any], namespace: str = "", labels: str = "") -> list[Raw]:
        """Copies of all objects of a kind."""
        return clone(
            list(self.storage.select(resource.group, resource.plural, namespace, labels, fields=""))
        )

    def add_rule(self, resource: Resource[Any], rule: Rule) -> None:
        """Refuse writes with 422 when ``rule`` finds something wrong."""
        self._rules.setdefault(resource.plural, []).append(rule)

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
        """Let the n-th write (from 1) meet a fault; a function is asked which when it is there."""
        self._at_write[number] = (lambda: fault) if isinstance(fault, Fault) else fault

    def end_watches(self, error: Exception | None = None) -> None:
        """End all open watches, in order or by a broken connection."""
        for watcher in self.storage.watchers:
            watcher.queue.put_nowait(error)

    def reset_watches(self) -> None:
        """Break the connections of all open watches."""
        self.end_watches(httpx2.ReadError("connection reset by peer"))

    def freeze_watches(self, *, frozen: bool = True) -> None:
        """Let open watches fall silent, as half-open connections do."""
        self.storage.frozen = frozen

    def mute_watches(self) -> None:
        """Let those that are open now fall silent for ever; nobody is told that they are broken."""
        for watcher in self.storage.watchers:
            watcher.mute = True

    def bookmark(self) -> None:
        """Send a bookmark to all watches."""
        version = {"metadata": {"resourceVersion": str(self.storage.version)}}
        for watcher in self.storage.watchers:
            watcher.queue.put_nowait({"type": "BOOKMARK", "object": version})

    def compact(self) -> None:
        """Forget the history: older resourceVersions and continue tokens are 410."""
        self.storage.compacted = self.storage.version
        self.storage.history.clear()
        self._pages.clear()

    def expire_watches(self) -> None:
        """Forget the history and tell open watches so, in the stream."""
        self.compact()
        for watcher in self.storage.watchers:
            watcher.queue.put_nowait({"type": "ERROR", "object": _expired().status})
            watcher.queue.put_nowait(None)

    @staticmethod
    def place(resource: Resource[Any], name: str, namespace: str = "") -> ObjectPath:
        """Where an object is stored."""
        return ObjectPath(resource.group, resource.plural, namespace, name)

    # What clients do to it.

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Answer one request of the HTTP client."""
        await asyncio.sleep(0)
        asked = _understand(request)
        if self.down or asked.client in self.dead:
            raise httpx2.ConnectError("connection refused")
        self.requests.append(asked)
        self.writes += asked.is_write
        fault = self._fault(asked)
        if fault is None:
            return self._answer(asked)
        return await self._faulty(asked, fault)

    def _fault(self, asked: Request) -> Fault | None:
        if asked.is_write and self.writes in self._at_write:
            return self._at_write.pop(self.writes)()
        for script in self._scripts:
            if script.strikes(asked.verb, asked.resource, asked.place.name):
                return script.fault
        return None

    async def _faulty(self, asked: Request, fault: Fault) -> httpx2.Response:
        if fault.after or fault.kind == "duplicate":
            self._answer(asked)
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
                return httpx2.Response(200, content=b"")
            case "duplicate" | "none":
                return self._answer(asked)
            case "slow":
                await asyncio.sleep(fault.seconds)
                return self._answer(asked)
            case "late":
                asyncio.get_running_loop().call_later(fault.seconds, self._answer, asked)
                await asyncio.Event().wait()
        refusal = RefusalError(fault.status, fault.reason, "a fault of the script")
        headers = {} if fault.retry_after is None else {"retry-after": str(fault.retry_after)}
        return httpx2.Response(fault.status, json=refusal.status, headers=headers)

    def _answer(self, asked: Request) -> httpx2.Response:
        try:
            self._authorise(asked)
            self._admit(asked)
            if asked.verb == "watch":
                return self._watch(asked)
            answer = getattr(self, f"_{asked.verb}")(asked)
        except RefusalError as refusal:
            return httpx2.Response(refusal.code, json=refusal.status)
        return httpx2.Response(201 if asked.verb == "create" else 200, json=answer)

    def _authorise(self, asked: Request) -> None:
        rights, place = self.rights.get(asked.client), asked.place
        if rights is None:
            return
        applied = "apply-patch" in asked.content_type and not asked.subresource
        creates = applied and place not in self.storage.objects
        # As the real one: whoever lists objects of one name asks for that name.
        name = place.name or asked.query.get("fieldSelector", "").partition("metadata.name=")[2]
        for verb in (asked.verb, "create") if creates else (asked.verb,):
            need = Access(verb, place.group, asked.resource, place.namespace, name)
            if not rights.allow(need):
                words = f"{rights.account} may not {need}"
                self.refused.append(words)
                raise RefusalError(403, "Forbidden", words)

    def _admit(self, asked: Request) -> None:
        place = asked.place
        if asked.verb == "create" and not asked.subresource and place.namespace in self.ending:
            words = f"namespace {place.namespace} is being terminated"
            raise RefusalError(403, "Forbidden", words)

    def _find(self, asked: Request) -> Raw:
        obj = self.storage.objects.get(asked.place)
        if obj is None:
            place = asked.place
            raise RefusalError(404, "NotFound", f'{place.plural} "{place.name}" not found')
        return obj

    def _get(self, asked: Request) -> Raw:
        return self._find(asked)

    def _list(self, asked: Request) -> Raw:
        query, place = asked.query, asked.place
        token = query.get("continue", "")
        if token:
            if token not in self._pages:
                raise _expired()
            version, items = token.partition(":")[0], self._pages.pop(token)
        else:
            version = str(self.storage.version)
            items = clone(list(self.storage.select(*_selection(place, query))))
        limit = int(query.get("limit", "0")) or len(items)
        metadata = {"resourceVersion": version}
        if len(items) > limit:
            metadata["continue"] = f"{version}:{self.storage.uid()}"
            self._pages[metadata["continue"]] = items[limit:]
        return {"kind": "List", "apiVersion": "v1", "metadata": metadata, "items": items[:limit]}

    def _watch(self, asked: Request) -> httpx2.Response:
        storage, place = self.storage, asked.place
        watcher = Watcher(*_selection(place, asked.query), asyncio.Queue())
        version = int(asked.query.get("resourceVersion") or "0")
        if version and version < storage.compacted:
            watcher.queue.put_nowait({"type": "ERROR", "object": _expired().status})
            watcher.queue.put_nowait(None)
        else:
            for happening in storage.history:
                if happening.version > version:
                    watcher.show(happening)
        storage.watchers.append(watcher)
        lifetime = float(asked.query.get("timeoutSeconds", "3600"))
        return httpx2.Response(200, stream=_Stream(storage, watcher, lifetime))

    def _create(self, asked: Request) -> Raw:
        if asked.subresource:
            return self._post(asked)
        obj = clone(asked.body)
        metadata = obj.setdefault("metadata", {})
        name = metadata.get("name") or metadata.get("generateName", "") + self.storage.uid()[:5]
        place = asked.place._replace(name=name)
        if place in self.storage.objects:
            raise RefusalError(409, "AlreadyExists", f'{place.plural} "{name}" already exists')
        if place.plural not in STATUSLESS:
            obj.pop("status", None)
        if place.plural == "pods":
            obj["status"] = {"phase": "Pending"}
            # Of its own kinds the API server keeps nothing that is null.
            said = obj.get("spec", {}).items()
            obj["spec"] = {field: value for field, value in said if value is not None}
        metadata.pop("uid", None)
        self._check(place, obj, None)
        return self.storage.create(place, obj)

    def _post(self, asked: Request) -> Raw:
        pod = clone(self._find(asked))
        success = {"kind": "Status", "apiVersion": "v1", "status": "Success"}
        if asked.subresource == "binding":
            if pod.setdefault("spec", {}).get("nodeName"):
                raise RefusalError(409, "Conflict", "pod is already assigned to a node")
            pod["spec"]["nodeName"] = asked.body["target"]["name"]
            self.storage.update(asked.place, pod)
            return success
        if asked.subresource == "eviction":
            options = asked.body.get("deleteOptions") or {}
            _check_preconditions(pod, options)
            if not options.get("dryRun"):
                self._remove(asked.place, pod, options)
            return success
        raise RefusalError(404, "NotFound", f"the server has no {asked.resource}")

    def _delete(self, asked: Request) -> Raw:
        obj = clone(self._find(asked))
        options = asked.body or {}
        _check_preconditions(obj, options)
        return self._remove(asked.place, obj, options)

    def _remove(self, place: ObjectPath, obj: Raw, options: Raw) -> Raw:
        metadata = obj["metadata"]
        grace = options.get("gracePeriodSeconds")
        if grace is None:
            grace = obj.get("spec", {}).get("terminationGracePeriodSeconds", 30)
        ended = obj.get("status", {}).get("phase") in {"Succeeded", "Failed"}
        running = place.plural == "pods" and obj.get("spec", {}).get("nodeName") and not ended
        if not metadata.get("finalizers") and not (running and grace):
            return self.storage.remove(place)
        if not metadata.get("deletionTimestamp"):
            # Of a pod, the time at which its grace ends.
            metadata["deletionTimestamp"] = wall_clock(grace if place.plural == "pods" else 0)
        if place.plural == "pods":
            metadata["deletionGracePeriodSeconds"] = grace
        return self.storage.update(place, obj)

    def _patch(self, asked: Request) -> Raw:
        place, body = asked.place, asked.body
        old = self.storage.objects.get(place)
        if "apply-patch" in asked.content_type:
            return self._apply(asked, old)
        old = self._find(asked)
        if "json-patch" in asked.content_type:
            try:
                new = json_patch(old, body)
            except PatchError as error:
                words = "the server rejected our request due to an error in our request"
                raise RefusalError(422, "Invalid", words) from error
        else:
            wanted = (body.get("metadata") or {}).get("resourceVersion")
            if wanted and wanted != old["metadata"]["resourceVersion"]:
                raise RefusalError(409, "Conflict", "the object has been modified")
            new = merge_patch(old, body)
        return self._store(asked, old, new)

    def _apply(self, asked: Request, old: Raw | None) -> Raw:
        place, manager = asked.place, asked.query["fieldManager"]
        owners = self.storage.owners.setdefault(place, {})
        identity = {("apiVersion",), ("kind",), ("metadata", "name"), ("metadata", "namespace")}
        stated = {path: value for path, value in leaves(asked.body) if path not in identity}
        owner = f"{manager} {asked.subresource}"
        others = {other: fields for other, fields in owners.items() if other != owner}
        for other, fields in others.items():
            taken = [path for path in stated if path in fields and fields[path] != stated[path]]
            if taken and asked.query.get("force") != "true":
                raise RefusalError(409, "Conflict", f"conflict with {other!r}: {taken[0]}")
            for path in taken:
                del fields[path]
        kept = {path for fields in others.values() for path in fields}
        dropped = set(owners.get(owner, {})) - set(stated) - kept
        base = old or {"apiVersion": asked.body["apiVersion"], "kind": asked.body["kind"]}
        if old is None and asked.subresource:
            self._find(asked)
        new = apply_leaves(base | {"metadata": base.get("metadata", {})}, stated, dropped)
        if old is None:
            self._check(place, new, None)
            stored = self.storage.create(place, new)
        else:
            stored = self._store(asked, old, new)
        owners[owner] = stated
        return stored

    def _store(self, asked: Request, old: Raw, new: Raw) -> Raw:
        """Store what a patch made, the part that its subresource may change."""
        if asked.subresource == "status":
            status = {"status": new["status"]} if "status" in new else {}
            new = {name: value for name, value in old.items() if name != "status"} | status
        elif asked.place.plural not in STATUSLESS:
            status = {"status": old["status"]} if "status" in old else {}
            new = {name: value for name, value in new.items() if name != "status"} | status
        new = clone(new)
        self._check(asked.place, new, old)
        return self.storage.update(asked.place, new)

    def _check(self, place: ObjectPath, new: Raw, old: Raw | None) -> None:
        for rule in self._rules.get(place.plural, ()):
            if wrong := rule(new, old):
                words = f'{place.plural} "{place.name}" is invalid: {wrong}'
                causes = [{"reason": "FieldValueInvalid", "message": wrong}]
                raise RefusalError(422, "Invalid", words, causes)


class _Stream(httpx2.AsyncByteStream):
    """The body of a watch's answer."""

    def __init__(self, storage: Storage, watcher: Watcher, lifetime: float) -> None:
        self._storage = storage
        self._watcher = watcher
        self._lifetime = lifetime

    async def __aiter__(self) -> AsyncIterator[bytes]:
        loop = asyncio.get_running_loop()
        end = loop.time() + self._lifetime
        while True:
            try:
                async with asyncio.timeout_at(end):
                    line = await self._watcher.queue.get()
            except TimeoutError:
                return
            if line is None:
                return
            if isinstance(line, Exception):
                raise line
            yield json.dumps(line).encode() + b"\n"

    async def aclose(self) -> None:
        if self._watcher in self._storage.watchers:
            self._storage.watchers.remove(self._watcher)


def _check_preconditions(obj: Raw, options: Raw) -> None:
    for name, wanted in (options.get("preconditions") or {}).items():
        if obj["metadata"].get(name) != wanted:
            raise RefusalError(409, "Conflict", f"precondition failed: {name} differs")


def _expired() -> RefusalError:
    return RefusalError(410, "Expired", "too old resource version")


def _selection(place: ObjectPath, query: dict[str, str]) -> tuple[str, str, str, str, str]:
    labels, fields = query.get("labelSelector", ""), query.get("fieldSelector", "")
    return place.group, place.plural, place.namespace, labels, fields


def _understand(request: httpx2.Request) -> Request:
    parts = request.url.path.strip("/").split("/")
    group, rest = ("", parts[2:]) if parts[0] == "api" else (parts[1], parts[3:])
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2 and rest[2] not in _NAMESPACE_SUBRESOURCES:
        namespace, rest = rest[1], rest[2:]
    plural, name, subresource = (*rest, "", "")[:3]
    query = dict(request.url.params)
    verb = _VERBS[request.method]
    if verb == "get" and not name:
        verb = "watch" if query.get("watch") == "true" else "list"
    return Request(
        verb=verb,
        resource=f"{plural}/{subresource}" if subresource else plural,
        place=ObjectPath(group, plural, namespace, name),
        at=asyncio.get_running_loop().time(),
        query=query,
        body=json.loads(request.content) if request.content else None,
        content_type=request.headers.get("content-type", ""),
        client=request.headers.get("user-agent", ""),
    )
