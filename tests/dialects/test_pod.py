"""Plain pods become demands, in each of three spellings."""

from typing import Any

import pytest

from dialects.answers import answers_of
from kubeshare.core.demand import Demand, Memory
from kubeshare.core.units import GI, MICROS
from kubeshare.dialects.pod import demand_of

PUBLISHED = {
    "kubeshare/gpu_request": "0.3",
    "kubeshare/gpu_limit": "0.6",
    "kubeshare/gpu_mem": "1073741824",
}

the_demand, refusal = answers_of(demand_of)


def a_pod(annotations: dict[str, str] | None = None, **labels: str) -> dict[str, Any]:
    metadata = {"name": "a", "namespace": "team", "uid": "1-2", "annotations": annotations}
    spelled = {f"sharedgpu/{key}": value for key, value in labels.items()}
    return {"metadata": {**metadata, "labels": spelled}, "spec": {"containers": []}}


def ours(**fields: str) -> dict[str, str]:
    return {f"kubeshare.nthu/{field}": value for field, value in fields.items()}


def test_every_annotation_is_read() -> None:
    annotations = ours(
        request="0.3",
        limit="600m",
        memory="1Gi",
        affinity="red",
        antiAffinity="green",
        exclusion="blue",
        model="V100",
        count="2",
    )
    assert the_demand(a_pod(annotations)) == Demand(
        uid="1-2",
        name="a",
        namespace="team",
        request_micros=300_000,
        limit_micros=600_000,
        memory=Memory(bytes=GI),
        affinity="red",
        anti_affinity="green",
        exclusion="blue",
        model="V100",
        count=2,
    )


def test_the_published_annotations_and_ours_say_the_same() -> None:
    expected = the_demand(a_pod(PUBLISHED))
    assert expected == the_demand(a_pod(ours(request="0.3", limit="0.6", memory="1Gi")))
    assert expected == the_demand(a_pod(PUBLISHED | ours(request="0.30")))


def test_the_labels_of_the_second_version_ask_too() -> None:
    demand = the_demand(a_pod(gpu_request="0.3", gpu_limit="0.6", gpu_mem="1073741824"))
    assert demand == the_demand(a_pod(PUBLISHED))


def test_memory_follows_the_request_and_the_limit_is_the_whole_gpu_by_default() -> None:
    demand = the_demand(a_pod(ours(request="0.3")))
    assert (demand.limit_micros, demand.memory) == (MICROS, Memory(micros=300_000))


def test_memory_alone_is_enough() -> None:
    demand = the_demand(a_pod(ours(memory="4Gi")))
    assert (demand.request_micros, demand.memory) == (0, Memory(bytes=4 * GI))


@pytest.mark.parametrize(
    "pod",
    [
        a_pod(),
        a_pod({"kubeshare/sched_affinity": "red"}),
        a_pod(ours(affinity="red", model="V100")),
        a_pod(ours(request="")),
        a_pod(gpu_limit="0"),
        {},
    ],
)
def test_a_pod_that_asks_for_nothing_is_nobodys_business(pod: dict[str, Any]) -> None:
    assert demand_of(pod) is None


@pytest.mark.parametrize(
    ("pod", "field", "words"),
    [
        (a_pod(ours(request="17")), "kubeshare.nthu/request", "more than 16 GPUs"),
        (a_pod(ours(request="nan")), "kubeshare.nthu/request", "not a number"),
        (a_pod(ours(request="0.6", limit="0.5")), "kubeshare.nthu/request", "more than the limit"),
        (a_pod(ours(request="0.6", count="two")), "kubeshare.nthu/count", "not a number of GPUs"),
        (a_pod(ours(request="0.6", count="٣")), "kubeshare.nthu/count", "not a number of GPUs"),
        (a_pod(ours(request="0.6", count="9" * 5000)), "kubeshare.nthu/count", "not a number of"),
        (a_pod(ours(memory="-1")), "kubeshare.nthu/memory", "negative"),
        (a_pod(ours(memory="1Gi", id="a\nb")), "kubeshare.nthu/id", "printable"),
        (a_pod(PUBLISHED | ours(request="0.2")), "kubeshare.nthu/request", "differs from 0.3"),
        (a_pod({"kubeshare/gpu_request": "0.3"}), "kubeshare/gpu_limit", "given together"),
        (a_pod(gpu_mem="1"), "sharedgpu/gpu_limit", "missing"),
        (
            a_pod(ours(request="0.2"), gpu_limit="0.5", gpu_mem="1"),
            "sharedgpu/gpu_limit",
            "give one of them",
        ),
    ],
)
def test_a_bad_value_is_refused_by_the_name_that_its_author_knows(
    pod: dict[str, Any], field: str, words: str
) -> None:
    error = refusal(pod)
    assert error.field == field
    assert words in error.message


def test_the_constraints_of_annotations_bind_beside_labels_of_the_second_version() -> None:
    published = {
        "kubeshare/sched_affinity": "red",
        "kubeshare/sched_anti-affinity": "green",
        "kubeshare/sched_exclusion": "blue",
    }
    own = ours(affinity="red", antiAffinity="green", exclusion="blue")
    for annotations in (published, own, published | own):
        demand = the_demand(a_pod(annotations, gpu_limit="1.0", gpu_request="0.5"))
        assert (demand.affinity, demand.anti_affinity, demand.exclusion) == ("red", "green", "blue")
        assert demand.request_micros == MICROS // 2


def test_a_model_may_be_given_by_annotation_or_label() -> None:
    labels = {"gpu_limit": "1.0", "gpu_request": "0.5"}
    assert the_demand(a_pod(ours(model="V100"), **labels)).model == "V100"
    assert the_demand(a_pod(ours(model="V 100"), **labels, gpu_model="V-100")).model == "V 100"
    error = refusal(a_pod(ours(model="V100"), **labels, gpu_model="A100"))
    assert error.field == "kubeshare.nthu/model"
    assert "V100 differs from A100 in sharedgpu/gpu_model" in error.message


def test_constraints_beside_labels_are_refused_by_name_if_they_differ_or_are_too_long() -> None:
    labels = {"gpu_limit": "1.0", "gpu_request": "0.5"}
    differing = ours(affinity="red") | {"kubeshare/sched_affinity": "blue"}
    assert refusal(a_pod(differing, **labels)).field == "kubeshare.nthu/affinity"
    assert refusal(a_pod(ours(exclusion="x" * 254), **labels)).field == "kubeshare.nthu/exclusion"
