"""The calls that the extender answers, by path and method.

Statuses and texts are those of gpushare's extender, and of gpu-admission: a filter that fails is
200 with an error, a bind that fails is 500, whose body kube-scheduler drops. So an event of the pod
says why.
"""

from collections.abc import Awaitable, Callable, Iterable
from http import HTTPStatus
from typing import Final, TypeAlias
from urllib.parse import unquote

import structlog

from kubeshare import __version__
from kubeshare.core.errors import InvalidValueError, PolicyFailedError
from kubeshare.extender.binding import Binder
from kubeshare.extender.http.access import TokenFile
from kubeshare.extender.http.messages import JSON, Head, Response
from kubeshare.extender.inspection import Inspection
from kubeshare.extender.metrics import Metrics
from kubeshare.extender.placement import Placement
from kubeshare.extender.predicates import Predicates
from kubeshare.extender.reservation import BindError, UnknownPodError
from kubeshare.extender.wire import arguments, results
from kubeshare.extender.wire.arguments import BindArguments
from kubeshare.extender.wire.reading import MessageError
from kubeshare.kube.client.errors import ApiError
from kubeshare.kube.controller.events import WARNING, EventRecorder, ObjectReference
from kubeshare.kube.logs import debugging
from kubeshare.kube.resources import PODS

PREFIX: Final = "/gpushare-scheduler"
PREDICATES: Final = "/scheduler/predicates"
"""The filter of Tencent's gpu-admission."""
VERSION: Final = "/version"
INSPECT: Final = f"{PREFIX}/inspect"

Answer: TypeAlias = Callable[[bytes], Awaitable[Response]]

log = structlog.get_logger(__name__)


