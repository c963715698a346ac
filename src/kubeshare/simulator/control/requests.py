"""Requests to the fake API server, and its refusals."""

import asyncio
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

import httpx2
import msgspec

from kubeshare.simulator.control.storage import ObjectPath, Raw

_VERBS = {"GET": "get", "POST": "create", "DELETE": "delete", "PATCH": "patch"}
_NAMESPACE_SUBRESOURCES = {"status", "finalize"}


@dataclass(frozen=True)
class Request:
    """One request as the server understood it; ``resource`` is ``plural[/subresource]``.

    ``at`` is the time of the event loop; ``client`` the name that the client gave itself.
    """

    verb: str
    resource: str
    path: ObjectPath
    at: float
    query: dict[str, str]
    body: Any
    content_type: str
    client: str

    @property
    def subresource(self) -> str:
        """The subresource; ``""`` for the object itself."""
        return self.resource.partition("/")[2]

    @property
    def is_write(self) -> bool:
        """Whether the request changes something."""
        return self.verb in {"create", "delete", "patch"}


@dataclass(frozen=True)
class Answer:
    """A response: its body is JSON, or the stream of a watch."""

    status: int
    body: bytes = b""
    stream: httpx2.AsyncByteStream | None = None
    headers: dict[bytes, bytes] = field(default_factory=dict)

    @classmethod
    def of(cls, status: int, value: Any) -> "Answer":
        """An answer with a JSON value."""
        return cls(status, msgspec.json.encode(value))


class _Target(NamedTuple):
    resource: str
    path: ObjectPath
    query: dict[str, str]


def parse_request(
    method: str, target: str, *, content_type: str, body: bytes, client: str
) -> Request:
    """The request that an HTTP request stands for; ``target`` is its path and query."""
    resource, path, query = _parse_target(target)
    verb = _VERBS[method]
    if verb == "get" and not path.name:
        verb = "watch" if query.get("watch") == "true" else "list"
    return Request(
        verb=verb,
        resource=resource,
        path=path,
        at=asyncio.get_running_loop().time(),
        query=query,
        body=msgspec.json.decode(body) if body else None,
        content_type=content_type,
        client=client,
    )


@lru_cache(1024)
def _parse_target(target: str) -> _Target:
    address = urlsplit(target)
    parts = [unquote(part) for part in address.path.strip("/").split("/")]
    group, rest = ("", parts[2:]) if parts[0] == "api" else (parts[1], parts[3:])
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2 and rest[2] not in _NAMESPACE_SUBRESOURCES:
        namespace, rest = rest[1], rest[2:]
    plural, name, subresource = (*rest, "", "")[:3]
    return _Target(
        resource=f"{plural}/{subresource}" if subresource else plural,
        path=ObjectPath(group, plural, namespace, name),
        query=dict(parse_qsl(address.query, keep_blank_values=True)),
    )


class RefusalError(Exception):
    """A request that the server answers with an error Status."""

    def __init__(
        self, code: int, reason: str, message: str, causes: list[Raw] | None = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.status: Raw = {
            "apiVersion": "v1",
            "kind": "Status",
            "status": "Failure",
            "code": code,
            "reason": reason,
            "message": message,
        }
        if causes:
            self.status["details"] = {"name": "its name", "kind": "its kind", "causes": causes}
