"""What cannot be placed says why, with numbers, and is placed as soon as it can be."""

import pytest

from e2e.space import REST, Space
from e2e.stage import Stage, eventually
from kubeshare.api.types.constants import VGPU_RESOURCE
from kubeshare.lab.errors import LabError

pytestmark = pytest.mark.lab

GPUS = 4


def test_memory_that_no_gpu_has_is_refused_with_the_numbers(stage: Stage, space: Space) -> None:
    space.share("huge", {"request": "0.3", "memory": "17Gi"})

    said = space.waits("huge", "NeverFits")

    assert "memory: 17Gi asked, and the largest GPU has 16Gi" in said
    assert "17Gi asked, and the largest GPU has 16Gi" in space.event("huge", "NeverFits")
    assert space.find_pod("huge") is None
    assert stage.vgpus() == []


def test_the_published_spelling_reads_half_as_half_of_the_gpu(stage: Stage, space: Space) -> None:
    annotations = {
        "kubeshare/gpu_request": "0.5",
        "kubeshare/gpu_limit": "1.0",
        "kubeshare/gpu_mem": "0.5",
    }
    space.share("half", {}, REST, annotations=annotations)

    place = space.ready("half")

    holder = stage.holders(place.gpuid)["half"]
    assert (holder["requestMicros"], holder["memoryBytes"]) == (500_000, 8 << 30)


def test_what_finds_no_room_says_why_for_each_gpu_and_gets_the_first_that_is_free(
    stage: Stage, space: Space
) -> None:
    names = [f"full-{number}" for number in range(GPUS)]
    for name in names:
        space.share(name, {"request": "0.6"}, REST)
    places = [space.ready(name) for name in names]
    assert len({place.uuid for place in places}) == GPUS

    space.share("late", {"request": "0.6"}, REST)
    said = space.waits("late", "NoRoom")
    for place in places:
        assert f"{place.node}/{place.gpuid}: compute 0.4 left, 0.6 asked" in said
    assert "It is tried again when something changes" in space.event("late", "NoRoom")

    space.delete("sharepod", names[2])
    eventually(
        lambda: space.condition("late", "Scheduled").get("status") == "True",
        "room to be noticed",
        explain=lambda: space.describe("late"),
    )
    assert space.ready("late").uuid == places[2].uuid


def test_two_that_name_the_same_gpuid_share_that_gpu(stage: Stage, space: Space) -> None:
    annotations = {
        "kubeshare/gpu_request": "0.4",
        "kubeshare/gpu_limit": "1.0",
        "kubeshare/gpu_mem": "1073741824",
        "kubeshare/GPUID": "abcde",
    }
    for name in ("one", "two"):
        space.share(name, {}, REST, annotations=annotations, nodeName="node-2")

    places = {space.ready(name) for name in ("one", "two")}

    (place,) = places
    assert (place.gpuid, place.node) == ("abcde", "node-2")
    assert set(stage.holders("abcde")) == {"one", "two"}
    assert space.condition("one", "Scheduled")["reason"] == "Given"


def test_a_pod_that_asks_for_a_part_without_saying_how_much_is_refused(shared_space: Space) -> None:
    with pytest.raises(LabError, match="says how much it needs"):
        shared_space.pod("asks", {VGPU_RESOURCE: "1"}, REST)
