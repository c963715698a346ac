"""Takes the GPUs out of a node of the lab, and puts others in, as in a machine that is refitted."""

import shutil
from pathlib import Path
from typing import Final

from e2e.owned.node import OwnedNode
from e2e.stage import NODE_AGENT, eventually
from kubeshare.lab.files import replace
from kubeshare.lab.node import gpus

_LIBRARY: Final = "usr/lib64/libnvidia-ml.so.1"
_SPEC: Final = "cdi/nvidia.yaml"


def take_out(node: OwnedNode) -> None:
    """Leave a node without GPUs and driver; its next agent finds none.

    Its agent is replaced, since NVIDIA's library stays in a process that has loaded it.
    """
    stage, folder = node.stage, _folder(node)
    (folder / "driver" / _LIBRARY).unlink(missing_ok=True)
    gone = stage.containers(NODE_AGENT, node.name)
    stage.delete_pod(NODE_AGENT, node.name)
    stage.until_ready(NODE_AGENT, node.name, but=gone)
    for leftover in stage.node(node.name).state_folder.iterdir():
        leftover.unlink()
    shutil.rmtree(folder / "driver/sys", ignore_errors=True)
    _until_devices(node, 0)


def put_in(node: OwnedNode, profile: str) -> None:
    """Put the GPUs of a profile into a node that has none, and wait until each has a vGPU.

    What waits for a GPU may hold one by then.
    """
    machine = node.stage.node(node.name)
    gpus.install(machine.layout, profile)
    replace(machine.machine.path("/etc") / _SPEC, (_folder(node) / _SPEC).read_text())
    _until_devices(node, gpus.count(profile))
    eventually(
        lambda: node.static().keys() == {gpu["uuid"] for gpu in node.devices},
        "a static vGPU for each GPU",
        explain=lambda: str(node.stage.vgpus()),
    )


def _folder(node: OwnedNode) -> Path:
    return node.stage.node(node.name).layout.folder


def _until_devices(node: OwnedNode, count: int) -> None:
    eventually(
        lambda: len(node.devices) == count,
        f"{count} GPUs to be found",
        explain=lambda: str(node.gpunode()),
    )
