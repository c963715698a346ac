"""What the ``sharedgpu/…`` labels of plain pods ask for."""

from typing import Any

import pytest

from kubeshare.core.errors import InvalidValueError
from kubeshare.core.gang import Gang
from kubeshare.core.units import MICROS, Memory
from kubeshare.dialects.priority_and_gang import standing_of
from kubeshare.dialects.sharedgpu import LabelledDemand, read


def pod(**labels: str) -> dict[str, Any]:
    """A pod with these labels, named without their prefix."""
    written = {f"sharedgpu/{name}": value for name, value in labels.items()}
    return {"metadata": {"name": "a", "namespace": "team", "uid": "u", "labels": written}}


def asked(**labels: str) -> LabelledDemand:
    found = read(pod(**labels))
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("limit", "request_", "request_micros", "limit_micros"),
    [
        ("1.0", "0.5", 500_000, MICROS),  # conformance case 60: in that order
        ("0.5", "0.5", 500_000, 500_000),
        ("00.5", "0.1", 100_000, 500_000),
        ("1.0", "0.333333", 333_333, MICROS),
        (".5", ".25", 250_000, 500_000),
    ],
)
def test_a_share_is_guaranteed_its_request_and_kept_to_its_limit(
    limit: str, request_: str, request_micros: int, limit_micros: int
) -> None:
    demand = asked(gpu_limit=limit, gpu_request=request_).demand
    assert (demand.request_micros, demand.limit_micros) == (request_micros, limit_micros)
    assert demand.count == 1
    assert demand.memory == Memory(micros=request_micros)
    assert (demand.uid, demand.name, demand.namespace) == ("u", "a", "team")


@pytest.mark.parametrize(
    ("memory", "amount"), [("1073741824", 1 << 30), ("1", 1), ("4Gi", 4 << 30)]
)
def test_memory_is_bytes_however_few(memory: str, amount: int) -> None:
    demand = asked(gpu_limit="1", gpu_mem=memory).demand
    assert (demand.request_micros, demand.memory) == (0, Memory(bytes=amount))


@pytest.mark.parametrize(("limit", "count"), [("2", 2), ("2.0", 2), ("10.0", 10), ("12", 12)])
def test_more_than_one_is_so_many_whole_gpus(limit: str, count: int) -> None:
    demand = asked(gpu_limit=limit, gpu_request=limit, gpu_mem="5").demand
    assert (demand.request_micros, demand.limit_micros, demand.count) == (MICROS, MICROS, count)
    assert demand.memory == Memory(micros=MICROS)


@pytest.mark.parametrize(
    "labels",
    [
        {},
        {"gpu_limit": "0", "gpu_request": "0.0"},
        {"gpu_limit": "0.0"},
        {"gpu_limit": ""},
        {"priority": "100", "group_name": "g"},
    ],
)
def test_a_pod_that_asks_for_no_gpu_is_a_regular_one(labels: dict[str, str]) -> None:
    assert read(pod(**labels)) is None


def test_a_pod_without_labels_is_a_regular_one() -> None:
    assert read({"metadata": {"name": "a"}}) is None


@pytest.mark.parametrize(
    ("labels", "field", "why"),
    [
        ({"gpu_request": "0.5"}, "gpu_limit", "missing beside sharedgpu/gpu_request"),
        ({"gpu_mem": "5"}, "gpu_limit", "missing beside sharedgpu/gpu_mem"),
        ({"gpu_limit": "1.5", "gpu_request": "1.5"}, "gpu_limit", "not a whole number of them"),
        ({"gpu_limit": "17", "gpu_request": "17"}, "gpu_limit", "17 is more than 16 GPUs"),
        ({"gpu_limit": "half"}, "gpu_limit", "half"),
        ({"gpu_limit": "-1"}, "gpu_limit", "-1"),
        ({"gpu_limit": "NaN"}, "gpu_limit", "NaN"),
        ({"gpu_limit": "0.5", "gpu_request": "0.6"}, "gpu_request", "0.6 is more than 0.5"),
        ({"gpu_limit": "0", "gpu_request": "0.1"}, "gpu_request", "0.1 is more than 0"),
        ({"gpu_limit": "1", "gpu_request": "2"}, "gpu_request", "2 is more than 1"),
        ({"gpu_limit": "2.0"}, "gpu_request", "nothing differs from 2.0"),
        ({"gpu_limit": "2", "gpu_request": "1"}, "gpu_request", "1 differs from 2"),
        ({"gpu_limit": "1", "gpu_mem": "0.5"}, "gpu_mem", "0.5 is not a whole number"),
        ({"gpu_limit": "1", "gpu_mem": "-1"}, "gpu_mem", "-1"),
        ({"gpu_limit": "1"}, "gpu_mem", "nothing runs on a GPU without"),
        ({"gpu_limit": "1", "gpu_request": "0.5", "gpu_mem": "0"}, "gpu_mem", "asks for no memory"),
        (
            {"gpu_limit": "1", "gpu_mem": "1", "priority": "101"},
            "priority",
            "101 is not from -1 to 100",
        ),
        (
            {"gpu_limit": "1", "gpu_mem": "1", "priority": "-2"},
            "priority",
            "-2 is not from -1 to 100",
        ),
        (
            {"gpu_limit": "1", "gpu_mem": "1", "priority": "high"},
            "priority",
            "high is not a whole number",
        ),
    ],
)
def test_what_cannot_be_is_refused_by_the_name_of_its_label(
    labels: dict[str, str], field: str, why: str
) -> None:
    with pytest.raises(InvalidValueError) as refused:
        read(pod(**labels))
    assert refused.value.field == f"sharedgpu/{field}"
    assert why in refused.value.message


