"""gpushare's amounts: memory in units, compute that follows it."""

from typing import Any

import pytest

from dialects.answers import answers_of
from kubeshare.core.demand import Demand
from kubeshare.core.errors import InvalidValueError
from kubeshare.core.units import GI, MI, Memory
from kubeshare.dialects.gpushare import GPU_COUNT, GPU_MEMORY, amounts
from kubeshare.dialects.gpushare import demand_of as read
from kubeshare.dialects.pod import demand_of

the_demand, refusal = answers_of(demand_of)


def our(field: str, value: str) -> dict[str, str]:
    return {f"kubeshare.nthu/{field}": value}


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


# Pods


def a_pod(
    *units: object,
    init: tuple[object, ...] = (),
    annotations: dict[str, str] | None = None,
    labels: dict[str, str] | None = None,
) -> dict[str, Any]:
    """A pod whose containers request these units; None is a container without the resource."""
    metadata: dict[str, Any] = {"name": "a", "namespace": "team", "uid": "1-2"}
    metadata |= {"annotations": annotations or {}, "labels": labels or {}}
    spec = {"containers": containers(units), "initContainers": containers(init)}
    return {"metadata": metadata, "spec": spec}


def containers(units: tuple[object, ...]) -> list[dict[str, Any]]:
    found = []
    for index, each in enumerate(units):
        container: dict[str, Any] = {"name": f"c{index}"}
        amount = each
        if isinstance(each, tuple):  # a sidecar
            (amount,) = each
            container["restartPolicy"] = "Always"
        if amount is not None:
            container["resources"] = {"limits": {GPU_MEMORY: amount, "cpu": "1"}}
        found.append(container)
    return found


def test_a_pod_is_a_demand_of_the_family_whose_compute_follows_the_memory() -> None:
    assert the_demand(a_pod("3")) == Demand(
        uid="1-2",
        name="a",
        namespace="team",
        memory=Memory(bytes=3 * GI),
        proportional=True,
        family="gpushare",
    )


def test_a_pod_without_the_resource_asks_for_nothing() -> None:
    assert demand_of(a_pod(None)) is None
    only_count = a_pod(None)
    only_count["spec"]["containers"][0]["resources"] = {"limits": {GPU_COUNT: "2"}}
    assert demand_of(only_count) is None


def test_the_unit_is_that_of_the_cluster() -> None:
    found = demand_of(a_pod("8138"), unit=MI)
    assert found is not None
    assert found.memory == Memory(bytes=8138 * MI)


@pytest.mark.parametrize(
    ("units", "init", "sum_of_them"),
    [
        (("1", "2"), (), 3),
        (("1", None, "2"), (), 3),
        (("1", "2"), ("5",), 5),
        (("1", "2"), ("2",), 3),
        ((None,), ("4",), 4),
        (("1",), (("2",), "4"), 6),
        (("4",), (("2",), "1"), 6),
        (("4", "0"), (), 4),
    ],
)
def test_the_containers_share_one_gpu(
    units: tuple[object, ...], init: tuple[object, ...], sum_of_them: int
) -> None:
    found = the_demand(a_pod(*units, init=init))
    assert (found.memory, found.count) == (Memory(bytes=sum_of_them * GI), 1)


def test_a_label_divides_the_memory_among_gpus() -> None:
    found = the_demand(a_pod("6", "2", labels={GPU_COUNT: "4"}))
    assert (found.memory, found.count) == (Memory(bytes=2 * GI), 4)


def test_annotations_give_the_compute_and_the_constraints() -> None:
    ours = {"request": ".2", "limit": ".5", "limitAlone": ".9", "affinity": "red", "model": "V100"}
    found = the_demand(a_pod("3", annotations={f"kubeshare.nthu/{k}": v for k, v in ours.items()}))
    assert (found.request_micros, found.limit_micros, found.proportional) == (200000, 500000, False)
    assert (found.limit_alone_micros, found.affinity, found.model) == (900000, "red", "V100")


@pytest.mark.parametrize("ours", [{}, {"kubeshare.nthu/request": ".2"}])
def test_an_annotation_makes_it_latency_sensitive(ours: dict[str, str]) -> None:
    asked = ours | {"kubeshare.nthu/latencySensitive": "true"}
    assert the_demand(a_pod("3", annotations=asked)).latency_sensitive
    assert not the_demand(a_pod("3", annotations=ours)).latency_sensitive


