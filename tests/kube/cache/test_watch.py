"""The lines of a watch, however the server cuts them and whatever they hold."""

from collections.abc import AsyncIterator
from typing import Any

import httpx2
import msgspec
import pytest
from msgspec import Struct

from kubeshare.kube.cache import watch
from kubeshare.kube.cache.watch import WatchEvent, read_watch
from kubeshare.kube.client.errors import ApiError, GoneError, UnreachableError
from kubeshare.kube.meta import Identity, Key, ObjectMeta
from kubeshare.kube.resources import PODS, Resource
from kubeshare.simulator.control import run_virtual

REQUEST = "watch pods default"


class Sized(Struct, frozen=True):
    """A narrow view of which not every pod is."""

    metadata: ObjectMeta
    spec: dict[str, int]


def pod(name: str, version: str, size: object = 1) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "default", "uid": f"{name}-uid"}
    return {"metadata": metadata | {"resourceVersion": version}, "spec": {"size": size}}


def line(kind: str, obj: object) -> bytes:
    return msgspec.json.encode({"type": kind, "object": obj}) + b"\n"


def read(*chunks: bytes, resource: Resource[Any] = PODS) -> list[WatchEvent[Any]]:
    """The events of a watch whose body comes in these chunks."""

    async def body() -> AsyncIterator[bytes]:
        for chunk in chunks:
            yield chunk

    async def events() -> list[WatchEvent[Any]]:
        response = httpx2.Response(200, content=body())
        return [event async for event in read_watch(response, resource, REQUEST)]

    return run_virtual(events())


def test_events_are_read_however_the_stream_is_cut() -> None:
    lines = line("ADDED", pod("a", "1")) + b"\n" + line("DELETED", pod("b", "2"))
    whole = read(lines)
    assert [(event.type, event.key.name) for event in whole] == [("ADDED", "a"), ("DELETED", "b")]
    assert whole[0] == WatchEvent(
        "ADDED", Key("default", "a"), Identity("a-uid", "1"), pod("a", "1")
    )
    for cut in (1, 40, len(lines) - 1):
        assert read(lines[:cut], lines[cut:]) == whole
    assert read(lines[:-1]) == whole[:1]


@pytest.mark.parametrize("resource", [PODS, PODS.into(dict), PODS.into(Sized)])
def test_a_bookmark_has_a_version_and_no_object(resource: Resource[Any]) -> None:
    bookmark = {"kind": "Pod", "metadata": {"resourceVersion": "7", "creationTimestamp": None}}
    found = read(line("BOOKMARK", bookmark), resource=resource)
    assert found == [WatchEvent("BOOKMARK", Key("", ""), Identity("", "7"), None)]


@pytest.mark.parametrize("kind", ["ADDED", "MODIFIED", "DELETED"])
def test_an_object_of_another_shape_is_named_in_its_event(kind: str) -> None:
    lines = line(kind, pod("a", "1", "large")) + line("ADDED", pod("b", "2"))
    strange, fine = read(lines, resource=PODS.into(Sized))
    assert strange == WatchEvent(kind, Key("default", "a"), Identity("a-uid", "1"), None)
    assert fine.object is not None
    assert fine.object.spec == {"size": 1}


def test_an_error_event_is_the_error_of_its_status() -> None:
    status = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}
    with pytest.raises(GoneError) as caught:
        read(line("ERROR", status))
    assert str(caught.value) == f"{REQUEST}: too old"
    assert (caught.value.status, caught.value.reason) == (410, "Expired")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"<html>\n", "malformed"),
        (b'{"type": "ADDED"}\n', "missing required field `object`"),
        (line("ADDED", {"spec": {}}), "missing required field `metadata`"),
        (line("ADDED", "pod"), "Expected `object`, got `str`"),
        (line("SYNCED", pod("a", "1")), "of type 'SYNCED'"),
        (line("ERROR", "status"), "Expected `object`, got `str`"),
    ],
)
def test_what_is_no_event_interrupts_the_watch(text: bytes, words: str) -> None:
    with pytest.raises(ApiError) as caught:
        read(text, resource=PODS.into(Sized))
    assert isinstance(caught.value, UnreachableError)
    assert caught.value.sent
    assert str(caught.value).startswith(f"{REQUEST}: not a watch event (")
    assert words in str(caught.value)


def test_a_line_without_an_end_is_not_read_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    text = line("ADDED", pod("a", "1"))
    monkeypatch.setattr(watch, "LINE_LIMIT", len(text) - 1)
    assert len(read(text, text[:-1], b"\n")) == 2
    with pytest.raises(UnreachableError) as caught:
        read(text, text[:-1], b" ")
    assert str(caught.value) == f"{REQUEST}: a line of more than {len(text) - 1} bytes"
    assert caught.value.sent
