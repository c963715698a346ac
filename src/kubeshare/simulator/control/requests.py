"""Requests to the fake API server, and its refusals."""

import asyncio
import json
from dataclasses import dataclass
from typing import Any

import httpx2

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


def parse_request(request: httpx2.Request) -> Request:
    """The request that an HTTP request stands for."""
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
        path=ObjectPath(group, plural, namespace, name),
        at=asyncio.get_running_loop().time(),
        query=query,
        body=json.loads(request.content) if request.content else None,
        content_type=request.headers.get("content-type", ""),
        client=request.headers.get("user-agent", ""),
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
