"""What becomes of an answer that refuses a request."""

from typing import Any

import msgspec
import pytest

from kubeshare.kube.client.errors import (
    AlreadyExistsError,
    ApiError,
    ConflictError,
    ForbiddenError,
    GoneError,
    InvalidError,
    NotFoundError,
    TooManyRequestsError,
    UnauthorizedError,
    error_of_response,
)

REQUEST = "get pods default/a"


def error(status: int, retry_after: str | None = None, **answer: Any) -> ApiError:
    return error_of_response(status, msgspec.json.encode(answer), REQUEST, retry_after)


@pytest.mark.parametrize(
    ("status", "reason", "kind"),
    [
        (400, "BadRequest", InvalidError),
        (401, "Unauthorized", UnauthorizedError),
        (403, "Forbidden", ForbiddenError),
        (404, "NotFound", NotFoundError),
        (409, "Conflict", ConflictError),
        (409, "AlreadyExists", AlreadyExistsError),
        (410, "Gone", GoneError),
        (500, "Expired", GoneError),
        (422, "Invalid", InvalidError),
        (429, "TooManyRequests", TooManyRequestsError),
        (500, "InternalError", ApiError),
        (418, "Teapot", ApiError),
    ],
)
def test_the_status_and_the_reason_decide_its_kind(
    status: int, reason: str, kind: type[ApiError]
) -> None:
    found = error(status, reason=reason, message="because", details={"name": "a"})
    assert type(found) is kind
    assert (found.status, found.reason, found.details) == (status, reason, {"name": "a"})
    assert str(found) == found.message == f"{REQUEST}: because"


def test_the_code_of_the_answer_comes_before_that_of_http() -> None:
    found = error(500, code=404)
    assert (type(found), found.status) == (NotFoundError, 404)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"{}", "the API server answered with status 502"),
        (b" <html>bad \xff gateway ", "<html>bad \ufffd gateway"),
        (b"x" * 300, "x" * 200),
        (b"", "the API server answered with status 502"),
    ],
)
def test_an_answer_that_is_no_status_is_quoted(body: bytes, words: str) -> None:
    found = error_of_response(502, body, REQUEST)
    assert str(found) == f"{REQUEST}: {words}"
    assert (found.status, found.reason, found.details) == (502, "", {})
    assert found.retry_after is None


def test_causes_are_told_unless_the_message_has_them() -> None:
    causes = [{"message": "too long"}, {"field": "spec"}, {"message": "because"}, {"message": ""}]
    found = error(422, message="it is invalid, because", details={"causes": causes})
    assert str(found) == f"{REQUEST}: it is invalid, because; too long"


@pytest.mark.parametrize(
    ("header", "details", "seconds"),
    [
        ("3", {}, 3.0),
        (None, {"retryAfterSeconds": 5}, 5.0),
        ("3", {"retryAfterSeconds": 5}, 3.0),
        (None, {}, None),
        ("soon", {}, None),
    ],
)
def test_how_long_to_wait_is_that_of_the_header_or_of_the_details(
    header: str | None, details: dict[str, Any], seconds: float | None
) -> None:
    assert error(429, header, details=details).retry_after == seconds


def test_an_error_without_an_answer_has_no_status() -> None:
    found = ApiError("no answer")
    assert (found.status, found.reason, found.details, found.retry_after) == (0, "", {}, None)
