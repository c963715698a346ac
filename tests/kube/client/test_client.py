"""The verbs of the API client against the fake server."""

import asyncio
from contextlib import aclosing
from typing import Any

import httpx2
import pytest
from msgspec import Struct

from kubeshare.kube.client import listing as listing_module
from kubeshare.kube.client.client import Client
from kubeshare.kube.client.errors import (
    AlreadyExistsError,
    ApiError,
    ConflictError,
    ForbiddenError,
    GoneError,
    InvalidError,
    NotFoundError,
    ResponseTooLargeError,
    TooManyRequestsError,
    UnauthorizedError,
    UnreachableError,
)
from kubeshare.kube.client.listing import Listing
from kubeshare.kube.client.transport import Call, Transport
from kubeshare.kube.meta import Key, ObjectMeta
from kubeshare.kube.resources import CONFIG_MAPS, PODS, Resource
from kubeshare.simulator.control import FakeApiServer, Fault, run_virtual

WIDGETS = Resource("example.test", "v1", "widgets", "Widget")


class Pod(Struct, frozen=True, kw_only=True):
    """A narrow view of a pod."""

    metadata: ObjectMeta


def pod(name: str, **metadata: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "default", **metadata}}


def test_what_is_created_can_be_read_raw_and_narrow(server: FakeApiServer) -> None:
    async def main() -> None:
        async with server.client() as client:
            created = await client.create(PODS, pod("a", labels={"x": "y"}))
            raw = await client.get(PODS, "a", "default")
            narrow = await client.get(PODS.into(Pod), "a", "default")
            assert raw == created
            assert raw["kind"] == "Pod"
            assert narrow.metadata.labels == {"x": "y"}
            assert narrow.metadata.uid == raw["metadata"]["uid"]
            assert client.requests == {("create", "pods"): 1, ("get", "pods"): 2}
            assert (client.reads, client.writes) == (2, 1)

    run_virtual(main())


def test_a_list_reads_all_pages_and_selects(server: FakeApiServer) -> None:
    for number in range(23):
        server.seed(PODS, pod(f"p{number:02}", labels={"odd": str(number % 2)}))

    async def main() -> None:
        client = server.client()
        everything = await client.list(PODS, page=5)
        assert [item["metadata"]["name"] for item in everything.items] == [
            f"p{number:02}" for number in range(23)
        ]
        assert everything.resource_version == str(server.storage.version)
        assert client.requests["list", "pods"] == 5
        assert (client.reads, client.writes) == (5, 0)
        odd = await client.list(PODS.into(Pod), "default", labels="odd in (1)", page=5)
        assert [item.metadata.name for item in odd.items] == [f"p{n:02}" for n in range(1, 23, 2)]
        one = await client.list(PODS, "default", fields="metadata.name=p07")
        assert len(one.items) == 1

    run_virtual(main())


def test_a_list_of_nothing_may_lack_a_version() -> None:
    async def main() -> None:
        answer = httpx2.Response(200, json={"metadata": {}, "items": []})
        transport = httpx2.MockTransport(lambda _: answer)
        client = Client(httpx2.AsyncClient(transport=transport, base_url="http://x"))
        assert await client.list(PODS) == Listing([], "")

    run_virtual(main())


def test_an_error_in_a_watch_names_the_request(server: FakeApiServer) -> None:
    async def main() -> None:
        async with aclosing(server.client().watch(PODS, "ns", resource_version="0")) as events:
            asyncio.get_running_loop().call_later(1, server.expire_watches)
            with pytest.raises(GoneError, match=r"^watch pods ns: "):
                await anext(events)

    run_virtual(main())


def test_a_list_that_expires_between_pages_is_begun_again(server: FakeApiServer) -> None:
    for number in range(6):
        server.seed(PODS, pod(f"p{number}"))
    server.inject(Fault.answer(410, "Expired"), verb="list", skip=1)

    async def main() -> None:
        listing = await server.client().list(PODS, page=4)
        assert len(listing.items) == 6
        assert len(server.requests) == 4

    run_virtual(main())


