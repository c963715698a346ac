"""The demo of Gaia, with a kubectl that answers as a cluster would."""

import io
import json
from typing import Any

import pytest
from click.testing import CliRunner
from rich.console import Console

from kubeshare.core.topology import read_notation
from kubeshare.demo.__main__ import main
from kubeshare.demo.cluster import Cluster, DemoError
from kubeshare.demo.dedicated_node import DedicatedNode
from kubeshare.demo.gaia import NAMESPACE, PAIR, PROFILE, STEPS, GaiaDemo
from kubeshare.dialects.vcuda import CORE, MEMORY
from kubeshare.dialects.write_back import VCUDA_INDEX
from kubeshare.fakegpu import machines

PLACED = {"half": "2", "rest": "2", "one": "3", "pair": "0,1"}


class FakeKubectl:
    """A node with four GPUs, on which pods run at once.

    Args:
        gpus: the GPUs of each pod.
        checked: whether quotas are.
    """

    def __init__(self, gpus: dict[str, str], *, checked: bool = True) -> None:
        self.pods: dict[str, Any] = {}
        self.quota: list[int] = []
        self._checked = checked
        self.calls: list[tuple[str, ...]] = []
        self._gpus = gpus

    def __call__(self, *arguments: str, stdin: str | None = None) -> str:
        """The answer to one command."""
        self.calls.append(arguments)
        match arguments:
            case ("create", "-f", "-"):
                made = json.loads(stdin or "")
                self.pods[made["metadata"]["name"]] = made
                if made["kind"] == "GPUQuota":
                    self._limit(made)
            case ("patch", "gpuquota", "gpus", *_, "-p", patch):
                self._limit(json.loads(patch))
            case ("get", "gpunode", *_):
                return json.dumps({"spec": {"devices": [{"model": "Tesla P4"}]}})
            case ("get", "node", *_):
                return json.dumps({"status": {"allocatable": {CORE: "400"}}})
            case ("get", "pod", name, *_):
                if name == PAIR.name and self._checked and self.quota == [2]:
                    condition = {"reason": "QuotaExceeded", "message": "1.9 held, 2 asked"}
                    return json.dumps({"metadata": {}, "status": {"conditions": [condition]}})
                annotations = {f"{VCUDA_INDEX}0": self._gpus[name]}
                found = {"metadata": {"annotations": annotations}, "status": {"phase": "Running"}}
                return json.dumps(found)
        return ""

    def _limit(self, quota: dict[str, Any]) -> None:
        [limit] = quota["spec"]["limits"]
        assert limit["model"] == "Tesla P4"
        self.quota.append(limit["gpus"])


def play(kubectl: FakeKubectl) -> str:
    """What the demo prints."""
    shown = io.StringIO()
    node = DedicatedNode(Cluster(kubectl, NAMESPACE), "n1", Console(file=shown, width=200))
    GaiaDemo(node, "kubeshare:dev", lambda: "the tree").run()
    return shown.getvalue()


def test_it_shows_the_tree_and_who_gets_which_gpus() -> None:
    kubectl = FakeKubectl(PLACED)
    shown = play(kubectl)
    labels = ("kubeshare.nthu/gpus=owned", "kubeshare.nthu/family=vcuda")
    assert ("label", "node", "n1", *labels) in kubectl.calls
    assert "the tree" in shown
    assert "rest asks for 40 cores and runs on GPU 2. Fragment" in shown
    refused = shown.index(
        "pair asks for 200 cores and is pending, though GPU 0,1 are free: 1.9 held"
    )
    assert shown.index("pair asks for 200 cores and runs on GPU 0,1. Link") > refused
    assert kubectl.quota == [2, 4]
    [container] = kubectl.pods["half"]["spec"]["containers"]
    assert container["resources"] == {"limits": {CORE: "50", MEMORY: "8"}}


def test_a_pod_on_another_gpu_is_an_error() -> None:
    with pytest.raises(DemoError, match="one should be on GPU 3 and is on GPU 0"):
        play(FakeKubectl(PLACED | {"one": "0"}))


def test_a_pair_that_runs_beyond_the_quota_is_an_error() -> None:
    with pytest.raises(DemoError, match="pair runs, more than GPUQuota gpus allows"):
        play(FakeKubectl(PLACED, checked=False))


def test_it_takes_no_node_of_a_real_cluster_over() -> None:
    answer = CliRunner().invoke(main, ["gaia", "--kubeconfig", "/dev/null"])
    assert answer.exit_code == 2
    assert "changes the whole cluster" in answer.output


def test_the_node_has_the_gpus_of_the_steps() -> None:
    assert {step.name: step.gpus for step in (*STEPS, PAIR)} == PLACED
    assert len(machines.gpus(PROFILE)) == len(read_notation("SYS(PXB(0,1),PIX(2,3))", "the paper"))
