"""Any program of KubeShare may be killed: what runs runs on, and all is well when it is back."""

from collections.abc import Callable

import pytest

from e2e import trio
from e2e.space import REST, Space
from e2e.stage import DEVICE_MANAGER, NODE_AGENT, SCHEDULER, TOKEN_DAEMON, Place, Stage, eventually
from kubeshare.demo import figure

pytestmark = pytest.mark.lab

BOTH_WAYS = pytest.mark.parametrize(
    "by_force", [True, False], ids=["pod-deleted", "process-killed"]
)


@pytest.fixture(scope="module")
def place(shared_space: Space) -> Place:
    """The three of the figure run, and this is where."""
    return trio.come(shared_space)


@pytest.fixture
def kill(stage: Stage, place: Place) -> Callable[[str, bool], Callable[[], None]]:
    """Ends a program of the node that the three are on, and answers how to wait until it is back.

    Meanwhile the three must run.
    """

    def end(component: str, by_force: bool) -> Callable[[], None]:
        before = stage.containers(component, place.node)
        if by_force:
            stage.delete_pod(component, place.node)
        else:
            stage.kill_process(component, place.node)
        stage.works_for(place, *trio.PODS)
        return lambda: stage.until_ready(component, place.node, but=before)

    return end


def _lives(space: Space) -> dict[str, tuple[str, int]]:
    return {pod: space.lives(pod) for pod in trio.PODS}


def _join_the_three(space: Space, name: str) -> None:
    """One that wants nothing guaranteed, on the GPU of the three."""
    gpu = {"request": "0", "memory": "64Mi", "affinity": figure.AFFINITY}
    space.share(name, gpu, REST)


def _until_released(space: Space, place: Place, name: str) -> None:
    eventually(
        lambda: name not in space.stage.holders(place.gpuid),
        f"the part of {name} to be given back",
        explain=lambda: space.describe(name),
    )


@BOTH_WAYS
def test_pods_run_on_without_their_node_agent_and_others_come_and_go_when_it_is_back(
    shared_space: Space,
    place: Place,
    kill: Callable[[str, bool], Callable[[], None]],
    by_force: bool,
) -> None:
    before, goes, comes = _lives(shared_space), f"goes-{by_force:d}", f"comes-{by_force:d}"
    _join_the_three(shared_space, goes)
    shared_space.ready(goes)

    until_back = kill(NODE_AGENT, by_force)
    shared_space.delete("sharepod", goes)
    until_back()

    _join_the_three(shared_space, comes)
    assert shared_space.ready(comes) == place
    _until_released(shared_space, place, goes)
    assert _lives(shared_space) == before
    shared_space.delete("sharepod", comes)
    _until_released(shared_space, place, comes)


@BOTH_WAYS
def test_pods_run_on_without_their_token_daemon_and_get_their_shares_when_it_is_back(
    stage: Stage,
    shared_space: Space,
    place: Place,
    kill: Callable[[str, bool], Callable[[], None]],
    by_force: bool,
) -> None:
    before = _lives(shared_space)

    kill(TOKEN_DAEMON, by_force)()

    eventually(lambda: set(trio.PODS) <= set(stage.top(place)), "the daemon to know the three")
    trio.assert_shares(shared_space, place)
    assert _lives(shared_space) == before


def test_a_killed_scheduler_decides_about_what_came_meanwhile(stage: Stage, space: Space) -> None:
    stage.delete_pod(SCHEDULER)
    for name in ("x", "y"):
        space.share(name, {"request": "0.5", "affinity": "late"}, REST)

    assert space.ready("x") == space.ready("y")
    stage.until_ready(SCHEDULER)


def test_a_killed_device_manager_goes_on_where_it_was(stage: Stage, space: Space) -> None:
    space.share("x", {"request": "0.5"}, REST)
    eventually(stage.vgpus, "a vGPU to be decided")
    stage.delete_pod(DEVICE_MANAGER)

    place = space.ready("x")

    stage.until_ready(DEVICE_MANAGER)
    assert set(stage.holders(place.gpuid)) == {"x"}
