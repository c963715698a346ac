"""The demo of operations, with a kubectl, a Helm and a cluster that answer as real ones would."""

import io
import json
import sys
from typing import Any

import pytest
from rich.console import Console

from kubeshare.demo.cluster import Cluster, DemoError
from kubeshare.demo.operate import NAMESPACE, OperateDemo, read_page

METRICS = """\
kubeshare_node_gpu_utilization_ratio{gpu="0"} 0.9
kubeshare_node_gpu_utilization_ratio{gpu="1"} 0
"""
REFUSED = "Error: job kubeshare-uninstall failed: pods share GPUs"


class FakeCluster:
    """Kubectl and Helm of a cluster on which everything works.

    Args:
        refuses: whether an uninstallation is refused while pods run.
        restarts: whether an upgrade starts containers again.
        used: GPU seconds in the account of the job that ends.
    """

    def __init__(self, *, refuses: bool = True, restarts: bool = False, used: float = 1.6) -> None:
        self.pods: dict[str, Any] = {}
        self.helm_calls: list[str] = []
        self.container = "containerd://1"
        self._refuses = refuses
        self._restarts = restarts
        self._used = used

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        answer: Any = ""
        match arguments:
            case ("create", "-f", "-"):
                made = json.loads(stdin or "")
                self.pods[made["metadata"]["name"]] = made
            case ("delete", "pod", "-n", _, *names):
                for name in names:
                    self.pods.pop(name, None)
            case ("get", "gpunodes", *_):
                answer = {"items": [{"spec": {"devices": [{}, {}]}}]}
            case ("get", "sharepod", *_):
                status = {"conditions": [{"type": "Ready", "status": "True"}], "nodeName": "n"}
                answer = {"status": status | {"gpus": [{"id": "vgpu-1"}]}}
            case ("get", "--raw", _):
                answer = METRICS
            case ("get", "pods", "-n", namespace, *_) if namespace == NAMESPACE:
                answer = {"items": [self._pod(name) for name in self.pods]}
            case ("get", "pods", *_):
                answer = "kubeshare-node-agent-x:8080 "
            case ("get", "pod", name, *_):
                answer = self._pod(name)
            case ("get", "deployment", *_):
                answer = "2Gi"
        return answer if isinstance(answer, str) else json.dumps(answer)

    def helm(self, *arguments: str) -> tuple[bool, str]:
        self.helm_calls.append(arguments[0])
        if arguments[0] == "upgrade" and self._restarts:
            self.container = "containerd://2"
        running = bool({"a", "b"} & self.pods.keys())
        refused = arguments[0] == "uninstall" and running and self._refuses
        return (False, REFUSED) if refused else (True, "")

    def kubeshare(self, *_: str) -> str:
        return json.dumps({"rows": [{"pod": "done", "usedGpuSeconds": self._used}]})

    def page(self) -> dict[str, Any]:
        return {"pods": [{"namespace": NAMESPACE, "name": name} for name in self.pods]}

    def _pod(self, name: str) -> dict[str, Any]:
        containers = [{"containerID": self.container}]
        return {
            "metadata": {"name": name},
            "status": {"phase": "Running", "containerStatuses": containers},
        }


def play(cluster: FakeCluster) -> str:
    """What the demo prints."""
    console = Console(file=io.StringIO(), width=200)
    OperateDemo(
        Cluster(cluster.kubectl, NAMESPACE, deadline=1),
        cluster.helm,
        cluster.kubeshare,
        page=cluster.page,
        gpus=2,
        image="kubeshare:dev",
        console=console,
    ).run()
    printed: str = console.file.getvalue()  # type: ignore[attr-defined]
    return printed


def test_the_release_is_installed_upgraded_and_removed_around_running_pods() -> None:
    cluster = FakeCluster()
    said = play(cluster)
    assert cluster.helm_calls == ["install", "test", "upgrade", "uninstall", "uninstall"]
    assert "1 active GPU, mean NVML utilization 90%" in said
    assert REFUSED in said
    assert "the page shows a, b, done" in said
    assert not {"a", "b"} & cluster.pods.keys()


@pytest.mark.parametrize(
    ("cluster", "words"),
    [
        (FakeCluster(refuses=False), "took the programs away"),
        (FakeCluster(restarts=True), "started again"),
        (FakeCluster(used=0), "its account says 0"),
    ],
)
def test_a_broken_promise_ends_the_demo(cluster: FakeCluster, words: str) -> None:
    with pytest.raises(DemoError, match=words):
        play(cluster)


def test_a_page_that_does_not_start_is_an_error() -> None:
    with pytest.raises(DemoError, match="does not say where its page is"):
        read_page([sys.executable, "-c", "raise SystemExit(3)"], Console(file=io.StringIO()))
