"""A real kube-scheduler that is configured with the extender, and what the extender answers."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import yaml

from e2e import pages
from e2e.owned.node import OwnedNode
from e2e.stage import Raw, Stage
from kubeshare.api.types.constants import NAMESPACE
from kubeshare.install import manifests
from kubeshare.lab import configuration

EXAMPLES: Final = pages.ROOT / "examples"
SCHEDULER: Final = "kube-scheduler"
_SERVICE: Final = f"/api/v1/namespaces/{NAMESPACE}/services/kubeshare-extender:extender/proxy"
_PREFIX: Final = f"{_SERVICE}/gpushare-scheduler"


@contextmanager
def calling_the_extender(stage: Stage, node: OwnedNode) -> Iterator[None]:
    """Within, both replicas of the extender run, and kube-scheduler calls them for gpushare.

    Which door is open is for the caller to configure; afterwards the defaults are in force.
    """
    pages.run(stage, pages.script("extender"))
    restart_scheduler(stage, with_the_extender(node, kubeconfig_of(stage), "gpushare"))
    yield
    restart_scheduler(stage, configuration.scheduler_arguments(kubeconfig_of(stage)))
    stage.configure()
    ours = manifests.load(manifests.Options(extender=True))
    installed = [each for each in ours if each["metadata"]["name"] == "kubeshare-extender"]
    stage.kubectl("delete", "-f", "-", "--ignore-not-found", stdin=yaml.safe_dump_all(installed))


def kubeconfig_of(stage: Stage) -> Path:
    """The kubeconfig of kube-scheduler."""
    return stage.lab.layout.folder / f"{SCHEDULER}.kubeconfig"


def with_the_extender(node: OwnedNode, kubeconfig: Path, family: str) -> list[str]:
    """The command line of kube-scheduler with the shipped configuration.

    Args:
        node: where it calls the extender.
        kubeconfig: with which it calls the API server.
        family: the manifest family whose pods the extender places.
    """
    addresses = {each["type"]: each["address"] for each in node.raw()["status"]["addresses"]}
    text = (EXAMPLES / family / "kube-scheduler.yaml").read_text()
    written = yaml.safe_load(text.replace("NODE_ADDRESS", addresses["InternalIP"]))
    written["clientConnection"]["kubeconfig"] = str(kubeconfig)
    written["leaderElection"] = {"leaderElect": False}
    path = kubeconfig.parent / "kube-scheduler-with-the-extender.yaml"
    path.write_text(yaml.safe_dump(written))
    access = [f"--{what}-kubeconfig={kubeconfig}" for what in ("authentication", "authorization")]
    return [SCHEDULER, f"--config={path}", *access, "--bind-address=127.0.0.1"]


def restart_scheduler(stage: Stage, arguments: list[str]) -> None:
    """Run kube-scheduler with another command line than before."""
    stage.lab.stop_component(f"{stage.lab.control_plane.name}/{SCHEDULER}")
    program = str(stage.lab.api.programs / SCHEDULER)
    stage.lab.control_plane.start(SCHEDULER, [program, *arguments[1:]])


def inspected(stage: Stage, node: str) -> dict[int, tuple[int, int]]:
    """Index of each GPU of the node -> its units in use and in all, as the extender sees it."""
    [found] = json.loads(stage.kubectl("get", "--raw", f"{_PREFIX}/inspect/{node}"))["nodes"]
    return {each["id"]: (each["usedGPU"], each["totalGPU"]) for each in found["devs"]}


def call(stage: Stage, verb: str, arguments: Raw | str) -> Raw:
    """What the extender answers to a call.

    Raises:
        LabError: it answers with another status than 200; the message has both.
    """
    # A body that is no object is of the wrong shape all the same.
    answer: Raw = stage.lab.api.requests.send("POST", f"{_PREFIX}/{verb}", arguments)
    return answer
