"""The same cases on a node that KubeShare owns, in the lab: real kubelet, agent and device plugin.

The node has four fake GPUs with the links of the paper's. What is in use at the start of a case is
in use by pods, which are placed in the same way.
"""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from rich.console import Console

from bench.report import median, percentile
from kubeshare.demo.cluster import Cluster
from kubeshare.demo.dedicated_node import DedicatedNode, pod
from kubeshare.demo.frame import lab_with_kubeshare
from kubeshare.demo.gaia import PROFILE
from kubeshare.dialects.vcuda import CORE, CORES, MEMORY
from kubeshare.dialects.write_back import VCUDA_INDEX
from kubeshare.lab.cluster import Lab, Shape
from kubeshare.lab.node.gpus import DEVICE_PLUGIN
from kubeshare.simulator.figures.gaia.cases import BLOCKS, CASES, Case

NAMESPACE: Final = "gaia"
IMAGE: Final = "kubeshare:dev"
SECONDS: Final = 120.0
_POLL_SECONDS: Final = 0.05
_PODS: Final = f"/api/v1/namespaces/{NAMESPACE}/pods"
_VGPUS: Final = "/apis/kubeshare.nthu/v1/vgpus"
_REST: Final = ["sh", "-c", "trap 'exit 0' TERM; while :; do sleep 0.1; done"]


def run(runs: int) -> bool:
    """Boot a lab and print all; whether a placement contradicts the paper's."""
    console = Console()
    shape = Shape(nodes=1, gpus=str(PROFILE))
    with lab_with_kubeshare(shape, IMAGE, console, keep=False) as lab:
        [node] = lab.nodes
        lab.stop_component(f"{node.name}/{DEVICE_PLUGIN}")
        cluster = Cluster(lab.kubectl, NAMESPACE)
        cluster.start_afresh()
        there = DedicatedNode(cluster, node.name, console)
        there.dedicate("Gaia", "kubeshare.nthu/family=vcuda", resources=(CORE, MEMORY))
        print(f"\nThe same on an owned node of the lab, {runs} runs each")
        player = _Player(lab)
        shown = [player.play(case, runs) for case in CASES if case.paper and not case.shuffled]
    return any(shown)


class _Player:
    """Creates pods and reads where they run."""

    def __init__(self, lab: Lab) -> None:
        self._api = lab.api
        self._number = 0

    def play(self, case: Case, runs: int) -> bool:
        """Print a case; whether a placement contradicts the paper's."""
        before = [self._place(cores)[:2] for cores in case.before.values()]
        if [gpus for _, gpus in before] != list(case.before):
            raise RuntimeError(f"in use are {before}, and {case.name} begins with {case.before}")
        kept = {name for name, _ in before}
        found: list[Counter[str]] = [Counter() for _ in case.requests]
        taken: list[float] = []
        for _ in range(runs):
            names = []
            for counts, cores in zip(found, case.requests, strict=True):
                name, gpus, seconds = self._place(cores)
                names.append(name)
                counts[gpus] += 1
                taken.append(seconds)
            self._remove(names, kept)
        self._remove(kept, set())
        return _show(case, found, taken)

    def _place(self, cores: int) -> tuple[str, str, float]:
        """A new pod, the numbers of its GPUs, and the seconds until it runs."""
        self._number += 1
        name = f"pod-{self._number}"
        limits = {CORE: cores} | ({MEMORY: BLOCKS} if cores < CORES else {})
        container = {"name": "main", "image": IMAGE, "imagePullPolicy": "IfNotPresent"}
        started = time.monotonic()
        self._api.send("POST", _PODS, pod(name, NAMESPACE, limits, container | {"command": _REST}))

        def running() -> str | None:
            seen: Mapping[str, Any] = self._api.get(f"{_PODS}/{name}")
            if seen["status"].get("phase") != "Running":
                return None
            gpus: str | None = seen["metadata"].get("annotations", {}).get(f"{VCUDA_INDEX}0")
            return gpus

        gpus = _until(running, f"{name} to run")
        return name, gpus, time.monotonic() - started

    def _remove(self, names: Sequence[str] | set[str], kept: set[str]) -> None:
        """Delete pods, and wait until nobody else has a share."""
        for name in names:
            self._api.send("DELETE", f"{_PODS}/{name}")

        def free() -> bool:
            vgpus = self._api.get(_VGPUS)["items"]
            holders = [one for vgpu in vgpus for one in vgpu.get("status", {}).get("holders", ())]
            return {holder["name"] for holder in holders} == kept

        _until(free, "the shares of deleted pods to be given back")


def _until(look: Callable[[], Any], what: str) -> Any:
    deadline = time.monotonic() + SECONDS
    while not (found := look()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {SECONDS:g} s in vain for {what}")
        time.sleep(_POLL_SECONDS)
    return found


def _show(case: Case, found: Sequence[Counter[str]], taken: Sequence[float]) -> bool:
    here = "; ".join(
        f"{cores} cores: {', '.join(f'gpu {each}: {n}' for each, n in counts.items())}"
        for cores, counts in zip(case.requests, found, strict=True)
    )
    times = f"{median(taken):.1f} s (90th percentile {percentile(taken, 90):.1f})"
    print(f"  {case.name}: {here}; a pod runs after {times}", flush=True)
    pairs = zip(found, case.paper, strict=True)
    return any(not counts.keys() <= paper.keys() for counts, paper in pairs)
