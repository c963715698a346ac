"""What each verb of the client sends, by default and with all its options."""

from collections.abc import Awaitable, Callable
from contextlib import aclosing, suppress
from typing import Any

import httpx2
import pytest

from kubeshare.kube.client.client import Client
from kubeshare.kube.client.connection_pool import check_length
from kubeshare.kube.client.errors import (
    ApiError,
    ConflictError,
    InvalidError,
    ResponseTooLargeError,
)
from kubeshare.kube.meta import annotation_path
from kubeshare.kube.resources import NODES, PODS
from kubeshare.simulator.control import FakeApiServer, Fault, run_virtual

Call = Callable[[Client], Awaitable[object]]

JSON, MERGE, APPLY = (
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/apply-patch+yaml",
)
ADD = [{"op": "add", "path": "/metadata/labels", "value": {"a": "b"}}]
LABELS = {"metadata": {"labels": {"a": "b"}}}
STATED = {"metadata": {"name": "p", "namespace": "ns"}}
NEW = {"metadata": {"name": "new", "namespace": "ns"}, "spec": {}}
DELETE = {"apiVersion": "v1", "kind": "DeleteOptions"}


async def watch(client: Client, **more: Any) -> None:
    async with aclosing(client.watch(PODS, resource_version="1", **more)) as events:
        async for _ in events:
            return


async def drained(client: Client, **more: Any) -> None:
    """Watch until the server ends the stream."""
    async with aclosing(client.watch(PODS, resource_version="9", lifetime=2.5, **more)) as events:
        async for _ in events:
            pass


