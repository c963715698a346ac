"""Runs the lab's Helm on the chart."""

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

CHART: Final = Path(__file__).parents[2] / "deploy" / "chart" / "kubeshare"
IMAGE: Final = {"repository": "registry.example/kubeshare", "tag": "1.2.3"}

Raw = dict[str, Any]


class HelmError(Exception):
    """Helm refused; the message is what it printed."""


class Helm:
    """Helm, with the values of a test.

    Args:
        programs: the folder with ``helm``.
        home: a folder of its own for what it keeps.
        kubeconfig: of the cluster, for commands that need one.
    """

    def __init__(self, programs: Path, home: Path, kubeconfig: Path | None = None) -> None:
        self._program = programs / "helm"
        self._environment = {
            "HOME": str(home),
            "PATH": "/usr/bin:/bin",
            "KUBECONFIG": str(kubeconfig or home / "none"),
        }

    def __call__(self, *arguments: str, values: Mapping[str, Any] | None = None) -> str:
        """What a command prints.

        Raises:
            HelmError: it failed.
        """
        done = subprocess.run(
            [self._program, *arguments, *(["--values", "-"] if values is not None else [])],
            input=json.dumps(values) if values is not None else None,
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise HelmError(done.stderr + done.stdout)
        return done.stdout

    def render(self, namespace: str = "kubeshare-system", **values: Any) -> list[Raw]:
        """The objects of a release with these values, hooks included."""
        given = {"image": IMAGE} | values
        text = self("template", "r", str(CHART), "--namespace", namespace, values=given)
        return [one for one in yaml.safe_load_all(text) if one]


def hook_of(manifest: Raw) -> str:
    """The hook that an object belongs to; ``""`` for an object of the release."""
    annotations: dict[str, str] = manifest["metadata"].get("annotations", {})
    return annotations.get("helm.sh/hook", "")
