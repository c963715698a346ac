"""Several different shares of one demand, in each spelling."""

from typing import Any

import msgspec
import pytest

from dialects.answers import answers_of
from kubeshare.core.demand import Demand, Memory, Share
from kubeshare.core.errors import InvalidValueError
from kubeshare.core.units import GI, MICROS
from kubeshare.dialects import pod, sharepod
from kubeshare.dialects.containers import sharing_containers
from kubeshare.dialects.shares import annotations_of, read_annotation

CONTAINERS = [{"name": "main"}, {"name": "side"}]
MAIN = Share(
    name="big",
    request_micros=500_000,
    limit_micros=600_000,
    limit_alone_micros=MICROS,
    latency_sensitive=True,
    memory=Memory(bytes=4 * GI),
    count=2,
    containers=("main", "side"),
)
REST = Share(name="rest", request_micros=250_000, memory=Memory(micros=250_000))
BIG = {
    "name": "big",
    "request": "0.5",
    "limit": "0.6",
    "limitAlone": 1,
    "latencySensitive": True,
    "memory": "4Gi",
    "count": 2,
    "containers": ["side", "main"],
}

the_sharepod, sharepod_refusal = answers_of(sharepod.demand_of)
the_pod, pod_refusal = answers_of(pod.demand_of)


def a_sharepod(annotations: dict[str, str] | None = None, **gpu: Any) -> dict[str, Any]:
    metadata = {"name": "a", "namespace": "team", "uid": "1-2", "annotations": annotations}
    return {"metadata": metadata, "spec": {"containers": CONTAINERS, "gpu": gpu}}


def a_pod(annotations: dict[str, str]) -> dict[str, Any]:
    metadata = {"name": "a", "uid": "1-2", "annotations": annotations}
    return {"metadata": metadata, "spec": {"containers": CONTAINERS}}


def test_a_sharepod_lists_its_shares() -> None:
    demand = the_sharepod(a_sharepod(shares=[BIG, {"name": "rest", "request": ".25"}], model="V1"))
    assert demand == Demand(uid="1-2", name="a", namespace="team", model="V1", shares=(MAIN, REST))


def test_a_pod_has_an_annotation_for_each_share() -> None:
    big = "request=.5, limit=0.6,limitAlone=1,memory=4Gi,count=2,containers=main+side"
    big += ",latencySensitive=true"
    shares = {"kubeshare.nthu/share.rest": "request=0.25", "kubeshare.nthu/share.big": big}
    demand = the_pod(a_pod({**shares, "kubeshare.nthu/affinity": "red"}))
    assert demand.shares == (MAIN, REST)
    assert demand.affinity == "red"


@pytest.mark.parametrize(("text", "is_so"), [("true", True), ("false", False), ("", False)])
def test_a_share_is_latency_sensitive_where_its_manifest_says_so(text: str, *, is_so: bool) -> None:
    asked = {"kubeshare.nthu/request": ".3", "kubeshare.nthu/latencySensitive": text}
    assert the_pod(a_pod(asked)).latency_sensitive is is_so
    assert the_sharepod(a_sharepod(request=".3", latencySensitive=is_so)).latency_sensitive is is_so
    labelled = a_pod({"kubeshare.nthu/latencySensitive": text})
    labelled["metadata"]["labels"] = {"sharedgpu/gpu_limit": "1", "sharedgpu/gpu_request": "0.3"}
    assert the_pod(labelled).latency_sensitive is is_so


def test_a_word_that_is_no_truth_value_is_refused_by_name() -> None:
    asked = {"kubeshare.nthu/request": ".3", "kubeshare.nthu/latencySensitive": "high"}
    refusal = pod_refusal(a_pod(asked))
    assert str(refusal) == "kubeshare.nthu/latencySensitive: 'high' is neither true nor false"


def test_several_gpus_are_never_latency_sensitive() -> None:
    refusal = sharepod_refusal(a_sharepod(request="2.5", latencySensitive=True))
    assert "leave spec.gpu.latencySensitive out" in str(refusal)