@pytest.mark.parametrize(
    ("call", "resource", "query", "content_type", "body"),
    [
        (lambda c: c.get(PODS, "p", "ns"), "pods", {}, "", None),
        (lambda c: c.create(PODS, NEW), "pods", {}, "application/json", None),
        (
            lambda c: c.create(PODS, NEW, field_manager="m", strict=True),
            *("pods", {"fieldManager": "m", "fieldValidation": "Strict"}, "application/json", None),
        ),
        (
            lambda c: c.json_patch(PODS, "p", ADD, "ns"),
            *("pods", {}, JSON, ADD),
        ),
        (
            lambda c: c.json_patch(PODS, "p", ADD, "ns", subresource="status", field_manager="m"),
            *("pods/status", {"fieldManager": "m"}, JSON, ADD),
        ),
        (
            lambda c: c.merge_patch(PODS, "p", LABELS, "ns"),
            *("pods", {}, MERGE, LABELS),
        ),
        (
            lambda c: c.merge_patch(
                PODS, "p", LABELS, "ns", subresource="status", field_manager="m"
            ),
            *("pods/status", {"fieldManager": "m"}, MERGE, LABELS),
        ),
        (
            lambda c: c.apply(PODS, STATED, field_manager="m"),
            *("pods", {"fieldManager": "m"}, APPLY),
            STATED | {"apiVersion": "v1", "kind": "Pod"},
        ),
        (
            lambda c: c.apply(
                PODS,
                {"metadata": {"name": "p"}},
                "ns",
                field_manager="m",
                force=True,
                subresource="status",
            ),
            *("pods/status", {"fieldManager": "m", "force": "true"}, APPLY),
            {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}},
        ),
        (
            lambda c: c.delete(PODS, "p", "ns"),
            *("pods", {}, "application/json", DELETE | {"propagationPolicy": "Background"}),
        ),
        (
            lambda c: c.delete(PODS, "p", "ns", grace=0, propagation="Orphan"),
            *("pods", {}, "application/json"),
            DELETE | {"propagationPolicy": "Orphan", "gracePeriodSeconds": 0},
        ),
        (
            lambda c: c.delete(PODS, "p", "ns", uid="u", resource_version="1", grace=3),
            *("pods", {}, "application/json"),
            DELETE
            | {
                "propagationPolicy": "Background",
                "gracePeriodSeconds": 3,
                "preconditions": {"uid": "u", "resourceVersion": "1"},
            },
        ),
        (lambda c: c.list(PODS), "pods", {"limit": "500"}, "", None),
        (
            lambda c: c.list(PODS, "ns", labels="a=b", fields="spec.nodeName=n", page=7),
            "pods",
            {"labelSelector": "a=b", "fieldSelector": "spec.nodeName=n", "limit": "7"},
            "",
            None,
        ),
        (lambda c: c.list_each(PODS, str), "pods", {"limit": "500"}, "", None),
        (
            drained,
            "pods",
            {
                "watch": "true",
                "resourceVersion": "9",
                "allowWatchBookmarks": "true",
                "timeoutSeconds": "2",
            },
            "",
            None,
        ),
        (lambda c: c.latest_version(PODS), "pods", {"limit": "1"}, "", None),
        (
            lambda c: c.latest_version(PODS, "ns", labels="a=b", fields="spec.nodeName=n"),
            "pods",
            {"labelSelector": "a=b", "fieldSelector": "spec.nodeName=n", "limit": "1"},
            "",
            None,
        ),
        (
            lambda c: drained(c, namespace="ns", labels="a=b", fields="spec.nodeName=n"),
            "pods",
            {
                "watch": "true",
                "resourceVersion": "9",
                "allowWatchBookmarks": "true",
                "timeoutSeconds": "2",
                "labelSelector": "a=b",
                "fieldSelector": "spec.nodeName=n",
            },
            "",
            None,
        ),
    ],
)
def test_a_verb_sends(
    call: Call, resource: str, query: dict[str, str], content_type: str, body: object
) -> None:
    server = FakeApiServer()
    server.seed(PODS, {"metadata": {"name": "p", "namespace": "ns", "uid": "u"}, "spec": {}})

    async def main() -> None:
        async with server.client() as client:
            with suppress(ConflictError):  # the preconditions are made up
                await call(client)

    run_virtual(main())
    [sent] = server.requests
    assert sent.resource == resource
    assert sent.query == query
    assert sent.content_type == content_type
    if body is not None:
        assert sent.body == body
    namespaced = "labelSelector" in query or resource != "pods" or content_type
    assert sent.path.namespace == ("ns" if namespaced or sent.verb == "get" else "")


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda c: c.get(PODS, "p", "ns"), "get pods ns/p: "),
        (lambda c: c.get(NODES, "n"), "get nodes n: "),
        (lambda c: c.list(PODS, "ns"), "list pods ns: "),
        (lambda c: c.list(PODS), "list pods: "),
        (lambda c: watch(c, namespace="ns"), "watch pods ns: "),
        (lambda c: c.create(PODS, NEW), "create pods ns: "),
        (lambda c: c.create(PODS, {"metadata": {"name": "p"}}, "other"), "create pods other: "),
        (lambda c: c.delete(PODS, "p", "ns"), "delete pods ns/p: "),
        (
            lambda c: c.json_patch(PODS, "p", ADD, "ns", subresource="status"),
            "patch pods/status ns/p: ",
        ),
        (lambda c: c.merge_patch(PODS, "p", LABELS, "ns"), "patch pods ns/p: "),
        (
            lambda c: c.apply(PODS, STATED, field_manager="m", subresource="scale"),
            "patch pods/scale ns/p: ",
        ),
        (lambda c: c.post(PODS, "p", "eviction", {}, "ns"), "create pods/eviction ns/p: "),
    ],
)
def test_a_refusal_names_the_request(call: Call, words: str) -> None:
    server = FakeApiServer()
    server.inject(Fault.answer(500, "InternalError"))

    async def main() -> None:
        async with server.client() as client:
            with pytest.raises(ApiError) as refused:
                await call(client)
        assert str(refused.value).startswith(words)

    run_virtual(main())


@pytest.mark.parametrize(
    ("operations", "error"),
    [
        ([{"op": "test", "path": "/metadata/name", "value": "q"}], ConflictError),
        ([{"op": "remove", "path": "/metadata/labels"}], InvalidError),
    ],
)
def test_a_patch_that_does_not_fit_is_a_conflict_only_if_it_tests(
    operations: list[dict[str, Any]], error: type[ApiError]
) -> None:
    server = FakeApiServer()
    server.seed(PODS, {"metadata": {"name": "p", "namespace": "ns"}})

    async def main() -> None:
        async with server.client() as client:
            with pytest.raises(error) as refused:
                await client.json_patch(PODS, "p", operations, "ns")
        assert (refused.value.status, refused.value.reason) == (422, "Invalid")
        if error is ConflictError:
            assert str(refused.value) == (
                "patch pods p: the object is not as the patch expects it, it was changed"
            )

    run_virtual(main())


def test_a_client_has_a_namespace_and_a_time_for_answers() -> None:
    client = Client(httpx2.AsyncClient())
    assert client.namespace == "default"


def test_an_answer_may_have_as_many_bytes_as_the_limit() -> None:
    check_length(5, 5)
    with pytest.raises(ResponseTooLargeError, match=r"^the API server's answer has more than 5 b"):
        check_length(6, 5)


def test_the_path_of_an_annotation_escapes_what_a_json_pointer_means() -> None:
    assert annotation_path("a.b/c~d/e") == "/metadata/annotations/a.b~1c~0d~1e"
