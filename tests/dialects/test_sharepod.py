"""SharePods become demands, in either spelling."""

from typing import Any

import pytest

from dialects.answers import answers_of
from kubeshare.core.demand import Demand, Memory
from kubeshare.core.units import GI
from kubeshare.dialects.containers import IMPLICIT_VGPU_RESOURCE, VGPU_RESOURCE
from kubeshare.dialects.sharepod import demand_of

REQUEST, LIMIT, MEMORY = "kubeshare/gpu_request", "kubeshare/gpu_limit", "kubeshare/gpu_mem"
AMOUNTS = {REQUEST: "0.3", LIMIT: "0.6", MEMORY: "1073741824"}

the_demand, refusal = answers_of(demand_of)


def a_sharepod(
    gpu: object = None, annotations: dict[str, str] | None = None, **spec: object
) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": "a", "namespace": "team", "uid": "1-2"}
    if annotations is not None:
        metadata["annotations"] = annotations
    return {
        "metadata": metadata,
        "spec": {"containers": [], **({} if gpu is None else {"gpu": gpu}), **spec},
    }


def test_both_spellings_say_the_same() -> None:
    gpu = {
        "request": "0.3",
        "limit": "0.6",
        "memory": "1Gi",
        "affinity": "red",
        "antiAffinity": "green",
        "exclusion": "blue",
        "id": "abcde",
    }
    annotations = AMOUNTS | {
        "kubeshare/sched_affinity": "red",
        "kubeshare/sched_anti-affinity": "green",
        "kubeshare/sched_exclusion": "blue",
        "kubeshare/GPUID": "abcde",
    }
    expected = Demand(
        uid="1-2",
        name="a",
        namespace="team",
        request_micros=300_000,
        limit_micros=600_000,
        memory=Memory(bytes=GI),
        affinity="red",
        anti_affinity="green",
        exclusion="blue",
        device_id="abcde",
    )
    assert demand_of(a_sharepod(gpu)) == expected
    assert demand_of(a_sharepod(annotations=annotations)) == expected
    assert demand_of(a_sharepod(gpu, annotations)) == expected


def test_spellings_may_complete_each_other() -> None:
    demand = the_demand(a_sharepod({"id": "abcde", "attempt": 2, "affinity": ""}, AMOUNTS))
    assert (demand.request_micros, demand.device_id, demand.attempt) == (300_000, "abcde", 2)


@pytest.mark.parametrize(
    ("gpu", "request_", "limit", "memory"),
    [
        ({"request": "0.3"}, 300_000, 1_000_000, Memory(micros=300_000)),
        ({"request": 1}, 1_000_000, 1_000_000, Memory(micros=1_000_000)),
        ({"request": "0.3", "memory": "0.5"}, 300_000, 1_000_000, Memory(micros=500_000)),
        ({"memory": "1Gi"}, 0, 1_000_000, Memory(bytes=GI)),
        ({"limit": "250m", "memory": "0.1"}, 0, 250_000, Memory(micros=100_000)),
    ],
    ids=str,
)
def test_what_is_not_said_has_its_default(
    gpu: dict[str, Any], request_: int, limit: int, memory: Memory
) -> None:
    demand = the_demand(a_sharepod(gpu))
    assert (demand.request_micros, demand.limit_micros, demand.memory) == (request_, limit, memory)
    assert (demand.affinity, demand.device_id, demand.count, demand.nodes) == ("", "", 1, None)


def test_a_given_node_is_the_only_one_allowed() -> None:
    demand = the_demand(a_sharepod({"request": "0.3", "model": "V100", "count": 2}, nodeName="n7"))
    assert demand.nodes == frozenset({"n7"})
    assert (demand.model, demand.count) == ("V100", 2)


@pytest.mark.parametrize(
    "sharepod",
    [
        {},
        {"metadata": {"name": "a"}, "spec": {}},
        a_sharepod({}),
        a_sharepod({"attempt": 1}),
        a_sharepod({"request": "", "affinity": ""}),
        a_sharepod(annotations={"example.org/other": "1"}),
        a_sharepod(annotations={REQUEST: "", "kubeshare/sched_affinity": "red"}),
    ],
    ids=str,
)
def test_a_pod_that_asks_for_no_gpu_has_no_demand(sharepod: dict[str, Any]) -> None:
    assert demand_of(sharepod) is None


@pytest.mark.parametrize("missing", [REQUEST, LIMIT, MEMORY])
def test_the_published_amounts_come_together(missing: str) -> None:
    given = {key: value for key, value in AMOUNTS.items() if key != missing}
    for annotations in (given, given | {missing: ""}):
        error = refusal(a_sharepod(annotations=annotations))
        assert error.field == missing
        assert f"{missing} missing" in error.message


def test_a_gpuid_alone_lacks_all_three() -> None:
    error = refusal(a_sharepod(annotations={"kubeshare/GPUID": "abcde"}))
    assert error.field == REQUEST
    assert all(key in error.message for key in AMOUNTS)
    assert demand_of(a_sharepod({"request": "0.3"}, {"kubeshare/GPUID": "abcde"})) is not None


