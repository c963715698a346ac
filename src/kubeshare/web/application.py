"""The HTTP application: it answers GET requests, and writes nothing."""

import asyncio
from typing import Any

import msgspec
import structlog
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from kubeshare.api.topology.drawings import svg
from kubeshare.api.topology.node_topology import NodeTopology
from kubeshare.core.errors import InvalidValueError, UnknownPolicyError
from kubeshare.core.policies import Policy
from kubeshare.explain.errors import NotAllowedError
from kubeshare.explain.finding import NothingToExplainError
from kubeshare.kube.client.client import Client
from kubeshare.kube.client.errors import ApiError, ForbiddenError, NotFoundError
from kubeshare.web.access import Guard
from kubeshare.web.decisions import BusyError, Decisions, UnknownObjectError
from kubeshare.web.feed import Feed, TooManyClientsError
from kubeshare.web.files import StaticFiles
from kubeshare.web.lookups import Lookups
from kubeshare.web.sources import Sources
from kubeshare.web.stream import Stream
from kubeshare.web.tables import Tables
from kubeshare.web.views.nodes import Use, gpu_page
from kubeshare.web.what_if import read_form

log = structlog.get_logger(__name__)

_STATUS: dict[type[Exception], int] = {
    BusyError: 503,
    ForbiddenError: 403,
    InvalidValueError: 400,
    NotAllowedError: 403,
    NotFoundError: 404,
    NothingToExplainError: 404,
    TimeoutError: 504,
    TooManyClientsError: 503,
    UnknownObjectError: 404,
    UnknownPolicyError: 501,
    ApiError: 502,
}


class Pages:
    """The endpoints below ``/api/``.

    Args:
        client: has the rights of who looks.
        sources: what they may see.
        tables: its rows.
        feed: publishes changes.
        policy: decides; None for the scheduler's.
        cluster: the name of the cluster, for people.
        viewer: the user whose token is used; "" for whoever started the program.
        turn: limits the decisions that are computed at once.
    """

    def __init__(  # noqa: PLR0913 - what the endpoints need
        self,
        client: Client,
        sources: Sources,
        policy: Policy | None,
        *,
        tables: Tables,
        feed: Feed,
        cluster: str = "",
        viewer: str = "",
        turn: asyncio.Semaphore | None = None,
    ) -> None:
        self._sources = sources
        self._tables = tables
        self._feed = feed
        self._cluster = cluster
        self._viewer = viewer
        self._decisions = Decisions(client, sources, policy, turn=turn)
        self._lookups = Lookups(client, sources)

    async def tables(self, _: Request) -> Response:
        """All rows, with the revision from which on the stream changes them."""
        known = {
            "revision": self._tables.revision,
            "cluster": self._cluster,
            "viewer": self._viewer,
            "namespaces": self._sources.namespaces,
            "refused": self._sources.refused(),
            "stale": self._sources.stale(),
            "tables": msgspec.Raw(self._tables.encoded()),
        }
        return _json(known)

    async def stream(self, _: Request) -> Any:
        """The changes from now on, as server-sent events."""
        return Stream(self._feed, lambda: msgspec.json.encode({"stale": self._sources.stale()}))

    async def node(self, request: Request) -> Response:
        """A node with its GPUs and their shares."""
        name = request.path_params["name"]
        row = self._tables.row("nodes", name)
        if row is None:
            raise HTTPException(404, f"no GPUs are known of a node {name}")
        gpus = self._tables.gpus(name)
        pods: dict[str, set[str]] = {}
        for each in (one for gpu in gpus if gpu.vgpu for one in gpu.vgpu.status.holders):
            pods.setdefault(each.namespace, set()).add(each.name)
        used: dict[tuple[str, str], Use] = {}
        for namespace in filter(self._sources.names, sorted(pods)):
            used |= await self._lookups.used(namespace, pods[namespace])
        pages = [gpu_page(gpu, self._sources.names, used) for gpu in gpus]
        gpunode = self._sources.gpunodes.get(name)
        driver = gpunode.spec.driver_version if gpunode else ""
        drawn = gpunode is not None and bool(gpunode.spec.devices)
        mode = gpunode.status.mode if gpunode else ""
        fields = {"driver": driver, "mode": mode, "drawn": drawn}
        return _json({"row": row, "gpus": pages, **fields})

    async def topology(self, request: Request) -> Response:
        """The access-cost tree of a node, as `kubeshare topo -o svg` draws it."""
        name = request.path_params["name"]
        gpunode = self._sources.gpunodes.get(name)
        if gpunode is None or not gpunode.spec.devices:
            raise HTTPException(404, f"nothing is known of the GPUs of node {name}")
        return Response(svg(NodeTopology(name, gpunode.spec)), media_type="image/svg+xml")

    async def pod(self, request: Request) -> Response:
        """A SharePod or pod, with its use and its events."""
        kind, namespace, name = (request.path_params[key] for key in ("kind", "namespace", "name"))
        row = self._tables.row("pods", f"{kind}/{namespace}/{name}")
        if row is None:
            words = f"no {kind} {namespace}/{name} asks for a share, or you may not see it"
            raise HTTPException(404, words)
        used = await self._lookups.used(namespace, [name])
        return _json({"row": row, "used": used.get((namespace, name))})

    async def events(self, request: Request) -> Response:
        """The latest events, of the cluster or of one object."""
        asked = request.query_params
        namespace, name = asked.get("namespace", ""), asked.get("name", "")
        if not self._sources.names(namespace) and (namespace or name):
            raise HTTPException(403, f"you may not see namespace {namespace}")
        return _json({"events": await self._lookups.events(namespace if name else "", name)})

    async def explain(self, request: Request) -> Response:
        """What the scheduler would answer for an object now."""
        asked = request.path_params
        if not self._sources.names(asked["namespace"]):
            raise HTTPException(403, f"you may not see namespace {asked['namespace']}")
        found = await self._decisions.explain(asked["kind"], asked["namespace"], asked["name"])
        return _json(found)

    async def what_if(self, request: Request) -> Response:
        """What the scheduler would answer for a SharePod that does not exist."""
        sharepod = read_form(request.query_params)
        return _json(await self._decisions.try_out(sharepod))


