"""A node is taken over by the commands of its page, under the other tests of this folder.

The commands that give it back run when the last of them has ended. ``test_kinds_of_nodes.py`` has
such a node beside nodes of other kinds, with pods that run on.
"""

import pytest

from e2e.owned.node import OwnedNode
from e2e.stage import Stage

pytestmark = pytest.mark.lab


def test_the_commands_of_the_page_take_the_node_over(stage: Stage, owned_node: OwnedNode) -> None:
    assert owned_node.gpunode()["status"]["mode"] == "owned"
    assert owned_node.static() == {gpu["uuid"]: [] for gpu in owned_node.devices}
    assert stage.placeholders() == []
    assert not owned_node.raw()["spec"].get("unschedulable", False)
    assert owned_node.name not in stage.lab.ready_nodes(), "its device plugin offers no GPU"