def test_annotations_that_describe_a_placement_are_never_read() -> None:
    forged = {"ALIYUN_COM_GPU_MEM_IDX": "3", "ALIYUN_COM_GPU_MEM_POD": "1"}
    assert the_demand(a_pod("3", annotations=forged)) == the_demand(a_pod("3"))


@pytest.mark.parametrize(
    ("pod", "field", "words"),
    [
        (a_pod("0"), GPU_MEMORY, "asks for no GPU memory"),
        (a_pod("-1"), GPU_MEMORY + " of container c0", "-1 is negative"),
        (a_pod("1.5"), GPU_MEMORY + " of container c0", "1.5 is not a whole number"),
        (a_pod("2", "500m"), GPU_MEMORY + " of container c1", "500m is not a whole number"),
        (a_pod("4GB"), GPU_MEMORY + " of container c0", '"4GB" is not a number'),
        (a_pod("10G"), GPU_MEMORY, "past the largest size"),
        (a_pod("3", labels={GPU_COUNT: "2"}), GPU_COUNT, "no whole number on each of 2 GPUs"),
        (a_pod("3", labels={GPU_COUNT: "0"}), GPU_COUNT, "0 is not a number of GPUs"),
        (a_pod("3", labels={GPU_COUNT: "all"}), GPU_COUNT, '"all" is not a number'),
        (a_pod("3", annotations=our("limit", ".5")), "kubeshare.nthu/limit", "needs"),
        (a_pod("3", annotations=our("request", "2")), "kubeshare.nthu/request", "more than 1"),
        (
            a_pod("3", annotations=our("request", ".5") | our("limit", ".4")),
            "kubeshare.nthu/request",
            "is more than the limit 0.4",
        ),
        (a_pod("3", annotations=our("memory", "1Gi")), "kubeshare.nthu/memory", "give one of them"),
        (a_pod("3", annotations=our("count", "2")), "kubeshare.nthu/count", "give one of them"),
        (a_pod("3", annotations=our("share.a", "request=1")), "kubeshare.nthu/share.a", "give one"),
        (a_pod("3", annotations={"kubeshare/GPUID": "x"}), "kubeshare/GPUID", "give one of them"),
        (a_pod("3", labels={"sharedgpu/gpu_limit": "1"}), "sharedgpu/gpu_limit", "give one of"),
    ],
)
def test_what_a_pod_cannot_ask_is_refused_by_the_name_of_the_field(
    pod: dict[str, Any], field: str, words: str
) -> None:
    error = refusal(pod)
    assert error.field == field
    assert words in error.message


def limited(*limits: object, first: tuple[object, ...] = (), **metadata: Any) -> dict[str, Any]:
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
        (limited("3"), 3),
        (limited("1", None, "2"), 3),
        (limited("1", first=("2", "5")), 5),
        (limited("3", "3", first=("5",)), 6),
        (limited(None, first=("2",)), 2),
        (limited("0", "2"), 2),
    ],
)
def test_a_pod_asks_for_the_most_that_runs_at_one_time(asked: Any, units: int) -> None:
    demand = read(asked, GI)
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
        limited(None),
        asks({"limits": {"aliyun.com/gpu-count": 1}}),
        asks({"requests": {"aliyun.com/gpu-mem": 1}}),
    ],
)
def test_other_pods_ask_for_nothing(asked: Any) -> None:
    assert read(asked, MI) is None


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (limited("0"), "aliyun.com/gpu-mem: asks for no GPU memory"),
        (limited("1", "1.5"), "aliyun.com/gpu-mem of container c1: 1.5 is not a whole number"),
        (limited("-1", "2"), "aliyun.com/gpu-mem of container c0: -1 is negative"),
        (limited("8E"), "aliyun.com/gpu-mem: .* is past the largest size"),
        ({"spec": {"containers": "c"}}, "spec.containers: is not as Kubernetes has it"),
        ({"spec": []}, "spec"),
    ],
)
def test_a_pod_that_cannot_be_read_is_refused_by_the_name_of_the_resource(
    asked: Any, words: str
) -> None:
    with pytest.raises(InvalidValueError, match=words):
        read(asked, MI)