def test_a_list_that_expires_for_ever_ends_with_gone(server: FakeApiServer) -> None:
    server.inject(Fault.answer(410, "Expired"), verb="list", times=100)

    async def main() -> None:
        with pytest.raises(GoneError):
            await server.client().list(PODS)
        assert len(server.requests) == 3

    run_virtual(main())


def test_a_page_of_large_objects_is_read_with_fewer_of_them(
    server: FakeApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing_module, "PAGE_BYTES", 20_000)
    for number in range(80):
        server.seed(PODS, pod(f"p{number:02}", labels={"text": "x" * 900 * (number < 40)}))
    server.seed(PODS, pod("q", labels={"text": "x" * 30_000}))

    async def main() -> None:
        listing = await server.client().list(PODS, page=80)
        names = [item["metadata"]["name"] for item in listing.items]
        assert names == [*(f"p{number:02}" for number in range(80)), "q"]
        sizes = [int(request.query["limit"]) for request in server.requests]
        assert sizes[:4] == [80, 10, 20, 2]
        assert sizes[-1] == 1

    run_virtual(main())


def test_others_run_while_a_long_list_is_read(
    server: FakeApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing_module, "_BYTES_AT_ONCE", 10_000)
    for number in range(20):
        server.seed(PODS, pod(f"p{number:02}"))
    read: list[str] = []
    seen: set[int] = set()

    async def main() -> None:
        listing = asyncio.create_task(server.client().list_each(PODS, lambda _: read.append("one")))
        while not listing.done():
            seen.add(len(read))
            await asyncio.sleep(0)
        # 4096 bytes each, and those of its JSON.
        assert seen >= {0, 3, 6, 9, 12, 15, 18}

    run_virtual(main())


def test_one_strange_object_does_not_hide_the_others(server: FakeApiServer) -> None:
    class Sized(Struct):
        metadata: ObjectMeta
        spec: dict[str, int]

    server.seed(WIDGETS, pod("good") | {"spec": {"size": 1}})
    server.seed(WIDGETS, pod("bad") | {"spec": {"size": "large"}})

    async def main() -> None:
        listing = await server.client().list(WIDGETS.into(Sized))
        assert [item.metadata.name for item in listing.items] == ["good"]
        assert listing.unreadable == (Key("default", "bad"),)

    run_virtual(main())


def test_json_patch_with_a_test_that_fails_is_a_conflict(server: FakeApiServer) -> None:
    server.seed(PODS, pod("a"))
    stale: list[dict[str, Any]] = [
        {"op": "test", "path": "/metadata/resourceVersion", "value": "1"},
        {"op": "add", "path": "/metadata/labels", "value": {"x": "y"}},
    ]

    async def main() -> None:
        client = server.client()
        with pytest.raises(ConflictError, match=r"patch pods a: .* it was changed"):
            await client.json_patch(PODS, "a", stale, "default")
        missing = [{"op": "remove", "path": "/metadata/none"}]
        with pytest.raises(InvalidError):
            await client.json_patch(PODS, "a", missing, "default")
        fresh = await client.json_patch(PODS, "a", stale[1:], "default", field_manager="me")
        assert fresh["metadata"]["labels"] == {"x": "y"}

    run_virtual(main())


def test_a_status_write_changes_status_only_and_the_other_way_round(server: FakeApiServer) -> None:
    server.seed(WIDGETS, pod("a") | {"spec": {"size": 1}, "status": {"ready": False}})
    patch = {"spec": {"size": 2}, "status": {"ready": True}}

    async def main() -> None:
        client = server.client()
        status = await client.merge_patch(WIDGETS, "a", patch, "default", subresource="status")
        assert (status["spec"], status["status"]) == ({"size": 1}, {"ready": True})
        assert status["metadata"]["generation"] == 1
        spec = await client.merge_patch(
            WIDGETS, "a", {"spec": {"size": 3}, "status": None}, "default"
        )
        assert (spec["spec"], spec["status"]) == ({"size": 3}, {"ready": True})
        assert spec["metadata"]["generation"] == 2
        assert client.requests == {("patch", "widgets/status"): 1, ("patch", "widgets"): 1}

    run_virtual(main())


