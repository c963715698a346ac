"""Sends one request with a deadline; returns its response or clear errors."""

import asyncio
import sys
from collections import Counter
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any
from urllib.parse import urlencode

import httpx2
import msgspec
import structlog
from msgspec import Struct

from kubeshare.kube.client.connection import credentials_error
from kubeshare.kube.client.connection_pool import check_length
from kubeshare.kube.client.errors import ApiError, UnreachableError, error_of_response
from kubeshare.kube.client.http_client import DirectSender, RawResponse
from kubeshare.kube.logs import debugging
from kubeshare.kube.resources import Resource

log = structlog.get_logger(__name__)

_METHODS = {"create": "POST", "delete": "DELETE", "patch": "PATCH"}  # other verbs: GET


class Call(Struct, frozen=True):
    """A verb and the object, collection or subresource that it is for."""

    verb: str
    resource: Resource[Any]
    namespace: str = ""
    name: str = ""
    subresource: str = ""

    def __str__(self) -> str:
        """The request in messages: ``patch pods/status default/a``."""
        where = "/".join(part for part in (self.namespace, self.name) if part)
        return f"{self.verb} {self.target} {where}".rstrip()

    @property
    def target(self) -> str:
        """``plural[/subresource]``, as roles and metrics name it."""
        plural = self.resource.plural
        return f"{plural}/{self.subresource}" if self.subresource else plural

    @property
    def path(self) -> str:
        """The path of the URL."""
        return self.resource.path(self.namespace, self.name, self.subresource)


class Transport:
    """Sends calls over an authenticated HTTP client.

    Args:
        client: has the server's address and the credentials, and no timeouts.
        timeout: of a response in seconds.

    Attributes:
        requests: number of requests by ``(verb, target)``.
    """

    def __init__(self, client: httpx2.AsyncClient, timeout: float) -> None:
        self._client = client
        self._direct = client if isinstance(client, DirectSender) else None
        self._timeout = timeout
        self.requests: Counter[tuple[str, str]] = Counter()

    async def close(self) -> None:
        """Close all connections."""
        await self._client.aclose()

    async def send(
        self,
        call: Call,
        *,
        body: Any = None,
        content_type: str = "application/json",
        query: Mapping[str, str] | None = None,
        limit: int = sys.maxsize,
    ) -> bytes:
        """The body of the response.

        Args:
            call: the request.
            body: encoded as JSON; None for none.
            content_type: of the body; distinguishes the kinds of patches.
            query: parameters of the URL.
            limit: the most bytes of the response's body that are read.

        Raises:
            ResponseTooLargeError: that body is longer.
            ApiError: refused, or no response.
            ConfigError: no credentials could be obtained.
        """
        self.requests[call.verb, call.target] += 1
        content = b"" if body is None else msgspec.json.encode(body)
        began = _now()
        with self._translate_errors(call):
            async with asyncio.timeout(self._timeout):
                answer = await self._send(
                    _METHODS.get(call.verb, "GET"),
                    _target(call.path, query),
                    content,
                    content_type if content else "",
                    limit,
                )
        _log_answer(call, answer.status, began)
        _raise_for_status(call, answer)
        return answer.body

    async def read(self, path: str, query: Mapping[str, str], limit: int) -> RawResponse:
        """The response to a GET of a path that has no objects.

        Args:
            path: for example ``/version``.
            query: parameters of the URL.
            limit: the most bytes of the response's body that are read.

        Raises:
            ResponseTooLargeError: that body is longer.
            ApiError: refused, or no response.
            ConfigError: no credentials could be obtained.
        """
        self.requests["get", path] += 1
        request = f"get {path}"
        with self._translate_errors(request):
            async with asyncio.timeout(self._timeout):
                answer = await self._send("GET", _target(path, query), b"", "", limit)
        _raise_for_status(request, answer)
        return answer

    async def _send(
        self, method: str, target: str, body: bytes, content_type: str, limit: int
    ) -> RawResponse:
        if self._direct is not None:
            return await self._direct.send_direct(method, target, content_type, body, limit=limit)
        headers = {"content-type": content_type} if content_type else None
        response = await self._client.request(
            method, target, content=body if content_type else None, headers=headers
        )
        answer = await _read_response(response)
        check_length(len(answer.body), limit)
        return answer

    @asynccontextmanager
    async def stream(
        self, call: Call, query: Mapping[str, str]
    ) -> AsyncGenerator[httpx2.Response, None]:
        """A response whose body the caller reads, for as long as that takes.

        Errors inside the block are raised as errors of the call.

        Raises:
            ApiError: refused, no response, or interrupted.
            ConfigError: no credentials could be obtained.
        """
        self.requests[call.verb, call.target] += 1
        request = self._client.build_request("GET", _target(call.path, query))
        with self._translate_errors(call):
            began = _now()
            async with asyncio.timeout(self._timeout):
                response = await self._client.send(request, stream=True)
            _log_answer(call, response.status_code, began)
            try:
                if response.status_code >= 400:
                    async with asyncio.timeout(self._timeout):
                        _raise_for_status(call, await _read_response(response))
                yield response
            finally:
                await response.aclose()

    @contextmanager
    def _translate_errors(self, call: Call | str) -> Iterator[None]:
        """Raise an ``ApiError`` for everything that prevents a response."""
        server = self._client.base_url
        try:
            yield
        except ApiError:
            raise
        except httpx2.ConnectError as error:
            raise UnreachableError(
                f"{call}: cannot connect to the API server at {server} ({error}); "
                "is it running, and does the kubeconfig name the right address?",
                sent=False,
            ) from error
        except httpx2.HTTPError as error:
            raise UnreachableError(
                f"{call}: the connection to the API server at {server} broke "
                f"({error or type(error).__name__})",
                sent=True,
            ) from error
        except TimeoutError as error:
            raise UnreachableError(
                f"{call}: no answer from the API server at {server} in time", sent=True
            ) from error
        except Exception as error:
            if translated := credentials_error(error):
                raise translated from error
            raise


def _target(path: str, query: Mapping[str, str] | None) -> str:
    return f"{path}?{urlencode(query)}" if query else path


async def _read_response(response: httpx2.Response) -> RawResponse:
    body = await response.aread()
    headers = {name.lower(): value for name, value in response.headers.raw}
    return RawResponse(response.status_code, headers, body)


def _log_answer(call: Call, status: int, began: float) -> None:
    """Log a response at the severity ``debug``; neither body nor parameters, which may be secret.

    Args:
        call: the request.
        status: that the API server answered.
        began: when the request was sent, on the event loop's clock in seconds.
    """
    if debugging():
        seconds = round(_now() - began, 6)
        log.debug("API server answered", request=str(call), status=status, seconds=seconds)


def _now() -> float:
    return asyncio.get_running_loop().time()


def _raise_for_status(call: Call | str, answer: RawResponse) -> None:
    if answer.status >= 400:
        wait = answer.headers.get(b"retry-after")
        raise error_of_response(
            answer.status, answer.body, str(call), None if wait is None else wait.decode("latin-1")
        )