@pytest.mark.parametrize("text", ["2.5", "2500m"])
def test_more_than_one_gpu_is_whole_ones_and_the_rest(text: object) -> None:
    whole, rest = the_sharepod(a_sharepod(request=text)).shares
    assert (whole.count, whole.request_micros, whole.memory) == (2, MICROS, Memory(micros=MICROS))
    assert (rest.count, rest.request_micros, rest.memory) == (1, 500_000, Memory(micros=500_000))


def test_whole_gpus_are_the_short_form() -> None:
    demand = the_pod(a_pod({"kubeshare.nthu/request": "3"}))
    assert (demand.count, demand.request_micros, demand.shares) == (3, MICROS, ())
    assert demand.memory == Memory(micros=MICROS)


SHARES = "spec.gpu.shares"


@pytest.mark.parametrize(
    ("gpu", "field", "words"),
    [
        ({"shares": {"a": {}}}, SHARES, "is not a list of shares"),
        ({"shares": ["a"]}, SHARES, "is not a mapping"),
        ({"shares": [{"request": 1}]}, f"{SHARES}[None]", "None is not a name"),
        ({"shares": [{"name": "A"}]}, f"{SHARES}[A]", "'A' is not a name"),
        ({"shares": [BIG, BIG]}, SHARES, "two shares of the name big"),
        ({"shares": [BIG | {"count": 17}]}, f"{SHARES}[big].count", "from 1 to 16"),
        ({"shares": [BIG | {"count": 16}, {"name": "b", "request": 1}]}, SHARES, "17 shares"),
        ({"shares": [{"name": "a"}]}, f"{SHARES}[a].memory", "asks for no memory"),
        ({"shares": [{"name": "a", "request": 2}]}, f"{SHARES}[a].request", "more than 1"),
        ({"shares": [BIG | {"limit": 2}]}, f"{SHARES}[big].limit", "more than 1"),
        ({"shares": [BIG | {"limit": ".4"}]}, f"{SHARES}[big].request", "more than the limit"),
        (
            {"shares": [BIG | {"latencySensitive": "yes"}]},
            f"{SHARES}[big].latencySensitive",
            "'yes' is n",
        ),
        ({"shares": [BIG | {"limitAlone": ".5"}]}, f"{SHARES}[big].limitAlone", "limit 0.6 to 1"),
        ({"shares": [BIG | {"size": 1}]}, f"{SHARES}[big]", "size is not one of request"),
        ({"shares": [BIG | {"containers": "main"}]}, f"{SHARES}[big].containers", "not a list"),
        ({"shares": [BIG | {"containers": ["x"]}]}, f"{SHARES}[big].containers", "no container x"),
        ({"shares": [BIG], "request": 1}, "spec.gpu.request", "several are given"),
        ({"shares": [BIG], "containers": ["main"]}, "spec.gpu.containers", "several are given"),
        ({"shares": [BIG], "id": "abc"}, "spec.gpu.id", "cannot ask for one vGPU"),
        ({"request": "2.5", "limit": 1}, "spec.gpu.request", "leave spec.gpu.limit out"),
        ({"request": "2.5", "memory": "1Gi"}, "spec.gpu.request", "or list shares"),
        ({"request": "2", "count": 2}, "spec.gpu.request", "2 GPUs are whole"),
        ({"request": "16.1"}, "spec.gpu.request", "more than 16 GPUs"),
    ],
    ids=str,
)
def test_a_bad_share_is_refused_by_its_field(gpu: dict[str, Any], field: str, words: str) -> None:
    error = sharepod_refusal(a_sharepod(**gpu))
    assert error.field == field
    assert words in error.message


