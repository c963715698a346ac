"""Demands are parsed once per generation, and again when the object asks for something else."""

from typing import Any

import pytest

from kubeshare.api import demands
from kubeshare.api.demands import Demands
from kubeshare.core.errors import InvalidValueError
from kubeshare.dialects import sharepod

Raw = dict[str, Any]


def a_sharepod(generation: int = 1, request: str = "0.5", **annotations: str) -> Raw:
    return {
        "metadata": {
            "uid": "u",
            "name": "p",
            "namespace": "d",
            "generation": generation,
            "annotations": annotations,
        },
        "spec": {"gpu": {"request": request}, "containers": [{"name": "main"}]},
    }


@pytest.fixture
def parses(monkeypatch: pytest.MonkeyPatch) -> list[Raw]:
    """The manifests that were parsed."""
    parsed: list[Raw] = []
    parse = sharepod.demand_of

    def count(raw: Raw) -> object:
        parsed.append(raw)
        return parse(raw)

    monkeypatch.setattr(sharepod, "demand_of", count)
    return parsed


def test_a_generation_is_parsed_once(parses: list[Raw]) -> None:
    known = Demands()
    first = known.of_sharepod(a_sharepod())
    assert first is not None
    assert first.request_micros == 500_000
    assert known.of_sharepod(a_sharepod() | {"status": {"phase": "Running"}}) is first
    assert len(parses) == 1


def test_a_new_generation_or_annotation_is_parsed_again(parses: list[Raw]) -> None:
    known = Demands()
    known.of_sharepod(a_sharepod())
    later = known.of_sharepod(a_sharepod(2, "0.7"))
    assert later is not None
    assert later.request_micros == 700_000
    labelled = known.of_sharepod(a_sharepod(2, "0.7", **{"kubeshare/sched_affinity": "red"}))
    assert labelled is not None
    assert labelled.affinity == "red"
    assert len(parses) == 3


def test_an_error_is_kept_like_a_demand(parses: list[Raw]) -> None:
    known = Demands()
    for _ in range(2):
        with pytest.raises(InvalidValueError, match="request"):
            known.of_sharepod(a_sharepod(request="much"))
    assert len(parses) == 1
    assert known.of_sharepod(a_sharepod(2)) is not None


def test_an_object_without_a_generation_is_parsed_each_time(parses: list[Raw]) -> None:
    known = Demands()
    manifest = a_sharepod()
    del manifest["metadata"]["generation"]
    known.of_sharepod(manifest)
    known.of_sharepod(manifest)
    assert len(parses) == 2


def test_the_least_recently_used_demand_is_dropped_first(
    parses: list[Raw], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demands, "MAX_OBJECTS", 2)
    known = Demands()

    def ask(uid: str) -> None:
        manifest = a_sharepod()
        manifest["metadata"]["uid"] = uid
        known.of_sharepod(manifest)

    for uid in ("a", "b", "a", "c", "a"):
        ask(uid)
    assert [raw["metadata"]["uid"] for raw in parses] == ["a", "b", "c"]
    ask("b")
    assert len(parses) == 4


def test_a_pod_is_parsed_again_when_the_models_of_the_cluster_change() -> None:
    labels = {"sharedgpu/gpu_model": "Tesla-V100"}
    limits = {"sharedgpu/gpu_request": "0.5", "sharedgpu/gpu_limit": "1.0"}
    pod = a_sharepod()
    pod["metadata"]["labels"] = labels | limits
    known = Demands()
    first = known.of_pod(pod, ["Tesla V100"])
    assert first is not None
    assert first.model == "Tesla V100"
    second = known.of_pod(pod, ["Tesla-V100"])
    assert second is not None
    assert second.model == "Tesla-V100"


def test_whole_gpus_and_a_limit_alone_that_is_the_limit_are_as_before() -> None:
    sharepod = a_sharepod(request="2")
    demand = Demands().of_sharepod(sharepod)
    assert demand is not None
    assert (demand.count, demand.request_micros) == (2, 1_000_000)
    sharepod["spec"]["gpu"] = {"request": "0.5", "limit": "0.6", "limitAlone": "0.6"}
    assert Demands().of_sharepod(sharepod) is not None
