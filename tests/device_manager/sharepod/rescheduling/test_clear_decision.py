"""A cleared decision leaves what the author has given."""

from typing import Any

import pytest

from fakes import manifests
from kubeshare.api.types.v1 import SHAREPODS, ExcludedNode
from kubeshare.device_manager.sharepod.rescheduling.reschedule import clear_decision
from kubeshare.kube.client.errors import ConflictError
from kubeshare.kube.resources import Raw
from kubeshare.simulator.control import FakeApiServer, run_virtual

GPUID = "kubeshare/GPUID"
EXCLUDED = ExcludedNode(node="n1", until="2026-01-01T00:00:00Z", message="full")


def seeded(gpu: Raw, annotations: dict[str, str]) -> tuple[FakeApiServer, Raw]:
    server = FakeApiServer()
    metadata = {"namespace": "ns", "annotations": annotations}
    made = manifests.sharepod("a", {"request": "1", **gpu}, metadata=metadata, nodeName="n1")
    return server, server.seed(SHAREPODS, made)


def cleared(gpu: Raw, annotations: dict[str, str], *set_aside: ExcludedNode) -> Raw:
    server, raw = seeded(gpu, annotations)
    run_virtual(clear_decision(server.client("test"), raw, set_aside))
    stored = server.stored(SHAREPODS, "a", "ns")
    assert stored is not None
    return dict(stored)


@pytest.mark.parametrize(
    ("gpu", "left", "node", "annotation"),
    [
        ({"id": "x", "attempt": 2}, {"attempt": 2}, None, False),
        ({"ids": ["x", "y"], "attempt": 1}, {"attempt": 1}, None, False),
        ({"id": "x", "idGiven": True}, {"id": "x", "idGiven": True}, None, True),
        ({"ids": ["x"], "idGiven": True}, {"ids": ["x"], "idGiven": True}, None, True),
        ({"id": "x", "nodeGiven": True}, {"nodeGiven": True}, "n1", False),
    ],
)
def test_it_removes_what_the_scheduler_has_written(
    gpu: Raw, left: Raw, node: str | None, annotation: bool
) -> None:
    sharepod = cleared(gpu, {GPUID: "x", "mine": "kept"})
    assert sharepod["spec"]["gpu"] == {"request": "1", **left}
    assert sharepod["spec"].get("nodeName") == node
    assert (GPUID in sharepod["metadata"]["annotations"]) == annotation
    assert sharepod["metadata"]["annotations"]["mine"] == "kept"


def test_exclusions_are_recorded_and_otherwise_left() -> None:
    present: dict[str, Any] = {"setAside": [{"node": "n2", "until": "u"}]}
    assert cleared({"id": "x"} | present, {})["spec"]["gpu"]["setAside"] == present["setAside"]
    [entry] = cleared({"id": "x"} | present, {}, EXCLUDED)["spec"]["gpu"]["setAside"]
    assert (entry["node"], entry["until"], entry["message"]) == ("n1", EXCLUDED.until, "full")


def test_a_sharepod_that_has_changed_is_left_alone() -> None:
    server, raw = seeded({"id": "x"}, {})
    server.change(SHAREPODS, "a", "ns", lambda obj: obj["spec"]["gpu"].update(request="0.5"))
    with pytest.raises(ConflictError):
        run_virtual(clear_decision(server.client("test"), raw))
