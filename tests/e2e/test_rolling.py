"""A rolling update: one part more while it lasts, where there is one."""

import json

import pytest

from e2e.manifests import deployment, template
from e2e.space import Space
from e2e.stage import Stage, eventually

pytestmark = pytest.mark.lab

SECONDS = "--timeout=180s"


def patch(space: Space, what: str, changed: object) -> None:
    space.stage.kubectl("patch", what, "-n", space.name, "-p", json.dumps(changed))


def gated(space: Space) -> tuple[str, str] | None:
    """The name and the uid of a pod that waits for its part."""
    found = [pod["metadata"] for pod in space.pods() if pod["spec"].get("schedulingGates")]
    return next(((one["name"], one["uid"]) for one in found), None)


def rolled_out(space: Space, what: str) -> None:
    space.stage.kubectl("rollout", "status", what, "-n", space.name, SECONDS)


def test_a_rolling_update_needs_a_part_more_and_says_so_where_there_is_none(
    stage: Stage, space: Space
) -> None:
    here = {"kubeshare.nthu/id": "roll"}
    space.create(deployment("serve", template("serve", "0.4", annotations=here)))
    rolled_out(space, "deployment/serve")
    first = space.until_running(1, app="serve")

    larger = {"metadata": {"annotations": {"kubeshare.nthu/request": "0.6"}}}
    patch(space, "deployment/serve", {"spec": {"template": larger}})
    rolled_out(space, "deployment/serve")
    second = space.until_running(1, app="serve")
    assert first.isdisjoint(second)

    stage.kubectl("rollout", "restart", "deployment/serve", "-n", space.name)
    name, waits = eventually(lambda: gated(space), "one pod more")
    assert "compute 0.4 left, 0.6 asked" in space.pod_waits(name, "NoRoom")
    assert space.until_running(1, app="serve") == second, "the one that serves goes on"

    one_by_one = {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}
    patch(space, "deployment/serve", {"spec": {"strategy": one_by_one}})
    rolled_out(space, "deployment/serve")
    assert space.until_running(1, app="serve") == {waits}
    ((only,),) = space.parts(app="serve").values()
    assert (only["podUid"], only["requestMicros"]) == (waits, 600_000)
