"""Preemption evicts through the API: whom a disruption budget keeps stays."""

from collections.abc import Iterator

import pytest

from e2e.manifests import budget
from e2e.space import Space
from e2e.stage import Stage, eventually

pytestmark = pytest.mark.lab

HERE = "node-1"
PREEMPTIBLE = {"kubeshare.nthu/preemptible": "true"}


@pytest.fixture
def preemption(stage: Stage, space: Space) -> Iterator[None]:
    """What the configuration allows while the test plays, before its namespace is cleared."""
    assert not space.pods()
    stage.configure(preemption=True)
    yield
    stage.configure()


@pytest.mark.usefixtures("preemption")
def test_whom_a_budget_keeps_is_not_preempted_but_the_next_cheapest(
    stage: Stage, space: Space
) -> None:
    here = {"kubernetes.io/hostname": HERE}
    for name, priority in (("cheapest", "0"), ("next", "1")):
        labels = {"app": name, "sharedgpu/priority": priority}
        space.plain(name, "1", annotations=PREEMPTIBLE, labels=labels, nodeSelector=here)
    space.create(budget("cheapest", 1))
    for name in ("cheapest", "next"):
        space.until_phase(name, "Running")
    before = space.lives("cheapest")

    space.plain("urgent", "1", labels={"sharedgpu/priority": "50"}, nodeSelector=here)

    space.until_phase("urgent", "Running")
    # Its part is given back when its containers have stopped, a moment before it is gone.
    eventually(lambda: space.find_pod("next") is None, "the next cheapest to be gone")
    assert space.lives("cheapest") == before
    assert "urgent" in space.event("next", "Preempted")
    assert "next" in space.event("urgent", "Preempting")
    assert {one["name"] for held in space.parts().values() for one in held} == {
        "cheapest",
        "urgent",
    }
