"""The manifests that KubeShare's users have, and what each must come to."""

from pathlib import Path

import pytest

from e2e.space import Space
from e2e.stage import Place, Raw, Stage, eventually

pytestmark = pytest.mark.lab

PUBLISHED = Path(__file__).parent / "published"
THEIR_NODE, A_NODE = "node01", "node-1"


def apply(space: Space, *names: str) -> None:
    for name in names:
        manifest = (PUBLISHED / f"{name}.yaml").read_text().replace(THEIR_NODE, A_NODE)
        space.stage.kubectl("apply", "-n", space.name, "-f", "-", stdin=manifest)


def test_four_halves_fill_two_gpus(stage: Stage, space: Space) -> None:
    names = [f"sharepod{number}" for number in range(1, 5)]
    places: list[Place] = []
    for name in names:
        apply(space, name)
        places.append(space.ready(name))

    first, second, third, fourth = places
    assert first == second
    assert third == fourth
    assert first.uuid != third.uuid
    for name, holder in (stage.holders(first.gpuid) | stage.holders(third.gpuid)).items():
        assert holder["memoryBytes"] == 3145728000, name
        assert (holder["requestMicros"], holder["limitMicros"]) == (500_000, 1_000_000)


def test_two_that_end_share_a_gpu_and_stay_to_be_read(stage: Stage, space: Space) -> None:
    apply(space, "pod1")
    first = space.ready("pod1")
    apply(space, "pod2")
    assert space.ready("pod2") == first
    assert sum(one["requestMicros"] for one in stage.holders(first.gpuid).values()) == 1_000_000

    for name in ("pod1", "pod2"):
        space.until_phase(name, "Succeeded", "Failed")
        assert space.phase(name) == "Succeeded"
        assert space.lives(name)[1] == 0, "it was not started again"
    eventually(lambda: stage.vgpu(first.gpuid) is None, "its vGPU to be given back")
    assert {one["metadata"]["name"] for one in space.sharepods()} == {"pod1", "pod2"}


def test_the_readmes_sample_has_a_gpu_and_a_copy_of_it_contradicts_itself(
    stage: Stage, space: Space
) -> None:
    apply(space, "readme")
    place = space.ready("sharepod-readme")
    assert set(stage.holders(place.gpuid)) == {"sharepod-readme"}
    copy = (PUBLISHED / "readme.yaml").read_text().replace("sharepod-readme", "copy")

    stage.kubectl("apply", "-n", space.name, "-f", "-", stdin=copy)

    assert "green" in space.waits("copy", "NoRoom")
    assert len(stage.vgpus()) == 1


def test_the_readmes_sample_with_a_gpuid_is_made_where_it_says(stage: Stage, space: Space) -> None:
    apply(space, "readme-gpuid")

    place = space.ready("sharepod-gpuid")

    assert (place.gpuid, place.node) == ("abcde", A_NODE)


def test_names_may_be_long(stage: Stage, space: Space) -> None:
    """Theirs broke on 48 bytes of namespace and name together."""
    name = "n" * 120
    space.share(name, {"request": "0.5"}, ("burn", "--seconds", "1"), restartPolicy="Never")

    space.until_phase(name, "Succeeded", "Failed")

    assert space.phase(name) == "Succeeded"
    assert "kernels" in space.log(name)


def test_the_pods_of_the_second_version_run_by_their_labels(stage: Stage, space: Space) -> None:
    apply(space, "v2-pod", "v2-model", "v2-group")
    names = ["v2-pod", "v2-model", *(f"v2-group-{number}" for number in (1, 2, 3))]
    held: dict[str, Raw] = {}

    def all_have_held() -> bool:
        for vgpu in stage.vgpus():
            for one in vgpu["status"].get("holders", []):
                if one["namespace"] == space.name:
                    held[one["name"]] = one
        return held.keys() >= set(names)

    eventually(all_have_held, "each to have its part", explain=lambda: str(held))
    pod = held["v2-pod"]
    assert (pod["requestMicros"], pod["limitMicros"]) == (500_000, 1_000_000)
    assert pod["memoryBytes"] == 3145728000
    assert held["v2-model"]["requestMicros"] == 1_000_000
    for name in names:
        space.until_phase(name, "Succeeded", "Failed")
        assert space.phase(name) == "Succeeded", space.log(name)
