"""A node whose GPUs KubeShare owns reboots, and its device plugin is there again.

Last in this folder: the node is not owned for a minute afterwards.
"""

import pytest

from e2e.owned.node import OwnedNode
from e2e.ownership import SECONDS
from e2e.space import Space
from e2e.stage import Place, Stage, eventually

pytestmark = pytest.mark.lab


def until_granted(space: Space, name: str, place: Place) -> None:
    """Wait until the token daemon has a grant of a pod."""
    eventually(
        lambda: name in space.stage.top(place),
        f"{name} to have a grant",
        seconds=SECONDS,
        explain=lambda: space.describe(name),
    )


def test_after_a_reboot_shares_run_again_on_their_gpus_once_nobody_else_offers_them(
    stage: Stage, owned_node: OwnedNode, space: Space
) -> None:
    here = {"kubernetes.io/hostname": owned_node.name}
    for name in "ab":
        space.share(name, {"request": "0.4", "memory": "1Gi"}, nodeSelector=here)
    places = {name: space.ready(name) for name in "ab"}
    assert sorted(map(len, owned_node.static().values())) == [0, 2]
    before, pods = owned_node.static(), {name: space.lives(name)[0] for name in "ab"}
    stage.reboot(owned_node.name)  # a node of the lab boots with its device plugin
    eventually(
        lambda: any("KubeShare owns GPU" in event["message"] for event in space.events("a")),
        "the node agent to refuse the share",
        explain=lambda: str(space.events("a")),
    )
    # The other one may have been granted before the device plugin was there.
    assert "a" not in stage.top(places["a"])
    owned_node.until_owned("GPUsOffered")
    owned_node.stop_plugin()
    for name, place in places.items():
        until_granted(space, name, place)
        stage.works_for(place, name)
    assert owned_node.static() == before
    assert {name: space.lives(name)[0] for name in "ab"} == pods
