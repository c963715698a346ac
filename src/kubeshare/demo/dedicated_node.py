"""Dedicates a node to one family, and waits for its pods."""

import json
from typing import Any

from rich.console import Console

from kubeshare.demo.cluster import Cluster


class DedicatedNode:
    """One node of the demo's cluster.

    Args:
        cluster: with the namespace of the demo.
        name: of the node.
        console: where to show what happens.
    """

    def __init__(self, cluster: Cluster, name: str, console: Console) -> None:
        self.cluster = cluster
        self.name = name
        self.console = console

    def dedicate(self, family: str, *labels: str, resources: tuple[str, ...]) -> list[int]:
        """Let KubeShare own the node's GPUs for a family.

        Args:
            family: its name, for people.
            labels: of the node, which say so.
            resources: that the node offers then.

        Returns:
            The allocatable amount of each resource.

        Raises:
            DemoError: it does not offer them in time.
        """
        self.cluster.kubectl("label", "node", self.name, "kubeshare.nthu/gpus=owned", *labels)

        def offered() -> list[int] | None:
            node = json.loads(self.cluster.kubectl("get", "node", self.name, "-o", "json"))
            allocatable = node["status"]["allocatable"]
            amounts = [int(allocatable.get(each, 0)) for each in resources]
            return amounts if all(amounts) else None

        amounts = self.cluster.wait(offered, f"{self.name} to offer {' and '.join(resources)}")
        words = ", ".join(
            f"{each} {amount}" for each, amount in zip(resources, amounts, strict=True)
        )
        self.console.print(f"{self.name} is dedicated to {family}: {words}")
        return amounts

    def until_placed(self, pod: str, annotation: str) -> str:
        """Wait until a pod runs; returns the annotation that names its GPUs.

        Raises:
            DemoError: it does not run in time.
        """

        def running() -> str | None:
            found = self.cluster.get("pod", pod)
            if found["status"].get("phase") != "Running":
                return None
            gpus: str | None = found["metadata"].get("annotations", {}).get(annotation)
            return gpus

        return self.cluster.wait(running, f"pod {pod} to run", f"pod/{pod}")

    def show(self, command: str, output: str) -> None:
        """Print what a command said about the node."""
        self.console.print(f"\n$ {command}")
        self.console.print(output, highlight=False, soft_wrap=True)


def pod(
    name: str, namespace: str, limits: dict[str, int], container: dict[str, Any]
) -> dict[str, Any]:
    """A pod whose container asks for amounts of resources, and is not started again."""
    resources = {"limits": {each: str(amount) for each, amount in limits.items()}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "containers": [container | {"resources": resources}],
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
        },
    }
