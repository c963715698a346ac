"""``make demo``: plays figure 6 on a lab or a kubeconfig's cluster."""

import asyncio
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

import click
from rich.console import Console

from kubeshare.demo import figure, gaia, gpushare, operate, show
from kubeshare.demo.cluster import Cluster, ConfiguredKubectl, DemoError
from kubeshare.demo.dedicated_node import DedicatedNode
from kubeshare.demo.frame import booted_lab, install, lab_with_kubeshare
from kubeshare.demo.meter import FakeGpuLog, KernelCounts, fake_gpu_of
from kubeshare.demo.play import Outcome, Pace, Play
from kubeshare.install import manifests, rollout
from kubeshare.kube.client.errors import ApiError, ConfigError
from kubeshare.lab.cluster import Lab, Shape
from kubeshare.lab.errors import LabError
from kubeshare.lab.images import binaries
from kubeshare.lab.node.gpus import DEVICE_PLUGIN
from kubeshare.native import NativeMissingError

TOLERANCE = 0.03
_FIGURE_6_LAB = Shape(nodes=2, gpus="V100x2")
_FIGURE_6_LAB_GPUS = 4


@click.command(epilog="Example: python -m kubeshare.demo --keep")
@click.argument(
    "demo", type=click.Choice(["figure-6", "gpushare", "gaia", "operate"]), default="figure-6"
)
@click.option("--keep", is_flag=True, help="Leave the lab up at the end, to look around.")
@click.option(
    "--kubeconfig",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Play on this cluster instead of a lab.",
)
@click.option("--image", default="kubeshare:dev", show_default=True, help="Image of all programs.")
@click.option(
    "--plot",
    "plot_path",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path("demo.png"),
    show_default=True,
    help="Where to draw.",
)
def main(demo: str, *, keep: bool, kubeconfig: Path | None, image: str, plot_path: Path) -> int:
    """Watch three pods share one GPU as they requested: figure 6 of the paper.

    On a lab of this machine, or with --kubeconfig on a cluster that is there. The demos "gpushare"
    and "gaia" run pods of Alibaba's gpushare and of Tencent's Gaia on a lab, where they take a node
    over; "operate" installs, upgrades and uninstalls KubeShare there with Helm, under running pods.
    """
    console = Console()
    started = time.monotonic()
    if demo in _ON_A_LAB:
        if kubeconfig:
            raise click.UsageError(f"{demo} changes the whole cluster: it has no --kubeconfig")
        play, what = _ON_A_LAB[demo]
        console.print(_what_comes(None, what))
        play(image, console, keep=keep)
        console.print(_time_since(started))
        console.print(_where_next(None, keep=keep, again=f"make demo DEMO={demo} KEEP=1"))
        return 0
    console.print(_what_comes(kubeconfig))
    if kubeconfig:
        outcome = _on_cluster(kubeconfig, image, console)
    else:
        outcome = _on_lab(console, image, keep=keep)
    show.plot(outcome.samples, outcome.results, plot_path)
    console.print(show.closing_table(outcome.results, outcome.source))
    console.print(figure.CAPTION, style="dim")
    console.print(f"plot: {plot_path}   {_time_since(started)}")
    console.print(_where_next(kubeconfig, keep=keep))
    return _verdict(outcome, console)


def _time_since(started: float) -> str:
    minutes, seconds = divmod(round(time.monotonic() - started), 60)
    return f"time: {minutes} min {seconds:02d} s"


def _what_comes(kubeconfig: Path | None, plays: str = "plays figure 6") -> str:
    if kubeconfig:
        return "This installs KubeShare on the cluster and plays figure 6 there: about two minutes."
    to_build = binaries.to_build()
    if not to_build:
        return f"This boots a Kubernetes with fake GPUs here and {plays} on it: two minutes."
    return (
        f"This builds {' and '.join(to_build)} from source, once: 15 to 20 minutes on two cores "
        "(stop it when you like: it goes on where it was). Then it boots a Kubernetes with fake "
        f"GPUs here and {plays} on it: two minutes.\n"
        "Without a cluster, in 30 seconds: .venv/bin/kubeshare run --fake V100x1 --request .3 "
        "--memory 1Gi -- native/build/burn --seconds 20"
    )


def _verdict(outcome: Outcome, console: Console) -> int:
    worst = max(result.worst for result in outcome.results)
    if worst > TOLERANCE:
        console.print(f"A share is {100 * worst:.1f} points off its target: more than 3.")
        return 1
    console.print(f"Every share is within {100 * worst:.1f} points of its target.")
    return 0


def _where_next(kubeconfig: Path | None, *, keep: bool, again: str = "make demo KEEP=1") -> str:
    if kubeconfig:
        return "Next: kubectl get shp,vgpu,gpunode    take it down: kubectl delete ns figure-6"
    if keep:
        return (
            "The lab is up. Look: .venv/bin/kubeshare lab kubectl -- get shp,vgpu,gpunode -A\n"
            "Take it down: .venv/bin/kubeshare lab down"
        )
    return f"The lab is down. `{again}` keeps it; README.md says what to try on it."


