"""`make demo DEMO=operate`: Helm installs, upgrades and removes KubeShare under running pods."""

import io
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from kubeshare.demo import operate
from kubeshare.demo.cluster import Cluster
from kubeshare.lab.cluster import Shape
from kubeshare.lab.images import binaries
from labs import GONE, lab_of_this_run

pytestmark = pytest.mark.lab


def test_a_release_is_operated_under_running_pods() -> None:
    lab = lab_of_this_run(GONE)
    console = Console(file=io.StringIO(), width=200)

    def command(*arguments: str) -> list[str]:
        kubeconfig = ("--kubeconfig", str(lab.kubeconfig))
        return [sys.executable, "-m", "kubeshare.cli.main", *arguments, *kubeconfig]

    def kubeshare(*arguments: str) -> str:
        done = subprocess.run(command(*arguments), check=True, capture_output=True, text=True)
        return done.stdout

    try:
        lab.up(Shape(nodes=1, gpus="V100x2"))
        helm: Path = binaries.helm(lab.progress) / "helm"
        operate.OperateDemo(
            Cluster(lab.kubectl, operate.NAMESPACE),
            operate.Helm(helm, lab.kubeconfig, console),
            kubeshare,
            page=lambda: operate.read_page(command("web"), console),
            gpus=2,
            image="kubeshare:dev",
            console=console,
        ).run()
        left = lab.kubectl("get", "deployments,daemonsets,pods", "-n", "kubeshare-system")
        assert "kubeshare-" not in left
    finally:
        lab.down()