def application(pages: Pages, token: str) -> Guard:
    """The application; who knows the token may ask."""
    # Outside of all else, so that also an internal error has its headers.
    return Guard(routed(*file_routes(), *api_routes(pages)), token=token)


def file_routes() -> list[Route]:
    """The page and its files."""
    files = StaticFiles()
    return [Route("/", files.page), Route("/static/{path:path}", files.file)]


def api_routes(pages: Pages) -> list[Route]:
    """What the page asks for."""
    return [
        Route("/api/tables", pages.tables),
        Route("/api/stream", pages.stream),
        Route("/api/events", pages.events),
        Route("/api/nodes/{name}", pages.node),
        Route("/api/nodes/{name}/topology.svg", pages.topology),
        Route("/api/pods/{kind}/{namespace}/{name}", pages.pod),
        Route("/api/explain/{kind}/{namespace}/{name}", pages.explain),
        Route("/api/what-if", pages.what_if),
    ]


def routed(*routes: Route) -> Starlette:
    """An application that answers errors in words."""
    handlers: dict[Any, Any] = dict.fromkeys(_STATUS, _refuse)
    handlers |= {HTTPException: _not_found, Exception: _failed}
    return Starlette(routes=routes, exception_handlers=handlers)


def _json(fields: object, status: int = 200) -> Response:
    body = msgspec.json.encode(fields)
    headers = {"cache-control": "no-store"}
    return Response(body, status, headers, media_type="application/json")


async def _refuse(_: Request, error: Exception) -> Response:
    """An error that says what to do, as JSON."""
    status = next(_STATUS[kind] for kind in type(error).__mro__ if kind in _STATUS)
    words = str(error) or "the API server takes too long: try again in a moment"
    fields = {"error": words}
    if isinstance(error, InvalidValueError):
        fields |= {"error": error.message, "field": error.field}
    return _json(fields, status)


async def _failed(request: Request, error: Exception) -> Response:
    """An error of this program: one line for people, and in the log."""
    words = f"internal error: {type(error).__name__}: {error}"
    log.error("a request failed", path=request.url.path, error=words)
    return _json({"error": words}, 500)


async def _not_found(_: Request, error: HTTPException) -> Response:
    return _json({"error": error.detail}, error.status_code)