def _on_lab(console: Console, image: str, *, keep: bool) -> Outcome:
    with lab_with_kubeshare(_FIGURE_6_LAB, image, console, keep=keep) as lab:
        cluster = Cluster(lab.kubectl)
        count = _FIGURE_6_LAB_GPUS
        cluster.wait(lambda: cluster.gpu_count() == count, f"{count} GPUs to be found")
        states = {node.name: node.state_folder for node in lab.nodes}
        return Play(
            cluster,
            image=image,
            natives=count,
            meter_for=lambda place: FakeGpuLog(
                states[place.node], place.uuid, (job.name for job in figure.JOBS)
            ),
            gpu_of=lambda pod: fake_gpu_of(states.values(), pod),
            console=console,
            pace=Pace(),
        ).run()


@contextmanager
def _dedicated_node(
    shape: Shape, namespace: str, image: str, console: Console, *, keep: bool
) -> Iterator[tuple[Lab, DedicatedNode]]:
    """The only node of a lab, without a device plugin."""
    with lab_with_kubeshare(shape, image, console, keep=keep) as lab:
        [node] = lab.nodes
        lab.stop_component(f"{node.name}/{DEVICE_PLUGIN}")
        yield lab, DedicatedNode(Cluster(lab.kubectl, namespace), node.name, console)


def _gpushare_on_lab(image: str, console: Console, *, keep: bool) -> None:
    shape = Shape(nodes=1, gpus="V100x2")
    with _dedicated_node(shape, gpushare.NAMESPACE, image, console, keep=keep) as (lab, node):
        gpushare.GpushareDemo(node, image, partial(_kubeshare, lab, "inspect", "-d")).run()


def _gaia_on_lab(image: str, console: Console, *, keep: bool) -> None:
    shape = Shape(nodes=1, gpus=str(gaia.PROFILE))
    with _dedicated_node(shape, gaia.NAMESPACE, image, console, keep=keep) as (lab, node):
        gaia.GaiaDemo(node, image, partial(_kubeshare, lab, "topo", node.name)).run()


def _kubeshare(lab: Lab, *arguments: str) -> str:
    """What the command prints about a lab."""
    done = subprocess.run(  # noqa: S603 - our own arguments
        _command(lab, *arguments), capture_output=True, text=True, check=True, timeout=60
    )
    return done.stdout


def _command(lab: Lab, *arguments: str) -> list[str]:
    program = Path(sys.executable).with_name("kubeshare")
    return [str(program), *arguments, "--kubeconfig", str(lab.kubeconfig)]


def _operate_on_lab(image: str, console: Console, *, keep: bool) -> None:
    with booted_lab(_FIGURE_6_LAB, keep=keep) as lab:
        operate.OperateDemo(
            Cluster(lab.kubectl, operate.NAMESPACE),
            operate.Helm(binaries.helm(lab.progress) / "helm", lab.kubeconfig, console),
            partial(_kubeshare, lab),
            page=lambda: operate.read_page(_command(lab, "web"), console),
            gpus=_FIGURE_6_LAB_GPUS,
            image=image,
            console=console,
        ).run()


_ON_A_LAB: Final[Mapping[str, tuple[Callable[..., None], str]]] = {
    "gpushare": (_gpushare_on_lab, "runs pods of gpushare"),
    "gaia": (_gaia_on_lab, "runs pods of gaia"),
    "operate": (_operate_on_lab, "operates KubeShare"),
}
"""The demos that change a whole cluster, and what they do."""


def _on_cluster(kubeconfig: Path, image: str, console: Console) -> Outcome:
    """No native pods on a cluster that is in use: they would take all its GPUs."""
    asyncio.run(install(kubeconfig, image, console))
    kubectl = ConfiguredKubectl(kubeconfig)
    return Play(
        Cluster(kubectl),
        image=image,
        natives=0,
        meter_for=lambda _: KernelCounts(kubectl, (job.name for job in figure.JOBS)),
        gpu_of=lambda _: None,
        console=console,
        pace=Pace(),
    ).run()


_TOLD = (
    DemoError,
    LabError,
    rollout.RolloutError,
    manifests.ManifestError,
    NativeMissingError,
    ConfigError,
    ApiError,
)
"""Expected errors; one without an exit code means that something could not be reached."""


def _run() -> int:
    # A SIGTERM takes the lab down as well.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        result = main(standalone_mode=False)
    except click.Abort:
        return 130
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except _TOLD as error:
        click.echo(f"demo: {error}", err=True)
        return getattr(error, "exit_code", 3)
    return result if isinstance(result, int) else 0


if __name__ == "__main__":
    sys.exit(_run())
