"""The demo of gpushare, with a kubectl that answers as a cluster would."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from rich.console import Console

from kubeshare.cli.inspect import tables
from kubeshare.cli.inspect.usage import NodeUsage, PodUsage
from kubeshare.demo.__main__ import main
from kubeshare.demo.cluster import Cluster, DemoError
from kubeshare.demo.dedicated_node import DedicatedNode
from kubeshare.demo.gpushare import NAMESPACE, GpushareDemo
from kubeshare.dialects.gpushare import GPU_COUNT, GPU_MEMORY

PAGE = Path(__file__).parents[2] / "docs" / "gpushare.md"
UNITS = 16
OUT_OF_MEMORY = "CUDA_ERROR_OUT_OF_MEMORY"


class FakeKubectl:
    """A node with two GPUs, on which pods run at once and ``burn`` keeps its limit.

    Args:
        gpus: the GPU of each pod.
        limited: whether memory is limited.
    """

    def __init__(self, gpus: dict[str, str], *, limited: bool = True) -> None:
        self.pods: dict[str, Any] = {}
        self.calls: list[tuple[str, ...]] = []
        self._gpus = gpus
        self._limited = limited

    def __call__(self, *arguments: str, stdin: str | None = None) -> str:
        """The answer to one command."""
        self.calls.append(arguments)
        match arguments:
            case ("create", "-f", "-"):
                made = json.loads(stdin or "")
                self.pods[made["metadata"]["name"]] = made
            case ("get", "node", *_):
                amounts = {GPU_MEMORY: str(2 * UNITS), GPU_COUNT: "2"}
                return json.dumps({"status": {"allocatable": amounts}})
            case ("get", "pods", *_):
                return json.dumps({"items": [self._ended(name) for name in self.pods]})
            case ("get", "pod", name, *_):
                annotations = {"ALIYUN_COM_GPU_MEM_IDX": self._gpus[name]}
                found = {"metadata": {"annotations": annotations}, "status": {"phase": "Running"}}
                return json.dumps(found)
            case ("logs", *_, name):
                return "starts\n" + json.dumps({"error": self._error(name)})
        return ""

    def _ended(self, name: str) -> dict[str, Any]:
        phase = "Failed" if self._error(name) else "Succeeded"
        return {"metadata": {"name": name}, "status": {"phase": phase}}

    def _error(self, name: str) -> str | None:
        [container] = self.pods[name]["spec"]["containers"]
        exceeds = "2Gi" in container["command"] and container["resources"]["limits"] == {
            GPU_MEMORY: "1"
        }
        return OUT_OF_MEMORY if exceeds and self._limited else None


PACKED = {"binpack-1": "0", "binpack-2": "0", "binpack-3": "0", "binpack-4": "1"}


def play(kubectl: FakeKubectl) -> str:
    """What the demo prints."""
    shown = io.StringIO()
    node = DedicatedNode(Cluster(kubectl, NAMESPACE), "n1", Console(file=shown, width=100))
    GpushareDemo(node, "kubeshare:dev", lambda: "the tables of inspect").run()
    return shown.getvalue()


def test_it_shows_who_shares_a_gpu_and_that_the_limit_holds() -> None:
    kubectl = FakeKubectl(PACKED)
    shown = play(kubectl)
    assert ("label", "node", "n1", "kubeshare.nthu/gpus=owned", "gpushare=true") in kubectl.calls
    assert "n1 is dedicated to gpushare: aliyun.com/gpu-count 2, aliyun.com/gpu-mem 32" in shown
    assert "binpack-3 asks for 2 GiB and runs on GPU 0" in shown
    assert "binpack-4 asks for 16 GiB and runs on GPU 1" in shown
    assert "the tables of inspect" in shown
    assert f"greedy asks for 1 GiB and allocates 2Gi: {OUT_OF_MEMORY}" in shown
    assert "modest asks for 1 GiB and allocates 512Mi: it runs to its end" in shown
    assert {each["metadata"]["namespace"] for each in kubectl.pods.values() if "spec" in each} == {
        NAMESPACE
    }


def test_a_pod_on_another_gpu_is_an_error() -> None:
    with pytest.raises(DemoError, match="binpack-2 should be on GPU 0 and is on GPU 1"):
        play(FakeKubectl(PACKED | {"binpack-2": "1"}))


def test_a_limit_that_does_not_hold_is_an_error() -> None:
    with pytest.raises(DemoError, match="greedy should have ended with CUDA_ERROR_OUT_OF_MEMORY"):
        play(FakeKubectl(PACKED, limited=False))


def test_it_takes_no_node_of_a_real_cluster_over() -> None:
    answer = CliRunner().invoke(main, ["gpushare", "--kubeconfig", "/dev/null"])
    assert answer.exit_code == 2
    assert "changes the whole cluster" in answer.output


def test_the_page_shows_what_inspect_prints() -> None:
    pods = [
        PodUsage(name=f"binpack-{number}", namespace=NAMESPACE, gpus={gpu: units})
        for number, gpu, units in ((1, 0, 2), (2, 0, 2), (3, 0, 2), (4, 1, UNITS))
    ]
    node = NodeUsage(
        name="node-1",
        address="10.89.42.11",
        unit="GiB",
        owned=True,
        models={},
        totals={0: UNITS, 1: UNITS},
        total=2 * UNITS,
        pods=tuple(pods),
    )
    assert tables.details([node]) in PAGE.read_text(encoding="utf-8")
