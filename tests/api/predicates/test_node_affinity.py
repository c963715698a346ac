"""A pod's node affinity, as kube-scheduler understands it."""

from typing import Any

import pytest

from kubeshare.api.predicates.node_affinity import meets
from kubeshare.api.types.core_v1 import Node
from kubeshare.kube.meta import ObjectMeta

NODE = Node(metadata=ObjectMeta(name="n1", labels={"zone": "a", "gpus": "4"}))


def requires(*terms: dict[str, Any]) -> dict[str, Any]:
    required = {"nodeSelectorTerms": list(terms)}
    return {
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    }


def label(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


def name(operator: str, *values: str) -> dict[str, Any]:
    found = {"key": "metadata.name", "operator": operator, "values": list(values)}
    return {"matchFields": [found]}


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"affinity": {"podAffinity": {}}},
        requires(label("zone", "In", "a", "b")),
        requires(label("zone", "NotIn", "b")),
        requires(label("absent", "NotIn", "b")),
        requires(label("zone", "Exists")),
        requires(label("absent", "DoesNotExist")),
        requires(label("gpus", "Gt", "3")),
        requires(label("gpus", "Lt", "5")),
        requires(name("In", "n1")),
        requires(label("zone", "In", "b"), label("zone", "In", "a")),
    ],
)
def test_a_node_meets_what_is_required(spec: dict[str, Any]) -> None:
    assert meets(NODE, spec)


@pytest.mark.parametrize(
    "spec",
    [
        requires(),
        requires({}),
        requires(label("zone", "In", "b")),
        requires(label("zone", "NotIn", "a")),
        requires(label("absent", "Exists")),
        requires(label("zone", "DoesNotExist")),
        requires(label("gpus", "Gt", "4")),
        requires(label("zone", "Lt", "5")),
        requires(label("zone", "Like", "a")),
        requires(name("NotIn", "n1")),
        requires(label("zone", "In", "a") | name("In", "n2")),
    ],
)
def test_a_node_does_not_meet_what_is_required(spec: dict[str, Any]) -> None:
    assert not meets(NODE, spec)
