"""What a program writes becomes a manifest, and what is read has types."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from kubeshare.client import GPU, Condition, InvalidValueError, SharePod, SharePodState

EXAMPLES = Path(__file__).parents[2] / "examples"
SPEC = {"containers": [{"name": "main", "image": "i"}]}


@pytest.mark.parametrize(
    ("gpu", "fields"),
    [
        (GPU(request=0.1 + 0.2), {"request": "0.3"}),
        (GPU(request=1), {"request": "1"}),
        (GPU(request=0.000001, limit=1.0), {"request": "0.000001", "limit": "1"}),
        (GPU(request="300m", memory=1 << 30), {"request": "300m", "memory": "1073741824"}),
        (GPU(memory=0.5, count=2), {"memory": "0.5", "count": 2}),
        (GPU(request=0.0, anti_affinity="x"), {"request": "0", "antiAffinity": "x"}),
        (GPU(request=1, latency_sensitive=True), {"request": "1", "latencySensitive": True}),
        (GPU(id="mine", model="V100"), {"id": "mine", "model": "V100"}),
    ],
)
def test_a_share_has_the_fields_of_the_manifest(gpu: GPU, fields: dict[str, Any]) -> None:
    assert gpu.fields() == fields


def test_the_example_of_the_readme_is_read_and_written() -> None:
    manifest = yaml.safe_load((EXAMPLES / "sharepod.yaml").read_text())
    sharepod = SharePod.from_manifest(manifest)
    manifest["metadata"]["namespace"] = "research"
    assert sharepod.manifest("research") == manifest


@pytest.mark.parametrize(
    ("manifest", "words"),
    [
        ({"apiVersion": "v1", "kind": "Pod"}, "kind: is not SharePod of kubeshare.nthu/v1"),
        ({"apiVersion": "kubeshare.nthu/v1", "kind": "SharePod"}, "metadata.name: is missing"),
    ],
)
def test_other_manifests_are_refused(manifest: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidValueError, match=words):
        SharePod.from_manifest(manifest)


def test_one_that_asks_for_no_gpu_is_refused() -> None:
    with pytest.raises(InvalidValueError, match="SharePod a asks for no share of a GPU"):
        SharePod(name="a", spec=SPEC).manifest("default")


def test_its_own_namespace_counts() -> None:
    sharepod = SharePod(name="a", spec=SPEC, gpu=GPU(request=1), namespace="mine")
    assert sharepod.manifest("default")["metadata"] == {"name": "a", "namespace": "mine"}


def state(*conditions: Condition) -> SharePodState:
    text = dict.fromkeys(
        ("name", "namespace", "uid", "phase", "node", "request", "limit", "memory"), ""
    )
    rest = dict.fromkeys(("pod_ip", "message", "created"), "")
    return SharePodState(labels={}, gpus=(), conditions=conditions, **text, **rest)


def test_the_blocker_is_the_first_condition_that_does_not_hold() -> None:
    scheduled = Condition(type="Scheduled", status="True")
    allocated = Condition(type="Allocated", status="False", reason="Creating")
    ready = Condition(type="Ready", status="False", reason="PodPending")
    assert state(ready, allocated, scheduled).blocker == allocated
    assert state(scheduled).blocker is None
    released = Condition(type="Allocated", status="False", reason="Released")
    assert state(scheduled, released, ready).blocker == ready
    assert state(scheduled, released).blocker == released
    assert not state(ready).ready
    assert state(Condition(type="Ready", status="True")).ready