def test_a_merge_patch_with_an_old_version_is_a_conflict(server: FakeApiServer) -> None:
    server.seed(PODS, pod("a"))

    async def main() -> None:
        with pytest.raises(ConflictError):
            await server.client().merge_patch(
                PODS, "a", {"metadata": {"resourceVersion": "1"}}, "default"
            )

    run_virtual(main())


def test_apply_removes_what_its_manager_no_longer_states(server: FakeApiServer) -> None:
    def status(*kinds: str) -> dict[str, Any]:
        conditions = [{"type": kind, "status": "True"} for kind in kinds]
        return pod("a") | {"status": {"conditions": conditions}}

    server.seed(WIDGETS, pod("a"))

    async def main() -> None:
        client = server.client()
        for body, manager in (
            (status("Scheduled", "Bound"), "one"),
            (status("Ready"), "two"),
            (status("Scheduled"), "one"),
        ):
            await client.apply(WIDGETS, body, field_manager=manager, subresource="status")
        stored = await client.get(WIDGETS, "a", "default")
        kinds = [item["type"] for item in stored["status"]["conditions"]]
        assert sorted(kinds) == ["Ready", "Scheduled"]

    run_virtual(main())


def test_apply_refuses_a_field_of_another_unless_forced(server: FakeApiServer) -> None:
    async def main() -> None:
        client = server.client()
        await client.apply(CONFIG_MAPS, pod("a") | {"data": {"k": "1"}}, field_manager="one")
        other = pod("a") | {"data": {"k": "2"}}
        with pytest.raises(ConflictError):
            await client.apply(CONFIG_MAPS, other, field_manager="two")
        forced = await client.apply(CONFIG_MAPS, other, field_manager="two", force=True)
        assert forced["data"] == {"k": "2"}

    run_virtual(main())


def test_delete_honours_uid_and_version(server: FakeApiServer) -> None:
    stored = server.seed(PODS, pod("a"))

    async def main() -> None:
        client = server.client()
        with pytest.raises(ConflictError):
            await client.delete(PODS, "a", "default", uid="somebody-else")
        with pytest.raises(ConflictError):
            await client.delete(PODS, "a", "default", resource_version="1")
        await client.delete(PODS, "a", "default", uid=stored["metadata"]["uid"])
        with pytest.raises(NotFoundError, match='get pods default/a: pods "a" not found'):
            await client.get(PODS, "a", "default")

    run_virtual(main())


def test_a_finalizer_keeps_an_object_until_it_is_taken_off(server: FakeApiServer) -> None:
    server.seed(WIDGETS, pod("a", finalizers=["example.test/wait"]))

    async def main() -> None:
        client = server.client()
        await client.delete(WIDGETS, "a", "default")
        kept = await client.get(WIDGETS, "a", "default")
        assert kept["metadata"]["deletionTimestamp"]
        await client.merge_patch(WIDGETS, "a", {"metadata": {"finalizers": None}}, "default")
        assert server.stored(WIDGETS, "a", "default") is None

    run_virtual(main())


def test_a_pod_on_a_node_waits_for_its_kubelet(server: FakeApiServer) -> None:
    server.seed(PODS, pod("a"))

    async def main() -> None:
        client = server.client()
        target = {"target": {"kind": "Node", "name": "n1"}}
        await client.post(PODS, "a", "binding", target, "default")
        with pytest.raises(ConflictError):
            await client.post(PODS, "a", "binding", target, "default")
        await client.post(PODS, "a", "eviction", pod("a"), "default")
        leaving = await client.get(PODS, "a", "default")
        assert leaving["spec"]["nodeName"] == "n1"
        assert leaving["metadata"]["deletionTimestamp"]
        await client.delete(PODS, "a", "default", grace=0)
        assert server.stored(PODS, "a", "default") is None

    run_virtual(main())


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
        (422, "Invalid", InvalidError),
        (429, "TooManyRequests", TooManyRequestsError),
        (500, "InternalError", ApiError),
    ],
)
def test_each_refusal_is_an_error_of_its_kind(
    server: FakeApiServer, status: int, reason: str, kind: type[ApiError]
) -> None:
    server.inject(Fault.answer(status, reason, retry_after=7))

    async def main() -> None:
        with pytest.raises(ApiError) as caught:
            await server.client().get(PODS, "a", "default")
        assert type(caught.value) is kind
        assert (caught.value.status, caught.value.reason) == (status, reason)
        assert caught.value.retry_after == 7

    run_virtual(main())


