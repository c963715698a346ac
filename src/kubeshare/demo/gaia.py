"""Runs pods of Gaia, which are placed by how GPUs are linked."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from msgspec import Struct
from rich.console import Console

from kubeshare.demo.cluster import Cluster, DemoError
from kubeshare.demo.figure import burn
from kubeshare.dialects.vcuda import CORE, CORES, MEMORY
from kubeshare.dialects.write_back import VCUDA_INDEX

NAMESPACE: Final = "gaia"
PROFILE: Final = Path(__file__).with_suffix(".profile")
"""The node: four GPUs in two pairs."""
GPUS: Final = 4


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
        cluster: where, with the namespace of this demo.
        node: the name of the node.
        image: of the pods.
        topo: returns what ``kubeshare topo`` prints about the node.
        console: where to show it.
    """

    def __init__(
        self,
        cluster: Cluster,
        *,
        node: str,
        image: str,
        topo: Callable[[], str],
        console: Console,
    ) -> None:
        self._cluster = cluster
        self._node = node
        self._image = image
        self._topo = topo
        self._console = console

    def run(self) -> None:
        """Show the tree, and place a share, another one, a whole GPU and a pair.

        Raises:
            DemoError: something that KubeShare promises did not happen.
        """
        self._cluster.start_afresh()
        self._dedicate()
        self._console.print(f"\n$ kubeshare topo {self._node}")
        self._console.print(self._topo(), highlight=False, soft_wrap=True)
        for step in STEPS:
            self._place(step)

    def _dedicate(self) -> None:
        """Let KubeShare own the GPUs of the node for Gaia."""
        labels = ("kubeshare.nthu/gpus=owned", "kubeshare.nthu/family=vcuda")
        self._cluster.kubectl("label", "node", self._node, *labels)

        def offered() -> bool:
            found = json.loads(self._cluster.kubectl("get", "node", self._node, "-o", "json"))
            return bool(found["status"]["allocatable"].get(CORE) == str(GPUS * CORES))

        self._cluster.wait(offered, f"{self._node} to offer {CORE}")
        self._console.print(f"{self._node} is dedicated to Gaia: {CORE} {GPUS * CORES}")

    def _place(self, step: Step) -> None:
        self._cluster.create(pod(step, burn(self._image)))

        def running() -> str | None:
            found = self._cluster.get("pod", step.name)
            annotations = found["metadata"].get("annotations", {})
            is_running = found["status"].get("phase") == "Running"
            return annotations.get(f"{VCUDA_INDEX}0") if is_running else None

        gpus = self._cluster.wait(running, f"pod {step.name} to run", f"pod/{step.name}")
        self._console.print(
            f"{step.name} asks for {step.cores} cores and runs on GPU {gpus}. {step.rule}",
            soft_wrap=True,
        )
        if gpus != step.gpus:
            raise DemoError(f"{step.name} should be on GPU {step.gpus} and is on GPU {gpus}")


def pod(step: Step, container: dict[str, Any]) -> dict[str, Any]:
    """The pod of a step."""
    amounts = {CORE: str(step.cores)} | ({MEMORY: str(step.blocks)} if step.blocks else {})
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": step.name, "namespace": NAMESPACE},
        "spec": {
            "containers": [container | {"resources": {"limits": amounts}}],
            "terminationGracePeriodSeconds": 1,
        },
    }
