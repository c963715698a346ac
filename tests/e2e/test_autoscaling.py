"""A horizontal autoscaler and GPUs that are shared: as many as there is room for, and back."""

from pathlib import Path

import pytest

from e2e.metrics_adapter import metrics_adapter
from e2e.space import Space
from e2e.stage import Stage, eventually

pytestmark = pytest.mark.lab

EXAMPLE = Path(__file__).parents[2] / "examples" / "autoscaling.yaml"
EACH = 4
"""Requests under way for which there is to be one pod."""
ROOM, MOST = 8, 10
"""Halves of the lab's four GPUs, and as many as the autoscaler may have."""


def gated(space: Space) -> list[str]:
    """The names of the pods that wait for a part."""
    pods = space.pods(app="answers")
    return [pod["metadata"]["name"] for pod in pods if pod["spec"].get("schedulingGates")]


def test_a_deployment_grows_to_where_gpus_are_full_and_gives_parts_back(
    stage: Stage, space: Space
) -> None:
    with metrics_adapter(space) as adapter:
        adapter.value = 2 * EACH
        stage.kubectl("apply", "-n", space.name, "-f", str(EXAMPLE))
        space.until_running(2, app="answers")

        adapter.value = 100 * EACH
        space.until_running(ROOM, app="answers")
        waiting = eventually(
            lambda: found if len(found := gated(space)) == MOST - ROOM else None,
            "the autoscaler to have all that it may",
            explain=lambda: str(gated(space)),
        )
        for name in waiting:
            assert space.pod_waits(name, "NoRoom").count("compute 0 left, 0.5 asked") == ROOM // 2
        held = space.parts(app="answers")
        assert [len(parts) for parts in held.values()] == [2, 2, 2, 2]

        adapter.value = EACH
        space.until_running(1, app="answers")
        eventually(
            lambda: [len(parts) for parts in space.parts().values()] == [1],
            "all other parts to be given back",
        )
        eventually(lambda: len(stage.placeholders()) == 1, "the other GPUs to be given back")
    stage.kubectl("delete", "-n", space.name, "-f", str(EXAMPLE), "--wait=false")