def test_the_message_of_a_refusal_has_its_causes(server: FakeApiServer) -> None:
    server.add_rule(WIDGETS, lambda new, _: "too big" if new["spec"]["size"] > 9 else None)

    async def main() -> None:
        with pytest.raises(InvalidError, match="too big") as caught:
            await server.client().create(WIDGETS, pod("a") | {"spec": {"size": 10}})
        assert caught.value.causes == [{"reason": "FieldValueInvalid", "message": "too big"}]

    run_virtual(main())


def test_an_answer_that_is_no_status_is_quoted() -> None:
    async def main() -> None:
        answer = httpx2.MockTransport(lambda _: httpx2.Response(502, text="bad gateway"))
        client = Client(httpx2.AsyncClient(transport=answer, base_url="http://proxy"))
        with pytest.raises(ApiError, match="get pods default/a: bad gateway") as caught:
            await client.get(PODS, "a", "default")
        assert caught.value.status == 502

    run_virtual(main())


def test_a_client_that_is_only_httpx_sends_the_same() -> None:
    sent: list[httpx2.Request] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        sent.append(request)
        return httpx2.Response(200, json=pod("a"))

    async def main() -> None:
        transport = httpx2.MockTransport(answer)
        async with Client(httpx2.AsyncClient(transport=transport, base_url="http://x")) as client:
            await client.get(PODS, "a", "default")
            await client.merge_patch(PODS, "a", {"spec": {}}, "default", field_manager="m")
            await client.delete(PODS, "a", "default")

    run_virtual(main())
    path = "/api/v1/namespaces/default/pods/a"
    assert [(each.method, str(each.url)) for each in sent] == [
        ("GET", f"http://x{path}"),
        ("PATCH", f"http://x{path}?fieldManager=m"),
        ("DELETE", f"http://x{path}"),
    ]
    got, patched, _ = sent
    assert "content-type" not in got.headers
    assert (got.content, patched.content) == (b"", b'{"spec":{}}')
    assert patched.headers["content-type"] == "application/merge-patch+json"


def test_an_answer_of_httpx_has_a_limit_a_reason_and_a_wait() -> None:
    async def main() -> None:
        call = Call("get", PODS, "default", "a")
        busy = {"reason": "TooManyRequests", "message": "busy"}
        for answer, kind, words in (
            (httpx2.Response(200, text="123456"), ResponseTooLargeError, "more than 5 bytes"),
            (
                httpx2.Response(429, json=busy, headers={"Retry-After": "3"}),
                TooManyRequestsError,
                "get pods default/a: busy",
            ),
        ):
            mock = httpx2.MockTransport(lambda _, answer=answer: answer)
            transport = Transport(httpx2.AsyncClient(transport=mock, base_url="http://x"), 1)
            limit = 5 if answer.status_code == 200 else 100
            with pytest.raises(kind, match=words) as caught:
                await transport.send(call, limit=limit)
            assert caught.value.retry_after == (3 if answer.status_code == 429 else None)

    run_virtual(main())


@pytest.mark.parametrize(
    ("fault", "sent", "words"),
    [
        (Fault.refuse(), False, "cannot connect to the API server at http://fake"),
        (Fault.reset(), True, "broke"),
        (Fault.reset(after=True), True, "broke"),
        (Fault.hang(), True, "no answer"),
    ],
)
def test_no_answer_is_unreachable_and_says_whether_anything_was_sent(
    server: FakeApiServer, fault: Fault, sent: bool, words: str
) -> None:
    server.inject(fault)

    async def main() -> None:
        with pytest.raises(UnreachableError, match=words) as caught:
            await server.client(timeout=5).create(PODS, pod("a"))
        assert caught.value.sent is sent
        assert (caught.value.status, caught.value.reason) == (0, "Unreachable")
        assert (server.stored(PODS, "a", "default") is not None) is fault.after
        assert asyncio.get_running_loop().time() == pytest.approx(5 if fault.kind == "hang" else 0)

    run_virtual(main())
