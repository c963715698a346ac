"""Patches of the status of a VGPU."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from fakes.objects import holder
from kubeshare.api import holders
from kubeshare.api.holders import Operation
from kubeshare.api.types.v1 import VGPU
from kubeshare.kube.meta import Condition
from kubeshare.simulator.control.patches import json_patch

Raw = dict[str, Any]
HEALTHY = Condition(type="Degraded", status="False", reason="Healthy")


def stored(phase: str, *names: str) -> Raw:
    """A VGPU with a member of its status that this release does not know."""
    found = [msgspec.to_builtins(holder(name)) for name in names]
    return {
        "metadata": {"name": "a", "uid": "u", "resourceVersion": "7"},
        "spec": {"nodeName": "n1", "memoryBytes": 16 << 30},
        "status": {"phase": phase, "newer": {"x": 1}} | ({"holders": found} if found else {}),
    }


@pytest.mark.parametrize(
    ("before", "change"),
    [
        (stored("Idle"), lambda vgpu: holders.add(vgpu, holder("d"))),
        (stored("Creating"), lambda vgpu: holders.add(vgpu, holder("d"))),
        (stored("Active", "d"), lambda vgpu: holders.remove(vgpu, "d")),
        (stored("Creating"), lambda vgpu: holders.set_phase(vgpu, "Idle")),
        (stored("Idle"), lambda vgpu: holders.set_phase(vgpu, "Deleting")),
        (stored("Idle"), lambda vgpu: holders.set_conditions(vgpu, [HEALTHY])),
    ],
    ids=["first holder", "holder of a new vGPU", "last holder", "found", "deleting", "condition"],
)
def test_a_member_of_a_newer_release_stays(
    before: Raw, change: Callable[[VGPU], list[Operation]]
) -> None:
    after = json_patch(before, change(msgspec.convert(before, VGPU)))
    assert after["status"]["newer"] == {"x": 1}
    assert after["status"] != before["status"]


def test_the_first_holder_makes_an_idle_vgpu_active() -> None:
    before = stored("Idle")
    after = json_patch(before, holders.add(msgspec.convert(before, VGPU), holder("d")))
    assert after["status"]["phase"] == "Active"
    assert [one["demand"] for one in after["status"]["holders"]] == ["d"]
    assert after["status"]["summary"]["holders"] == 1


@pytest.mark.parametrize("present", [(), ("a",)])
def test_several_holders_come_in_one_write(present: tuple[str, ...]) -> None:
    before = stored("Active", *present)
    vgpu = msgspec.convert(before, VGPU)
    after = json_patch(before, holders.add(vgpu, holder("d"), holder("e")))
    assert [one["demand"] for one in after["status"]["holders"]] == [*present, "d", "e"]
    assert after["status"]["summary"]["holders"] == len(present) + 2