class ExtenderService:
    """Answers kube-scheduler.

    Args:
        placement: decides.
        binder: binds pods.
        inspection: describes nodes.
        predicates: decides at the filter of gpu-admission.
        recorder: emits events of pods that cannot be bound.
        metrics: counts requests.
        not_ready: why the stores are not filled yet; empty once they are.
        token: which clients must send; None for any client.
    """

    def __init__(  # noqa: PLR0913 - its collaborators
        self,
        placement: Placement,
        binder: Binder,
        inspection: Inspection,
        predicates: Predicates,
        *,
        recorder: EventRecorder,
        metrics: Metrics,
        not_ready: Callable[[], Iterable[str]],
        token: TokenFile | None = None,
    ) -> None:
        self._placement = placement
        self._binder = binder
        self._inspection = inspection
        self._predicates = predicates
        self._recorder = recorder
        self._metrics = metrics
        self._not_ready = not_ready
        self._token = token
        self._posts: dict[str, Answer] = {
            f"{PREFIX}/filter": self._filter,
            f"{PREFIX}/prioritize": self._prioritize,
            f"{PREFIX}/bind": self._bind,
            f"{PREFIX}/preempt": self._preempt,
            PREDICATES: self._filter_and_reserve,
        }

    def refuse(self, head: Head) -> Response | None:
        """The answer to a request whose body is of no interest; None to read it."""
        if head.path == VERSION:
            return _only(head, "GET")
        if self._token is not None and not self._token.accepts(head.header(b"authorization")):
            headers = [("www-authenticate", 'Bearer realm="kubeshare"')]
            words = b"a token is missing or wrong\n"
            return Response(HTTPStatus.UNAUTHORIZED, words, headers=headers)
        if head.path in self._posts:
            refused = _only(head, "POST")
        elif self._verb(head.path) == "inspect":
            refused = _only(head, "GET")
        else:
            return Response.text(HTTPStatus.NOT_FOUND, f"404 page not found: {head.path}")
        if refused is not None:
            return refused
        problems = "; ".join(self._not_ready())
        return Response.text(HTTPStatus.SERVICE_UNAVAILABLE, problems) if problems else None

    async def answer(self, head: Head, body: bytes) -> Response:
        """The answer to a request that is not refused."""
        if head.path == VERSION:
            return Response(HTTPStatus.OK, __version__.encode())
        post = self._posts.get(head.path)
        return self._inspect(head.path) if post is None else await post(body)

    def observe(self, head: Head, response: Response, seconds: float) -> None:
        """Count a request."""
        self._metrics.seconds.labels(self._verb(head.path), response.status).observe(seconds)
        if debugging():
            words = {"method": head.method, "path": head.path, "status": int(response.status)}
            log.debug("answered", **words, seconds=round(seconds, 6))

    def _verb(self, path: str) -> str:
        """What a path asks for, one of a few words."""
        if path in self._posts:
            return path.rpartition("/")[2]
        if path == INSPECT or path.startswith(f"{INSPECT}/"):
            return "inspect"
        return "version" if path == VERSION else "other"

    async def _filter(self, body: bytes) -> Response:
        try:
            found = arguments.read_filter(body)
            demand = self._placement.demand(found.pod)
            names = found.candidates.names
            failed = self._placement.refusals(found.pod, demand, names) if demand else {}
        except (MessageError, InvalidValueError, PolicyFailedError) as error:
            return _json(results.filter_error(str(error)))
        return _json(results.filter_result(found.candidates, failed))

    async def _filter_and_reserve(self, body: bytes) -> Response:
        try:
            found = arguments.read_filter(body)
            names, pod = found.candidates.names, found.metadata
            asks = self._predicates.asks(found.pod)
            failed = (
                await self._predicates.refusals(pod.key, pod.uid, frozenset(names)) if asks else {}
            )
        except (MessageError, InvalidValueError, BindError) as error:
            return _json(results.filter_error(str(error)))
        except ApiError as error:
            return _json(results.filter_error(error.message))
        return _json(results.filter_result(found.candidates, failed))

    async def _prioritize(self, body: bytes) -> Response:
        try:
            found = arguments.read_filter(body)
            demand = self._placement.demand(found.pod)
        except (MessageError, InvalidValueError) as error:
            return Response.text(HTTPStatus.BAD_REQUEST, str(error))
        names = found.candidates.names
        try:
            ranking = self._placement.ranking(demand, names) if demand else []
        except PolicyFailedError as error:
            return Response.text(HTTPStatus.INTERNAL_SERVER_ERROR, str(error))
        return _json(results.priority_list(names, ranking))

    async def _bind(self, body: bytes) -> Response:
        try:
            wanted = arguments.read_bind(body)
        except MessageError as error:
            self._metrics.binds.labels("refused").inc()
            return _failed_bind(str(error))
        try:
            await self._binder.bind(wanted)
        except UnknownPodError as error:
            # No event, or anybody who can call could fill the API server with them.
            self._metrics.binds.labels("refused").inc()
            return _failed_bind(str(error))
        except BindError as error:
            outcome, message = "refused", str(error)
        except ApiError as error:
            outcome, message = "failed", error.message
        else:
            self._metrics.binds.labels("bound").inc()
            return _json(results.binding_result())
        self._metrics.binds.labels(outcome).inc()
        self._recorder.emit(_reference(wanted), "BindFailed", "Binding", message, type=WARNING)
        return _failed_bind(message)

    async def _preempt(self, body: bytes) -> Response:
        try:
            found = arguments.read_preempt(body)
            demand = self._placement.demand(found.pod)
        except (MessageError, InvalidValueError) as error:
            return Response.text(HTTPStatus.BAD_REQUEST, str(error))
        try:
            victims = self._placement.helped(demand, found.victims) if demand else found.victims
        except PolicyFailedError as error:
            return Response.text(HTTPStatus.INTERNAL_SERVER_ERROR, str(error))
        return _json(results.preemption_result(victims))

    def _inspect(self, path: str) -> Response:
        name = unquote(path.removeprefix(INSPECT).removeprefix("/"))
        if not name:
            if path != INSPECT:
                moved = [("location", INSPECT)]
                return Response(HTTPStatus.MOVED_PERMANENTLY, b"", headers=moved)
            return _json(self._inspection.all())
        described = self._inspection.of(name)
        if described is None:
            return Response(HTTPStatus.NOT_FOUND, self._inspection.unknown(name), JSON)
        return _json(described)


def _json(body: bytes) -> Response:
    return Response(HTTPStatus.OK, body, JSON)


def _failed_bind(message: str) -> Response:
    return Response(HTTPStatus.INTERNAL_SERVER_ERROR, results.binding_result(message), JSON)


def _only(head: Head, method: str) -> Response | None:
    if head.method == method:
        return None
    words = f"Method Not Allowed: only {method}\n"
    headers = [("allow", method)]
    return Response(HTTPStatus.METHOD_NOT_ALLOWED, words.encode(), headers=headers)


def _reference(wanted: BindArguments) -> ObjectReference:
    return ObjectReference(
        api_version=PODS.api_version,
        kind=PODS.kind,
        name=wanted.pod_name,
        namespace=wanted.pod_namespace,
        uid=wanted.pod_uid,
    )