@pytest.mark.parametrize(
    ("gpu", "field", "annotation"),
    [
        ({"request": "0.4"}, "spec.gpu.request", REQUEST),
        ({"limit": "0.7"}, "spec.gpu.limit", LIMIT),
        ({"memory": "0.5"}, "spec.gpu.memory", MEMORY),
        ({"affinity": "blue"}, "spec.gpu.affinity", "kubeshare/sched_affinity"),
    ],
    ids=str,
)
def test_spellings_that_differ_are_refused_naming_both(
    gpu: dict[str, str], field: str, annotation: str
) -> None:
    error = refusal(a_sharepod(gpu, AMOUNTS | {"kubeshare/sched_affinity": "red"}))
    assert error.field == field
    assert annotation in error.message


@pytest.mark.parametrize(
    ("gpu", "field"),
    [
        ({"request": "0.7", "limit": "0.5"}, "spec.gpu.request"),
        ({"limit": "1.2"}, "spec.gpu.limit"),
        ({"request": "-0.1"}, "spec.gpu.request"),
        ({"request": "NaN"}, "spec.gpu.request"),
        ({"request": "50%"}, "spec.gpu.request"),
        ({"memory": "-1"}, "spec.gpu.memory"),
        ({"request": "0.3", "memory": "0"}, "spec.gpu.memory"),
        ({"limit": "0.5"}, "spec.gpu.memory"),
        ({"id": "abcde"}, "spec.gpu.memory"),
        ({"affinity": 3}, "spec.gpu.affinity"),
        ({"affinity": "x" * 254}, "spec.gpu.affinity"),
        ({"id": "a\tb"}, "spec.gpu.id"),
        ({"id": "a\u202eb"}, "spec.gpu.id"),
        ({"id": "x" * 64}, "spec.gpu.id"),
        ({"id": 3}, "spec.gpu.id"),
        ({"count": 0}, "spec.gpu.count"),
        ({"count": 17}, "spec.gpu.count"),
        ({"count": True}, "spec.gpu.count"),
        ({"attempt": -1, "request": "0.1"}, "spec.gpu.attempt"),
        ({"ids": ["a", "b"]}, "spec.gpu.ids"),
        ({"ids": ["a", "a"], "count": 2}, "spec.gpu.ids"),
        ({"ids": ["a", "b"], "count": 2}, "spec.gpu.ids"),
        ({"ids": ["a", 7], "count": 2}, "spec.gpu.ids"),
        ({"ids": "a", "count": 2}, "spec.gpu.ids"),
        ("0.5", "spec.gpu"),
    ],
    ids=str,
)
def test_bad_values_are_refused_by_the_name_they_were_written_under(gpu: Any, field: str) -> None:
    assert refusal(a_sharepod(gpu)).field == field


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({LIMIT: "0.2"}, REQUEST),
        ({LIMIT: "1.2"}, LIMIT),
        ({REQUEST: "-0.1"}, REQUEST),
        ({REQUEST: "50%"}, REQUEST),
        ({MEMORY: "NaN"}, MEMORY),
        ({"kubeshare/GPUID": "x" * 64}, "kubeshare/GPUID"),
    ],
    ids=str,
)
def test_bad_annotations_are_refused_by_their_key(changed: dict[str, str], field: str) -> None:
    assert refusal(a_sharepod(annotations=AMOUNTS | changed)).field == field


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"initContainers": "x"}, "spec.initContainers"),
        ({"initContainers": [{"image": "x"}]}, "spec.initContainers[0]"),
        ({"containers": [{"name": "a", "resources": []}]}, "spec.containers[0].resources"),
        ({"nodeSelector": ["gpu"]}, "spec.nodeSelector"),
        ({"tolerations": {"key": "gpu"}}, "spec.tolerations"),
        ({"affinity": {"nodeAffinity": "n1"}}, "spec.affinity.nodeAffinity"),
    ],
)
def test_what_kubernetes_would_make_no_pod_of_is_refused_by_its_name(
    spec: dict[str, Any], field: str
) -> None:
    refused = refusal(a_sharepod({"request": "0.3"}, **spec))
    assert refused.field == field
    assert "is not as Kubernetes has it" in refused.message


@pytest.mark.parametrize("amounts", ["limits", "requests"])
def test_the_implicit_name_of_the_resource_is_refused_with_the_other(amounts: str) -> None:
    container = {"name": "main", "resources": {amounts: {IMPLICIT_VGPU_RESOURCE: "1"}}}
    refused = refusal(a_sharepod({"request": "0.3"}, containers=[container]))
    assert refused.field == "spec.containers"
    assert f"ask for {VGPU_RESOURCE}: 1 instead" in refused.message


def test_null_is_absent_in_a_podspec_as_in_kubernetes() -> None:
    fields = ("initContainers", "nodeSelector", "tolerations", "affinity")
    container = {"name": "main", "resources": {"limits": None}}
    nothing = dict.fromkeys(fields)
    plain = the_demand(a_sharepod({"request": "0.3"}))
    assert the_demand(a_sharepod({"request": "0.3"}, containers=[container], **nothing)) == plain


def test_a_sharepod_that_asks_for_no_gpu_is_left_to_the_api_server() -> None:
    assert demand_of(a_sharepod(affinity="ssd")) is None
