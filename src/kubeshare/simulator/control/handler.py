"""What each verb of the API does to the stored objects."""

import asyncio
from collections.abc import Callable
from typing import Any

from kubeshare.kube.resources import Resource
from kubeshare.simulator.control.json_copy import clone
from kubeshare.simulator.control.patches import (
    PatchError,
    apply_leaves,
    json_patch,
    leaves,
    merge_patch,
)
from kubeshare.simulator.control.requests import Answer, RefusalError, Request
from kubeshare.simulator.control.schemas import prune_and_default
from kubeshare.simulator.control.storage import (
    STATUSLESS,
    ObjectPath,
    Raw,
    Storage,
    Watcher,
    event_line,
    wall_clock,
)
from kubeshare.simulator.control.watch_stream import WatchStream

Rule = Callable[[Raw, Raw | None], str | None]
"""Given an object and its old state (None: new), returns what is wrong with it, or None."""

_SUCCESS = {"kind": "Status", "apiVersion": "v1", "status": "Success"}
_IDENTIFYING = ("uid", "resourceVersion")
_IDENTITY = {
    *(("apiVersion",), ("kind",)),
    *(("metadata", name) for name in ("name", "namespace", "resourceVersion")),
}


class RequestHandler:
    """Executes requests that may be executed.

    Args:
        storage: the objects.
    """

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self._rules: dict[str, list[Rule]] = {}
        self._schemas: dict[tuple[str, str], Raw] = {}
        self._pages: dict[str, list[Raw]] = {}

    def add_rule(self, resource: Resource[Any], rule: Rule) -> None:
        """Refuse writes with 422 if ``rule`` finds something wrong."""
        self._rules.setdefault(resource.plural, []).append(rule)

    def add_schema(self, group: str, plural: str, schema: Raw) -> None:
        """Prune and default the objects of a kind by an OpenAPI schema."""
        self._schemas[group, plural] = schema

    def compact(self) -> None:
        """Forget the history: older resourceVersions and continue tokens are 410."""
        self.storage.compact()
        self._pages.clear()

    def handle(self, request: Request) -> Answer:
        """Execute a request.

        Raises:
            RefusalError: the request is refused.
        """
        match request.verb:
            case "watch":
                return self._watch(request)
            case "create":
                return Answer.of(201, self._create(request))
            case "get":
                answer = self._find(request)
            case "list":
                answer = self._list(request)
            case "delete":
                answer = self._delete(request)
            case _:
                answer = self._patch(request)
        return Answer.of(200, answer)

    def delete(self, path: ObjectPath, options: Raw) -> Raw:
        """Delete an object, or mark it if it has finalizers or is a running pod."""
        obj = clone(self.storage.objects[path])
        metadata = obj["metadata"]
        grace = options.get("gracePeriodSeconds")
        if grace is None:
            grace = obj.get("spec", {}).get("terminationGracePeriodSeconds", 30)
        ended = obj.get("status", {}).get("phase") in {"Succeeded", "Failed"}
        running = path.plural == "pods" and obj.get("spec", {}).get("nodeName") and not ended
        if not metadata.get("finalizers") and not (running and grace):
            return self.storage.remove(path)
        if not metadata.get("deletionTimestamp"):
            # For a pod this is the end of its grace period.
            metadata["deletionTimestamp"] = wall_clock(grace if path.plural == "pods" else 0)
        if path.plural == "pods":
            metadata["deletionGracePeriodSeconds"] = grace
        return self.storage.update(path, obj)

    def _find(self, request: Request) -> Raw:
        obj = self.storage.objects.get(request.path)
        if obj is None:
            path = request.path
            raise RefusalError(404, "NotFound", f'{path.plural} "{path.name}" not found')
        return obj

    def _list(self, request: Request) -> Raw:
        query = request.query
        token = query.get("continue", "")
        if token:
            if token not in self._pages:
                raise expired()
            version, items = token.partition(":")[0], self._pages[token]
        else:
            version = str(self.storage.version)
            items = self.storage.select(*_selection(request))
        limit = int(query.get("limit", "0")) or len(items)
        metadata = {"resourceVersion": version}
        if len(items) > limit:
            metadata["continue"] = f"{version}:{self.storage.uid()}"
            self._pages[metadata["continue"]] = items[limit:]
        kind = f"{items[0]['kind']}List" if items else "List"
        return {"kind": kind, "apiVersion": "v1", "metadata": metadata, "items": items[:limit]}

    def _watch(self, request: Request) -> Answer:
        version = int(request.query.get("resourceVersion") or "0")
        watcher = Watcher(*_selection(request), asyncio.Queue(), version)
        if version and version < self.storage.compacted:
            watcher.queue.put_nowait(event_line("ERROR", expired().status))
            watcher.queue.put_nowait(None)
        else:
            for entry in self.storage.history:
                watcher.notify(entry)
        self.storage.watchers.append(watcher)
        lifetime = float(request.query.get("timeoutSeconds", "3600"))
        return Answer(200, stream=WatchStream(self.storage, watcher, lifetime))

    def _create(self, request: Request) -> Raw:
        if request.subresource:
            return self._post(request)
        obj = clone(request.body)
        metadata = obj.setdefault("metadata", {})
        name = metadata.get("name") or metadata.get("generateName", "") + self.storage.uid()[:5]
        path = request.path._replace(name=name)
        if path in self.storage.objects:
            raise RefusalError(409, "AlreadyExists", f'{path.plural} "{name}" already exists')
        if path.plural not in STATUSLESS:
            obj.pop("status", None)
        if path.plural == "pods":
            obj["status"] = {"phase": "Pending"}
            # The API server drops null fields of built-in kinds.
            fields = obj.get("spec", {}).items()
            obj["spec"] = {field: value for field, value in fields if value is not None}
        metadata.pop("uid", None)
        obj = self._structured(path, obj)
        self._check(path, obj, None)
        return self.storage.create(path, obj)

    def _post(self, request: Request) -> Raw:
        pod = clone(self._find(request))
        if request.subresource == "binding":
            return self._bind(request, pod)
        if request.subresource == "eviction":
            options = request.body.get("deleteOptions") or {}
            _check_preconditions(pod, options)
            if not options.get("dryRun"):
                self.delete(request.path, options)
            return _SUCCESS
        raise RefusalError(404, "NotFound", f"the server has no {request.resource}")

    def _bind(self, request: Request, pod: Raw) -> Raw:
        """Bind a pod; the binding's annotations and labels become the pod's, in one write."""
        binding, metadata = request.body, pod["metadata"]
        written = binding.get("metadata") or {}
        _check_preconditions(
            pod, {"preconditions": {key: written[key] for key in _IDENTIFYING if key in written}}
        )
        spec = pod.setdefault("spec", {})
        name = metadata["name"]
        if metadata.get("deletionTimestamp"):
            words = f"pod {name} is being deleted, cannot be assigned to a host"
            raise RefusalError(409, "Conflict", words)
        if spec.get("nodeName"):
            words = f'pod {name} is already assigned to node "{spec["nodeName"]}"'
            raise RefusalError(409, "Conflict", words)
        if spec.get("schedulingGates"):
            words = f"pod {name} has non-empty .spec.schedulingGates"
            raise RefusalError(409, "Conflict", words)
        spec["nodeName"] = binding["target"]["name"]
        for field in ("annotations", "labels"):
            if written.get(field):
                metadata[field] = {**(metadata.get(field) or {}), **written[field]}
        self.storage.update(request.path, pod)
        return _SUCCESS

    def _delete(self, request: Request) -> Raw:
        options = request.body or {}
        _check_preconditions(self._find(request), options)
        return self.delete(request.path, options)

    def _patch(self, request: Request) -> Raw:
        body = request.body
        if "apply-patch" in request.content_type:
            return self._apply(request, self.storage.objects.get(request.path))
        old = self._find(request)
        if "json-patch" in request.content_type:
            try:
                new = json_patch(old, body)
            except PatchError as error:
                message = "the server rejected our request due to an error in our request"
                raise RefusalError(422, "Invalid", message) from error
        else:
            _check_version(body, old)
            new = merge_patch(old, body)
        return self._store(request, old, new)

    def _apply(self, request: Request, old: Raw | None) -> Raw:
        path, manager = request.path, request.query["fieldManager"]
        owners = self.storage.owners.setdefault(path, {})
        stated = {path: value for path, value in leaves(request.body) if path not in _IDENTITY}
        owner = f"{manager} {request.subresource}"
        others = {other: fields for other, fields in owners.items() if other != owner}
        for other, fields in others.items():
            taken = [path for path in stated if path in fields and fields[path] != stated[path]]
            if taken and request.query.get("force") != "true":
                raise RefusalError(409, "Conflict", f"conflict with {other!r}: {taken[0]}")
            for field in taken:
                del fields[field]
        kept = {field for fields in others.values() for field in fields}
        dropped = set(owners.get(owner, {})) - set(stated) - kept
        base = old or {"apiVersion": request.body["apiVersion"], "kind": request.body["kind"]}
        if old is None and request.subresource:
            self._find(request)
        _check_version(request.body, old)
        new = apply_leaves(base | {"metadata": base.get("metadata", {})}, stated, dropped)
        if old is None:
            new = self._structured(path, new)
            self._check(path, new, None)
            stored = self.storage.create(path, new)
        else:
            stored = self._store(request, old, new)
        owners[owner] = stated
        return stored

    def _store(self, request: Request, old: Raw, new: Raw) -> Raw:
        """Store the result of a patch: only the part that its subresource may change."""
        if request.subresource == "status":
            # That of a pod may change labels and annotations, too.
            parts = ("status", "metadata") if request.path.plural == "pods" else ("status",)
            kept = {name: value for name, value in old.items() if name not in parts}
            new = kept | {name: new[name] for name in parts if name in new}
        elif request.path.plural not in STATUSLESS:
            status = {"status": old["status"]} if "status" in old else {}
            new = {name: value for name, value in new.items() if name != "status"} | status
        new = self._structured(request.path, clone(new))
        self._check(request.path, new, old)
        return self.storage.update(request.path, new)

    def _structured(self, path: ObjectPath, obj: Raw) -> Raw:
        schema = self._schemas.get((path.group, path.plural))
        return obj if schema is None else prune_and_default(schema, obj)

    def _check(self, path: ObjectPath, new: Raw, old: Raw | None) -> None:
        for rule in self._rules.get(path.plural, ()):
            if fault := rule(new, old):
                message = f'{path.plural} "{path.name}" is invalid: {fault}'
                causes = [{"reason": "FieldValueInvalid", "message": fault}]
                raise RefusalError(422, "Invalid", message, causes)


def expired() -> RefusalError:
    """The refusal of a resourceVersion or continue token that is too old."""
    return RefusalError(410, "Expired", "too old resource version")


def _check_version(body: Raw, old: Raw | None) -> None:
    """A version in the body of a patch is that of the object to change."""
    version = (body.get("metadata") or {}).get("resourceVersion")
    if version and (old is None or version != old["metadata"]["resourceVersion"]):
        raise RefusalError(409, "Conflict", "the object has been modified")


def _check_preconditions(obj: Raw, options: Raw) -> None:
    for name, value in (options.get("preconditions") or {}).items():
        if obj["metadata"].get(name) != value:
            raise RefusalError(409, "Conflict", f"precondition failed: {name} differs")


def _selection(request: Request) -> tuple[str, str, str, str, str]:
    path, query = request.path, request.query
    labels, fields = query.get("labelSelector", ""), query.get("fieldSelector", "")
    return path.group, path.plural, path.namespace, labels, fields
