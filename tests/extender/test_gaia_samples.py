"""The samples of gpu-manager's and TKEStack's pages, typed anew, through both doors."""

from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from expectations.pods import expect_running
from fakes.cluster import FakeCluster, run_scenario
from fakes.cluster import extender as fake_extender
from fakes.cluster.doors import DOORS, begin
from fakes.cluster.predicates import placed, schedule
from fakes.cluster.vcuda import asking, gated_pod, published
from kubeshare.api.types.v1 import VGPUS
from kubeshare.core.units import GI, MI, MICROS
from kubeshare.dialects.vcuda import CORE, MEMORY
from kubeshare.dialects.write_back import VCUDA_INDEX as INDEX
from kubeshare.kube.resources import Raw

FOLDER = Path(__file__).parents[2] / "examples" / "vcuda"


class Expected(NamedTuple):
    """What a sample gets of each of its GPUs."""

    gpus: str
    request_micros: int
    limit_micros: int
    memory_bytes: int


SAMPLES = {
    "1": Expected("2", 300_000, 500_000, 7680 * MI),
    "2": Expected("2,3", MICROS, MICROS, 16 * GI),
    "3": Expected("2", MICROS, MICROS, 16 * GI),
    "4": Expected("2", 300_000, 300_000, 5 * GI),
}


def created(cluster: FakeCluster, door: str, sample: Raw) -> str:
    """Creates the pod of a sample as the admission policy leaves it; returns its name."""
    name, annotations = sample["metadata"]["name"], sample["metadata"].get("annotations", {})
    containers = [
        asking(each["name"], *map(str, (limits[CORE], limits.get(MEMORY, ""))))
        for each in sample["spec"]["containers"]
        for limits in [each["resources"]["limits"]]
    ]
    if door == "manifests":
        gated_pod(cluster, name, *containers, **annotations)
    else:
        fake_extender.pod_of(cluster, name, containers, gated=False, annotations=annotations)
    return str(name)


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("number", SAMPLES)
def test_a_sample_gets_what_its_page_says(number: str, door: str) -> None:
    sample: Raw = yaml.safe_load((FOLDER / f"{number}.yaml").read_text(encoding="utf-8"))
    expected = SAMPLES[number]

    async def play(cluster: FakeCluster) -> None:
        cluster.link("n1", gpu_0_1="PXB", gpu_2_3="PIX")
        await begin(cluster, door)
        name = created(cluster, door, sample)
        if door == "extender":
            assert await schedule(cluster, name) == ""
        await expect_running(cluster, name)
        assert published(cluster, name)[INDEX + "0"] == expected.gpus
        assert len(placed(cluster)[name]) == len(expected.gpus.split(","))
        for vgpu in cluster.server.all(VGPUS):
            for holder in vgpu["status"].get("holders", ()):
                found = [holder[f"{key}Micros"] for key in ("request", "limit")]
                assert found == [expected.request_micros, expected.limit_micros]
                assert holder["memoryBytes"] == expected.memory_bytes

    run_scenario(play, n1=4)


def test_every_sample_is_here() -> None:
    assert {file.stem for file in FOLDER.glob("[0-9].yaml")} == set(SAMPLES)
