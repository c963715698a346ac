"""A node that is taken over and given back by the commands of its page."""

from pathlib import Path
from typing import Final

from e2e import ownership, pages
from e2e.stage import Raw, Stage, eventually
from kubeshare.api.types.constants import POOL_STATIC
from kubeshare.lab.node import gpus

_PAGE: Final = "nodes-and-gpus"
_FAMILIES: Final = ("kubeshare.nthu/family", "gpushare", "cgpu.disable.isolation")
"""The labels that tests give the node, to dedicate it to a manifest family."""


class OwnedNode:
    """A node whose GPUs KubeShare owns.

    Args:
        stage: the lab.
    """

    name: Final = "node-1"

    def __init__(self, stage: Stage) -> None:
        self.stage = stage

    def raw(self) -> Raw:
        """Its Node."""
        found: Raw = self.stage.lab.api.get(f"/api/v1/nodes/{self.name}")
        return found

    def gpunode(self) -> Raw:
        """Its GPUNode."""
        return self.stage.gpunode(self.name)

    @property
    def devices(self) -> list[Raw]:
        """Its GPUs, as its agent has reported them."""
        found: list[Raw] = self.gpunode()["spec"].get("devices", [])
        return found

    def static(self) -> dict[str, list[str]]:
        """UUID of each static vGPU -> the names of its holders."""
        return {
            vgpu["spec"]["uuid"]: [each["name"] for each in vgpu["status"].get("holders", [])]
            for vgpu in self.stage.vgpus()
            if vgpu["spec"]["pool"] == POOL_STATIC
        }

    # Its owner

    def take_over(self) -> None:
        """Stop its device plugin, and run the commands of the page."""
        self.stop_plugin()
        pages.run(self.stage, pages.script(_PAGE, "Take a node over"))
        self.until_free()

    def give_back(self) -> None:
        """Run the commands of the page; the device plugin runs then, whatever came of them."""
        try:
            pages.run(self.stage, pages.script(_PAGE, "Give a node back"), node=self.name)
            assert self.static() == {}
        finally:
            gpus.start_device_plugin(self.stage.node(self.name).machine)
            eventually(
                lambda: self.name in self.stage.lab.ready_nodes(), f"{self.name} to offer its GPUs"
            )

    def stop_plugin(self) -> None:
        """Stop its device plugin, as a GPU operator does at the label of the page."""
        self.stage.lab.stop_component(f"{self.name}/{gpus.DEVICE_PLUGIN}")

    def until_owned(self, reason: str = "Owned") -> None:
        """Wait until its condition Owned has a reason."""
        ownership.until_owned(self.stage, self.name, reason)

    def until_free(self) -> None:
        """Wait until each of its GPUs has a static vGPU, and none has a holder."""
        eventually(
            lambda: self.static() == {gpu["uuid"]: [] for gpu in self.devices},
            "a free static vGPU for each GPU",
            explain=lambda: str(self.stage.vgpus()),
        )

    def restart_kubelet(self) -> None:
        """Kill its kubelet and start it again; a device plugin that does not run stays away."""
        name = f"{self.name}/kubelet"
        command = Path(f"/proc/{self.stage.lab.component(name).pid}/cmdline").read_text()
        self.stage.lab.stop_component(name, gently=False)
        self.stage.node(self.name).machine.start("kubelet", command.rstrip("\0").split("\0"))

    # Its family

    def dedicate_to_none(self) -> None:
        """Remove the labels that dedicate it to a manifest family."""
        self.stage.kubectl("label", "node", self.name, *(f"{label}-" for label in _FAMILIES))

    def until_allocatable(self, expected: dict[str, str]) -> None:
        """Wait until it offers just so much of some resources."""

        def offered() -> dict[str, str | None]:
            allocatable = self.raw()["status"]["allocatable"]
            return {resource: allocatable.get(resource) for resource in expected}

        eventually(
            lambda: offered() == expected,
            f"{self.name} to offer {expected}",
            explain=lambda: str(offered()),
        )
