"""Runtime and kubelet of a node restart, then the whole node: shares go on, or begin again."""

import pytest

from e2e.space import Space
from e2e.stage import NODE_AGENT, TOKEN_DAEMON, Place, Stage, eventually

pytestmark = pytest.mark.lab

LONG = 300.0
"""Seconds that the pods of a node that was cut off get to be back."""


def _come(space: Space) -> Place:
    space.share("a", {"request": "0.5", "memory": "1Gi"})
    return space.ready("a")


def test_the_restart_of_runtime_and_kubelet_leaves_a_share_as_it_is(
    stage: Stage, space: Space
) -> None:
    place = _come(space)
    before, kept = space.lives("a"), stage.placeholders()
    for part in ("containerd", "kubelet"):
        stage.lab.restart_component(f"{place.node}/{part}")
        stage.works_for(place, "a")
    assert space.lives("a") == before
    assert stage.placeholders() == kept
    vgpu = stage.vgpu(place.gpuid)
    assert vgpu is not None
    assert vgpu["spec"]["uuid"] == place.uuid
    assert not vgpu["status"].get("conditions")


def test_after_a_reboot_a_share_runs_again_by_a_new_grant(stage: Stage, space: Space) -> None:
    place = _come(space)
    stage.reboot(place.node)
    for component in (NODE_AGENT, TOKEN_DAEMON):
        stage.until_ready(component, place.node)

    def back() -> Place | None:
        """Where the daemon of a node that has restarted has a grant for it."""
        gpus = space.status("a").get("gpus", [])
        if not gpus or space.condition("a", "Ready").get("status") != "True":
            return None
        now = Place(place.node, gpus[0]["id"], gpus[0].get("uuid", ""))
        return now if "a" in stage.top(now) else None

    now = eventually(back, "a to run again", seconds=LONG, explain=lambda: space.describe("a"))
    stage.works_for(now, "a")
    assert [*stage.holders(now.gpuid)] == ["a"]
    eventually(
        lambda: len(stage.placeholders()) == len(stage.vgpus()) == 1,
        "one vGPU and its placeholder to be left",
        explain=lambda: str((stage.placeholders(), stage.vgpus())),
    )
