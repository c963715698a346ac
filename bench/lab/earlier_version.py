"""Installs KubeShare of an earlier commit on a lab, as its own image and manifests."""

import os
import subprocess
import sys
from pathlib import Path

from kubeshare.lab.cluster import Lab
from kubeshare.lab.images import binaries

_ROOT = Path(__file__).parents[2]
_IMAGE = "kubeshare:before"
_TARGETS = ("libkubeshare-vgpu.so", "burn", "fakegpu-stat")
_ARCHIVE = f"""
import sys
from pathlib import Path
from kubeshare.lab.images import images
from kubeshare.lab.progress import Progress

folder = Path(sys.argv[1])
images.KUBESHARE_IMAGE = "docker.io/library/{_IMAGE}"
layers = images.kubeshare_layers(folder, Progress())
images.write_kubeshare_archive(folder / "before.tar", layers, set())
"""
"""Run by the earlier version: its own code decides what its image has."""
_COMMAND = "from kubeshare.cli.main import main; raise SystemExit(main())"


class EarlierVersion:
    """The sources of a commit, with its native programs built.

    Args:
        commit: of this clone.
        folder: an empty one, for its sources.

    Raises:
        CalledProcessError: the clone does not have the commit, or a program does not build.
    """

    def __init__(self, commit: str, folder: Path) -> None:
        self._folder = folder
        archive = subprocess.run(
            ["git", "archive", commit], cwd=_ROOT, capture_output=True, check=True
        )
        subprocess.run(["tar", "-x", "-C", str(folder)], input=archive.stdout, check=True)
        zig = f"ZIG={sys.executable} -m ziglang"
        targets = [f"build/{name}" for name in _TARGETS]
        # driver_api's generator runs in the environment of this clone.
        python = f"PYTHON={sys.executable}"
        native = folder / "native"
        make = ["make", "-s", "-j2", "-C", str(native), zig, python, *targets]
        subprocess.run(make, stdout=sys.stderr, check=True)

    def install(self, lab: Lab) -> None:
        """Load its image into every node of a lab, and run its ``kubeshare install``."""
        self._run(_ARCHIVE, str(lab.layout.folder))
        ctr = str(binaries.everything(lab.progress)[1] / "ctr")
        archive = lab.layout.folder / "before.tar"
        for node in lab.nodes:
            node.machine.run(ctr, "-n=k8s.io", "images", "import", "--local", str(archive))
        archive.unlink()
        options = (f"--kubeconfig={lab.kubeconfig}", f"--image={_IMAGE}", "--wait=180")
        self._run(_COMMAND, "install", *options)

    def _run(self, script: str, *arguments: str) -> None:
        subprocess.run(
            [sys.executable, "-c", script, *arguments],
            env=os.environ | {"PYTHONPATH": str(self._folder / "src")},
            stdout=sys.stderr,
            check=True,
        )
