"""gpushare's amounts: memory in units, compute that follows it."""

from typing import Any

import pytest

from kubeshare.core.errors import InvalidValueError
from kubeshare.core.units import GI, MI, Memory
from kubeshare.dialects.gpushare import amounts, demand_of


def test_memory_is_units_on_each_gpu_and_compute_follows() -> None:
    assert amounts(8138, 2) == {
        "request_micros": 0,
        "limit_micros": 1_000_000,
        "memory": Memory(bytes=8138 * MI),
        "count": 2,
        "proportional": True,
    }
    assert amounts("3", unit=GI)["memory"] == Memory(bytes=3 * GI)


@pytest.mark.parametrize(("text", "units"), [("1k", 1000), ("2e3", 2000), ("1Ki", 1024), (7, 7)])
def test_any_spelling_of_a_quantity_is_its_integer(text: object, units: int) -> None:
    assert amounts(text)["memory"] == Memory(bytes=units * MI)


@pytest.mark.parametrize(
    ("memory", "count", "field", "words"),
    [
        (None, 1, "gpuMem", "asks for no GPU memory"),
        (0, 1, "gpuMem", "asks for no GPU memory"),
        (-1, 1, "gpuMem", "-1 is negative"),
        ("0.5", 1, "gpuMem", "0.5 is not a whole number"),
        ("500m", 1, "gpuMem", "500m is not a whole number"),
        ("lots", 1, "gpuMem", '"lots" is not a number'),
        (True, 1, "gpuMem", "True is not a number"),
        ("8E", 1, "gpuMem", "past the largest size"),
        (1, 0, "gpuCount", "0 is not a number of GPUs from 1 to 1024"),
        (1, 1025, "gpuCount", "1025 is not a number of GPUs from 1 to 1024"),
        (1, "1.5", "gpuCount", "1.5 is not a whole number"),
    ],
)
def test_what_cannot_be_asked_is_refused_by_its_field(
    memory: object, count: object, field: str, words: str
) -> None:
    with pytest.raises(InvalidValueError) as caught:
        amounts(memory, count)
    assert caught.value.field == field
    assert words in caught.value.message


def test_the_names_are_those_of_the_manifest() -> None:
    with pytest.raises(InvalidValueError) as caught:
        amounts(0, names=("aliyun.com/gpu-mem", "aliyun.com/gpu-count"))
    assert caught.value.field == "aliyun.com/gpu-mem"


def pod(*limits: object, first: tuple[object, ...] = (), **metadata: Any) -> dict[str, Any]:
    """A pod whose containers and init containers have these limits; None for no limit."""

    def containers(prefix: str, amounts: tuple[object, ...]) -> list[dict[str, Any]]:
        return [
            {"name": f"{prefix}{number}"}
            | ({} if each is None else {"resources": {"limits": {"aliyun.com/gpu-mem": each}}})
            for number, each in enumerate(amounts)
        ]

    named = {"name": "p", "namespace": "ns", "uid": "u"} | metadata
    spec = {"containers": containers("c", limits), "initContainers": containers("i", first)}
    return {"metadata": named, "spec": spec}


@pytest.mark.parametrize(
    ("asked", "units"),
    [
        (pod("3"), 3),
        (pod("1", None, "2"), 3),
        (pod("1", first=("2", "5")), 5),
        (pod("3", "3", first=("5",)), 6),
        (pod(None, first=("2",)), 2),
        (pod("0", "2"), 2),
    ],
)
def test_a_pod_asks_for_the_most_that_runs_at_one_time(asked: Any, units: int) -> None:
    demand = demand_of(asked, GI)
    assert demand is not None
    assert (demand.uid, demand.name, demand.namespace) == ("u", "p", "ns")
    assert (demand.memory, demand.count) == (Memory(bytes=units * GI), 1)
    assert (demand.proportional, demand.limit_micros) == (True, 1_000_000)


def asks(resources: dict[str, Any]) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "c", "resources": resources}]}}


@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"metadata": {}, "spec": {"containers": None}},
        pod(None),
        asks({"limits": {"aliyun.com/gpu-count": 1}}),
        asks({"requests": {"aliyun.com/gpu-mem": 1}}),
    ],
)
def test_other_pods_ask_for_nothing(asked: Any) -> None:
    assert demand_of(asked, MI) is None


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (pod("0"), "aliyun.com/gpu-mem: asks for no GPU memory"),
        (pod("1", "1.5"), "aliyun.com/gpu-mem of container c1: 1.5 is not a whole number"),
        (pod("-1", "2"), "aliyun.com/gpu-mem of container c0: -1 is negative"),
        (pod("8E"), "aliyun.com/gpu-mem: .* is past the largest size"),
        ({"spec": {"containers": "c"}}, "spec.containers: is not as Kubernetes has it"),
        ({"spec": []}, "spec"),
    ],
)
def test_a_pod_that_cannot_be_read_is_refused_by_the_name_of_the_resource(
    asked: Any, words: str
) -> None:
    with pytest.raises(InvalidValueError, match=words):
        demand_of(asked, MI)