@pytest.mark.parametrize(("text", "priority"), [("", 0), ("-1", -1), ("0", 0), ("100", 100)])
def test_the_priority_is_a_number_from_minus_one_to_a_hundred(text: str, priority: int) -> None:
    assert asked(gpu_limit="1", gpu_mem="1", priority=text).standing.priority == priority


@pytest.mark.parametrize(
    ("written", "model"),
    [
        ("NVIDIA-GeForce-GTX-1080", "NVIDIA GeForce GTX 1080"),
        ("Tesla-V100-SXM2-16GB", "Tesla V100-SXM2-16GB"),
        ("A100", "A100"),
        ("", ""),
    ],
)
def test_a_model_has_dashes_for_the_spaces_of_its_name(written: str, model: str) -> None:
    known = ["NVIDIA GeForce GTX 1080", "Tesla V100-SXM2-16GB"]
    found = read(pod(gpu_limit="1", gpu_mem="1", gpu_model=written), known)
    assert found is not None
    assert found.demand.model == model


@pytest.mark.parametrize(
    ("headcount", "threshold", "needed"),
    [("5", "0.2", 1), ("5", "0.5", 3), ("4", "1.0", 4), ("3", "0.333", 1), ("1", "0.5", 1)],
)
def test_a_group_needs_its_threshold_of_the_headcount_halves_rounded_up(
    headcount: str, threshold: str, needed: int
) -> None:
    found = asked(
        gpu_limit="1",
        gpu_mem="1",
        group_name="g",
        group_headcount=headcount,
        group_threshold=threshold,
    )
    assert found.standing.gang == Gang(name="g", min_available=needed, headcount=int(headcount))


@pytest.mark.parametrize(
    "labels",
    [
        {"group_name": "g"},
        {"group_name": "g", "group_headcount": "5"},
        {"group_name": "g", "group_threshold": "0.5"},
        {"group_headcount": "5", "group_threshold": "0.5"},
        {"group_name": "g", "group_headcount": "4", "group_threshold": "0.1"},
        {"group_name": "g", "min_available": "0"},
    ],
)
def test_less_than_all_of_a_group_is_no_group(labels: dict[str, str]) -> None:
    assert asked(gpu_limit="1", gpu_mem="1", **labels).standing.gang is None


def test_how_many_must_be_there_may_be_said_itself() -> None:
    found = asked(gpu_limit="1", gpu_mem="1", group_name="g", min_available="3")
    assert found.standing.gang == Gang(name="g", min_available=3)


def test_both_ways_to_say_it_may_be_used_when_they_agree() -> None:
    labels = {"group_headcount": "5", "group_threshold": "0.5", "min_available": "3"}
    found = asked(gpu_limit="1", gpu_mem="1", group_name="g", **labels)
    assert found.standing.gang == Gang(name="g", min_available=3, headcount=5)


@pytest.mark.parametrize(
    ("labels", "field", "why"),
    [
        (
            {"group_headcount": "5", "group_threshold": "1.5"},
            "group_threshold",
            "8 of 5 pods can never be there",
        ),
        ({"group_headcount": "0", "group_threshold": "1"}, "group_headcount", "less than one"),
        ({"group_headcount": "5", "group_threshold": "0"}, "group_threshold", "not above 0"),
        ({"group_headcount": "x", "group_threshold": "1"}, "group_headcount", "x"),
        ({"group_headcount": "2", "min_available": "3"}, "min_available", "3 of 2 pods"),
        (
            {"group_headcount": "5", "group_threshold": "0.5", "min_available": "2"},
            "min_available",
            "2 differs from 3",
        ),
    ],
)
def test_a_group_that_can_never_start_is_refused(
    labels: dict[str, str], field: str, why: str
) -> None:
    with pytest.raises(InvalidValueError) as refused:
        read(pod(gpu_limit="1", gpu_mem="1", group_name="g", **labels))
    assert refused.value.field == f"sharedgpu/{field}"
    assert why in refused.value.message


@pytest.mark.parametrize(("text", "may"), [(None, False), ("false", False), ("true", True)])
def test_only_who_says_so_may_be_preempted(text: str | None, may: bool) -> None:
    annotations = {} if text is None else {"kubeshare.nthu/preemptible": text}
    assert standing_of({"metadata": {"annotations": annotations}}).preemptible is may


def test_what_is_neither_true_nor_false_is_refused_by_name() -> None:
    annotated = {"metadata": {"annotations": {"kubeshare.nthu/preemptible": "yes"}}}
    with pytest.raises(InvalidValueError, match="'yes' is neither true nor false"):
        standing_of(annotated)
