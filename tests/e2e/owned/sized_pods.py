"""Pods of some MiB each on the two GPUs of the owned node, and where the record has them."""

import json
from collections.abc import Collection
from typing import Any, Final

from e2e.owned.gpushare_pods import PREFIX, asking, published
from e2e.owned.node import OwnedNode
from e2e.space import REST, Space
from e2e.stage import Raw, eventually
from e2e.test_several_shares import LOOK_AROUND
from kubeshare.api.types.constants import CONDITION_POD_SCHEDULED

MANIFESTS, EXTENDER = DOORS = ("manifests", "extender")
_DEAF: Final = ("sleep", "3600")
_VARIABLES: Final = "import os; print(json.dumps(dict(os.environ)))"
PLACER: Final = {MANIFESTS: CONDITION_POD_SCHEDULED, EXTENDER: "PodScheduled"}
"""Door -> the condition in which the program behind it says why a pod waits."""


class SizedPods:
    """The pods of one namespace.

    Args:
        space: the namespace.
        node: where they run.
        door: by which they are placed.
    """

    def __init__(self, space: Space, node: OwnedNode, door: str) -> None:
        self.space = space
        self._api = space.stage.lab.api
        self._condition = PLACER[door]
        self._indices = {gpu["uuid"]: int(gpu["index"]) for gpu in node.devices}

    def create(self, name: str, *units: int, slow: bool = False, **annotations: str) -> None:
        """Create a pod with a container for each amount; ``c0`` is the first.

        It ends at once when it is deleted, or, where it is slow, when its time is over.
        """
        command = _DEAF if slow else REST
        containers = [
            asking(each, command) | {"name": f"c{number}"} for number, each in enumerate(units)
        ]
        self.create_of(name, containers, **annotations)

    def create_of(self, name: str, containers: list[Raw], **annotations: str) -> None:
        """Create a pod of these containers."""
        spec: dict[str, Any] = {"terminationGracePeriodSeconds": 1, "containers": containers}
        named = {f"kubeshare.nthu/{key}": value for key, value in annotations.items()}
        metadata = {"name": name, "annotations": named}
        self.space.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})

    def use(self, **amounts: tuple[int, int]) -> None:
        """Let memory be in use: of the GPU with an index, so much, by an affinity label.

        Of idle GPUs the one with the index 0 is used first.
        """
        for name, (index, units) in amounts.items():
            self.create(name, units, affinity=f"gpu-{index}")
        assert self.until_placed(*amounts) == {name: index for name, (index, _) in amounts.items()}

    def delete(self, *names: str, seconds: int = 1) -> None:
        """Delete pods, which have so long to end; 0 is by force."""
        for name in names:
            path = f"/api/v1/namespaces/{self.space.name}/pods/{name}"
            self._api.send("DELETE", path, {"gracePeriodSeconds": seconds})

    def until_gone(self, *names: str) -> None:
        """Delete pods and wait until they hold nothing."""
        self.delete(*names)
        eventually(
            lambda: not set(names) & self.placed().keys(),
            f"{', '.join(names)} to hold nothing",
            explain=self._describe,
        )

    def clear(self) -> None:
        """Delete all pods by force, and wait until nothing is held."""
        within = f"namespaces/{self.space.name}"
        by_force = {"gracePeriodSeconds": 0, "propagationPolicy": "Background"}
        for collection in (f"/apis/apps/v1/{within}/statefulsets", f"/api/v1/{within}/pods"):
            self._api.send("DELETE", collection, by_force)
        eventually(lambda: not self.placed(), "nothing to be held", explain=self._describe)

    def placed(self) -> dict[str, int]:
        """Each pod that holds memory -> the index of its GPU."""
        return {
            holder["name"]: self._indices[vgpu["spec"]["uuid"]]
            for vgpu in self.space.stage.vgpus()
            for holder in vgpu["status"].get("holders", [])
            if holder["namespace"] == self.space.name
        }

    def until_placed(self, *names: str) -> dict[str, int]:
        """Wait until pods hold memory and say so; returns the index of each one's GPU."""

        def look() -> dict[str, int] | None:
            placed = {name: at for name, at in self.placed().items() if name in names}
            done = set(placed) == set(names) and all(
                "IDX" in published(self.space, name) for name in names
            )
            return placed if done else None

        found = eventually(look, f"{', '.join(names)} to be placed", explain=self._describe)
        assert {name: int(published(self.space, name)["IDX"]) for name in names} == found
        return found

    def all_but_one_placed(self, names: Collection[str]) -> tuple[dict[str, int], str]:
        """Wait until all pods but one are placed; returns their GPUs, and the one that waits."""

        def look() -> dict[str, int] | None:
            placed = {name: at for name, at in self.placed().items() if name in names}
            return placed if len(placed) == len(names) - 1 else None

        placed = eventually(look, "all pods but one to be placed", explain=self._describe)
        [left] = set(names) - placed.keys()
        return self.until_placed(*placed), left

    def inside(self, name: str, container: str = "c0") -> tuple[dict[str, str], dict[str, int]]:
        """The variables of a container that runs, without gpushare's prefix; and its GPUs.

        Of each GPU, by its UUID, the memory that it has there.
        """
        self.space.until_phase(name, "Running")
        which = ("exec", "-n", self.space.name, name, "-c", container, "--")
        printed = self.space.stage.kubectl(*which, "python3", "-c", LOOK_AROUND + _VARIABLES)
        gpus, variables = map(json.loads, printed.splitlines())
        return {key.removeprefix(PREFIX): value for key, value in variables.items()}, gpus

    def expect_waiting(self, name: str, *words: str) -> None:
        """Wait until the program that places a pod has said why it waits, with these words."""

        def said() -> str:
            pod = self.space.find_pod(name)
            assert pod is not None
            found = [
                f"{each.get('reason')}: {each.get('message')}"
                for each in pod["status"].get("conditions", [])
                if (each["type"], each["status"]) == (self._condition, "False")
            ]
            return " ".join(found)

        eventually(
            lambda: all(each in said() for each in words),
            f"{name} to wait: {', '.join(words)}",
            explain=said,
        )
        assert name not in self.placed()

    def _describe(self) -> str:
        return self.space.stage.kubectl("describe", "pods", "-n", self.space.name)
