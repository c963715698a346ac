"""Runs pods of Gaia: placed by links of GPUs, within a quota."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Final

from msgspec import Struct

from kubeshare.api.types.reasons import Reason
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
)
PAIR: Final = Step("pair", 200, 0, "0,1", "Link: the pair that is left")

QUOTA: Final = "gpus"
FIRST_QUOTA: Final = 2
"""GPUs: the steps fit, the pair does not."""
NEXT_QUOTA: Final = 4


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
        """Show the tree, place a share, another one and a whole GPU, and a pair when it may.

        Raises:
            DemoError: something that KubeShare promises did not happen.
        """
        self._node.cluster.start_afresh()
        self._node.dedicate("Gaia", "kubeshare.nthu/family=vcuda", resources=(CORE,))
        self._node.show(f"kubeshare topo {self._node.name}", self._topo())
        model = self._limit()
        for step in STEPS:
            self._create(step)
            self._expect(step)
        self._exceed(model)

    def _limit(self) -> str:
        """Limit the namespace to some GPUs of the node's model; returns the model."""
        cluster = self._node.cluster
        found = json.loads(cluster.kubectl("get", "gpunode", self._node.name, "-o", "json"))
        model = str(found["spec"]["devices"][0]["model"])
        cluster.create(
            {
                "apiVersion": "kubeshare.nthu/v1",
                "kind": "GPUQuota",
                "metadata": {"name": QUOTA, "namespace": NAMESPACE},
                "spec": _limit_to(model, FIRST_QUOTA),
            }
        )
        self._node.console.print(
            f"GPUQuota {QUOTA} allows namespace {NAMESPACE} {FIRST_QUOTA} GPUs of {model}\n"
        )
        return model

    def _exceed(self, model: str) -> None:
        """See that the quota refuses the pair, and that it runs under a larger one."""
        self._create(PAIR)
        cluster, console = self._node.cluster, self._node.console
        refused = cluster.wait(self._refusal, f"pod {PAIR.name} to be refused", f"pod/{PAIR.name}")
        console.print(
            f"{PAIR.name} asks for {PAIR.cores} cores and is pending, though GPU {PAIR.gpus} are"
            f" free: {refused}",
            soft_wrap=True,
        )
        patch = json.dumps({"spec": _limit_to(model, NEXT_QUOTA)})
        kind = ("gpuquota", QUOTA, "-n", NAMESPACE)
        cluster.kubectl("patch", *kind, "--type=merge", "-p", patch)
        console.print(f"GPUQuota {QUOTA} allows {NEXT_QUOTA} GPUs from now on")
        self._expect(PAIR)

    def _refusal(self) -> str | None:
        """What the scheduler says of the pair once the quota refuses it.

        Raises:
            DemoError: it runs.
        """
        status = self._node.cluster.get("pod", PAIR.name)["status"]
        if status.get("phase") == "Running":
            raise DemoError(f"{PAIR.name} runs, more than GPUQuota {QUOTA} allows")
        for condition in status.get("conditions", ()):
            if condition.get("reason") == Reason.QUOTA:
                return str(condition["message"]).partition("; ")[0]  # each GPU has the same reason
        return None

    def _create(self, step: Step) -> None:
        limits = {CORE: step.cores} | ({MEMORY: step.blocks} if step.blocks else {})
        self._node.cluster.create(pod(step.name, NAMESPACE, limits, burn(self._image)))

    def _expect(self, step: Step) -> None:
        """Wait until a pod runs, and say on which GPUs and why.

        Raises:
            DemoError: it runs on others.
        """
        gpus = self._node.until_placed(step.name, f"{VCUDA_INDEX}0")
        self._node.console.print(
            f"{step.name} asks for {step.cores} cores and runs on GPU {gpus}. {step.rule}",
            soft_wrap=True,
        )
        if gpus != step.gpus:
            raise DemoError(f"{step.name} should be on GPU {step.gpus} and is on GPU {gpus}")


def _limit_to(model: str, gpus: int) -> dict[str, object]:
    return {"limits": [{"model": model, "gpus": gpus}]}