def test_the_published_annotations_are_for_one_gpu_at_most() -> None:
    published = {
        "kubeshare/gpu_request": "2.5",
        "kubeshare/gpu_limit": "1",
        "kubeshare/gpu_mem": "1Gi",
    }
    error = sharepod_refusal(a_sharepod(published))
    assert (error.field, error.message) == (
        "kubeshare/gpu_request",
        "2.5 is more than 1, a whole GPU",
    )
    published["kubeshare/gpu_request"] = "0.5"
    error = sharepod_refusal(a_sharepod(published, shares=[BIG]))
    assert error.field == "kubeshare/gpu_request"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is not a field and its value"),
        ("request", "'request' is not a field and its value"),
        ("request=", "is not a field and its value"),
        ("request=.5,request=.6", "is not a field and its value"),
        ("size=1", "size is not one of request"),
        ("request=.5,count=two", "not a number of GPUs"),
    ],
)
def test_a_bad_annotation_is_named(text: str, words: str) -> None:
    key = "kubeshare.nthu/share.a"
    others = {"kubeshare.nthu/share.b": "request=.5"}
    if not text:
        # An empty annotation is absent, as everywhere.
        assert [share.name for share in the_pod(a_pod({key: "", **others})).shares] == ["b"]
        return
    error = pod_refusal(a_pod({key: text, **others}))
    assert error.field.startswith(key)
    assert words in error.message


def test_an_error_has_the_name_of_the_annotation() -> None:
    with pytest.raises(InvalidValueError, match=r"^kubeshare.nthu/share.Bad: 'Bad' is not a name"):
        pod.demand_of(a_pod({"kubeshare.nthu/share.Bad": "request=.5"}))


def test_a_container_that_a_share_of_a_pod_names_and_does_not_exist_is_named() -> None:
    text = pod_refusal(a_pod({"kubeshare.nthu/share.a": "request=.5,containers=main+other"}))
    assert text.field == "kubeshare.nthu/share.a"
    assert text.message == "there is no container other; there are main, side"


def test_the_author_does_not_choose_the_gpus_of_several_shares() -> None:
    manifest = a_sharepod(shares=[BIG, {"name": "rest", "request": ".25"}], ids=["a", "b", "c"])
    manifest["spec"]["nodeName"] = "n1"
    assert sharepod_refusal(manifest).field == "spec.gpu.ids"
    manifest["spec"]["gpu"]["attempt"] = 1
    assert the_sharepod(manifest).shares == (MAIN, REST)


ASKING = {"resources": {"limits": {"kubeshare.nthu/vgpu": "1"}}}


@pytest.mark.parametrize(
    ("containers", "shares", "users"),
    [
        ([{}, {}, {}], [["a"], ["b"]], "ab"),
        ([{}, {}, {}], [["a"], []], "abc"),
        ([{}, {}, {}], [[], []], "abc"),
        ([{}, ASKING, {}], [[], []], "b"),
        ([{}, ASKING, {}], [["a"], []], "ab"),
    ],
)
def test_the_containers_of_several_shares(
    containers: list[dict[str, Any]], shares: list[list[str]], users: str
) -> None:
    named = zip("abc", containers, strict=True)
    spec = {"containers": [{"name": name} | container for name, container in named]}
    entries = [
        Share(name=f"s{at}", request_micros=1, containers=tuple(names))
        for at, names in enumerate(shares)
    ]
    assert sharing_containers(spec, entries) == set(users)


def test_the_annotations_of_a_share_say_what_it_says() -> None:
    share = Share(
        name="b",
        request_micros=100_000,
        limit_micros=200_000,
        limit_alone_micros=900_000,
        memory=Memory(micros=250_000),
        count=3,
    )
    found = annotations_of((MAIN, share))
    assert list(found) == ["kubeshare.nthu/share.big", "kubeshare.nthu/share.b"]
    read = [read_annotation(key.rpartition(".")[2], text, key) for key, text in found.items()]
    # The holder says whether it is latency-sensitive; earlier agents do not know the field.
    assert tuple(read) == (msgspec.structs.replace(MAIN, latency_sensitive=False), share)
