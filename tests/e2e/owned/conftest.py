"""The node that KubeShare owns, ready for each test of this folder."""

from collections.abc import Iterator

import pytest

from e2e.owned.node import OwnedNode
from e2e.stage import Stage
from kubeshare.core.units import GI


@pytest.fixture(scope="package")
def taken_over(stage: Stage) -> Iterator[OwnedNode]:
    """The node is taken over for all tests of this folder, and then given back."""
    node = OwnedNode(stage)
    try:
        node.take_over()
        yield node
    finally:
        node.give_back()


@pytest.fixture
def owned_node(taken_over: OwnedNode) -> Iterator[OwnedNode]:
    """The node is owned, its GPUs are free, and it is dedicated to no manifest family.

    It is owned already unless a test before has failed. A test names this fixture before
    ``space``: its namespace is cleared first.
    """
    taken_over.stop_plugin()
    taken_over.until_owned()
    taken_over.until_free()
    yield taken_over
    taken_over.dedicate_to_none()


@pytest.fixture
def units(stage: Stage, owned_node: OwnedNode) -> int:
    """The node is dedicated to gpushare; the units of each of its two GPUs."""
    stage.kubectl("label", "node", owned_node.name, "gpushare=true")
    [size] = {gpu["memoryBytes"] // GI for gpu in owned_node.devices}
    return int(size)
