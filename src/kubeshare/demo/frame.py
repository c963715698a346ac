"""What demos have in common: a lab with KubeShare installed."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console

from kubeshare.install import manifests, rollout
from kubeshare.kube.client.client import Client
from kubeshare.lab.cluster import Lab, Shape

_ROLLOUT_SECONDS = 180.0


@contextmanager
def lab_with_kubeshare(shape: Shape, image: str, console: Console, *, keep: bool) -> Iterator[Lab]:
    """A lab of its own on which KubeShare runs; it is taken down at the end, unless kept."""
    with booted_lab(shape, keep=keep) as lab:
        asyncio.run(install(lab.kubeconfig, image, console))
        yield lab


@contextmanager
def booted_lab(shape: Shape, *, keep: bool) -> Iterator[Lab]:
    """A lab of its own without KubeShare; it is taken down at the end, unless kept."""
    lab = Lab("demo")
    try:
        lab.up(shape)
        yield lab
    finally:
        if not keep:
            lab.down()


async def install(kubeconfig: Path, image: str, console: Console) -> None:
    """Install KubeShare on a cluster, and show the progress."""
    loaded = manifests.load(manifests.Options(image=image))
    async with Client.connect(kubeconfig) as client:
        await rollout.install(
            client,
            loaded,
            deadline=_ROLLOUT_SECONDS,
            say=lambda line: console.print(f"install: {line}"),
        )
