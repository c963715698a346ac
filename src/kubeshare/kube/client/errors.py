"""Errors of the API server, one class for each course of action.

The API server answers errors with a ``Status`` object. Each class here stands for one reaction:
look elsewhere, take what is there, read again, list again, give up, wait. ``UnreachableError`` is
the one after which the caller does not know whether a write happened.
"""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct


class ConfigError(Exception):
    """No cluster is configured, or its configuration cannot be used."""


class ApiError(Exception):
    """The API server refused a request, or failed at it.

    Args:
        message: what went wrong, for people.
        status: HTTP status, 0 when there was no answer.
        reason: the API server's one-word reason, for example ``NotFound``.
        details: the ``details`` of the Status object.
        retry_after: seconds that the server asks to wait, or None.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int = 0,
        reason: str = "",
        details: Mapping[str, Any] | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.reason = reason
        self.details: Mapping[str, Any] = details or {}
        self.retry_after = retry_after

    @property
    def causes(self) -> list[dict[str, Any]]:
        """The faults of a refused object: dicts with ``field``, ``reason`` and ``message``."""
        return list(self.details.get("causes") or ())


class UnauthorizedError(ApiError):
    """401: the API server does not accept the credentials."""


class ForbiddenError(ApiError):
    """403: a role is missing, or an admission policy refuses."""


class NotFoundError(ApiError):
    """404: no such object, or no such kind."""


class AlreadyExistsError(ApiError):
    """409 on create: the name is taken."""


class ConflictError(ApiError):
    """409: the object has changed since it was read: read it and decide again.

    Also 422 if a JSON patch with a ``test`` does not fit the present object.
    """


class GoneError(ApiError):
    """410: the resourceVersion or continue token is too old: list again."""


class InvalidError(ApiError):
    """422 (or 400): the object breaks a rule; the same request will never succeed."""


class TooManyRequestsError(ApiError):
    """429: wait ``retry_after`` seconds. For an eviction: a disruption budget refuses."""


class ResponseTooLargeError(ApiError):
    """The answer is larger than the caller reads; the rest was not read."""


class UnreachableError(ApiError):
    """No answer came. A write may have happened, unless ``sent`` is False."""

    def __init__(self, message: str, *, sent: bool) -> None:
        super().__init__(message, reason="Unreachable")
        self.sent = sent


class Status(Struct, frozen=True, rename="camel"):
    """The API server's answer if there is no object to return."""

    message: str = ""
    reason: str = ""
    code: int = 0
    details: dict[str, Any] | None = None


_BY_STATUS: Mapping[int, type[ApiError]] = {
    400: InvalidError,
    401: UnauthorizedError,
    403: ForbiddenError,
    404: NotFoundError,
    409: ConflictError,
    410: GoneError,
    422: InvalidError,
    429: TooManyRequestsError,
}


def error_of_response(
    status: int, body: bytes, request: str, retry_after: str | None = None
) -> ApiError:
    """The error of an HTTP response with status 400 or above.

    Args:
        status: HTTP status.
        body: a Status object as JSON; any other body is quoted in the message.
        request: named in the message, for example ``get pods default/a``.
        retry_after: the header of that name.
    """
    try:
        answer = msgspec.json.decode(body, type=Status)
    except msgspec.DecodeError:
        answer = Status(message=body[:200].decode(errors="replace").strip())
    return error_of_status(answer, request, status=status, retry_after=retry_after)


def error_of_status(
    answer: Status, request: str, *, status: int = 0, retry_after: str | None = None
) -> ApiError:
    """The error of a Status object; ``status`` replaces a missing code."""
    code = answer.code or status
    details = answer.details or {}
    kind = _BY_STATUS.get(code, ApiError)
    if answer.reason == "AlreadyExists":
        kind = AlreadyExistsError
    elif answer.reason == "Expired":
        kind = GoneError
    message = f"{request}: {_message(answer, code)}"
    return kind(
        message,
        status=code,
        reason=answer.reason,
        details=details,
        retry_after=_seconds(retry_after, details),
    )


def _message(answer: Status, code: int) -> str:
    causes = (answer.details or {}).get("causes") or ()
    message = answer.message or f"the API server answered with status {code}"
    extra = [cause.get("message", "") for cause in causes]
    return "; ".join([message, *(text for text in extra if text and text not in message)])


def _seconds(header: str | None, details: Mapping[str, Any]) -> float | None:
    if header is not None and header.strip().isdigit():
        return float(header)
    seconds = details.get("retryAfterSeconds")
    return float(seconds) if seconds else None
