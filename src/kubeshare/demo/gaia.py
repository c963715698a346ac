"""Runs pods of Gaia, which are placed by how GPUs are linked."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

from msgspec import Struct

from kubeshare.demo.cluster import DemoError
from kubeshare.demo.dedicated_node import DedicatedNode, pod
from kubeshare.demo.figure import burn
from kubeshare.dialects.vcuda import CORE, MEMORY
from kubeshare.dialects.write_back import VCUDA_INDEX

NAMESPACE: Final = "gaia"
PROFILE: Final = Path(__file__).with_suffix(".profile")
"""The node: four GPUs in two pairs."""


class Step(Struct, frozen=True):
    """A pod, the GPUs that it should get, and the rule of the paper that chooses them."""

    name: str
    cores: int
    blocks: int
    gpus: str
    rule: str


STEPS: Final = (
    Step("half", 50, 8, "2", "Fragment: no GPU is shared yet, so one of the cheapest pair"),
    Step("rest", 40, 8, "2", "Fragment: the shared GPU has room"),
    Step("one", 100, 0, "3", "Singular: the other GPU of that pair is in use, and 0,1 stay a pair"),
    Step("pair", 200, 0, "0,1", "Link: the pair that is left"),
)


class GaiaDemo:
    """Plays on one node, which is dedicated to Gaia and has the GPUs of the paper.

    Args:
        node: where.
        image: of the pods.
        topo: returns what ``kubeshare topo`` prints about the node.
    """

    def __init__(self, node: DedicatedNode, image: str, topo: Callable[[], str]) -> None:
        self._node = node
        self._image = image
        self._topo = topo

    def run(self) -> None:
        """Show the tree, and place a share, another one, a whole GPU and a pair.

        Raises:
            DemoError: something that KubeShare promises did not happen.
        """
        self._node.cluster.start_afresh()
        self._node.dedicate("Gaia", "kubeshare.nthu/family=vcuda", resources=(CORE,))
        self._node.show(f"kubeshare topo {self._node.name}", self._topo())
        for step in STEPS:
            self._place(step)

    def _place(self, step: Step) -> None:
        limits = {CORE: step.cores} | ({MEMORY: step.blocks} if step.blocks else {})
        self._node.cluster.create(pod(step.name, NAMESPACE, limits, burn(self._image)))
        gpus = self._node.until_placed(step.name, f"{VCUDA_INDEX}0")
        self._node.console.print(
            f"{step.name} asks for {step.cores} cores and runs on GPU {gpus}. {step.rule}",
            soft_wrap=True,
        )
        if gpus != step.gpus:
            raise DemoError(f"{step.name} should be on GPU {step.gpus} and is on GPU {gpus}")
