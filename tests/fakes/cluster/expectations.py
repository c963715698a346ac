"""What tests say about SharePods."""

from fakes.cluster.world import World


class Scheduled:
    """A SharePod that has its GPU."""

    def __init__(self, world: World, name: str) -> None:
        self._sharepod = world.sharepod(name)
        self.gpuid: str = self._sharepod["spec"]["gpu"]["id"]
        self.node: str = self._sharepod["spec"]["nodeName"]
        assert name in world.vgpus()[self.gpuid], f"{name} holds no part of {self.gpuid}"

    def on(self, gpuid: str) -> "Scheduled":
        assert self.gpuid == gpuid
        return self

    def on_node(self, node: str) -> "Scheduled":
        assert self.node == node
        return self


class Pending:
    """A SharePod that waits."""

    def __init__(self, world: World, name: str) -> None:
        self._condition = world.condition(name, "Scheduled")
        self._events = world.events(name)
        sharepod = world.sharepod(name)
        assert not sharepod["spec"].get("nodeName"), f"{name} is on {sharepod['spec']['nodeName']}"
        assert self._condition.get("status") == "False"

    def because(self, *words: str, reason: str = "NoRoom") -> "Pending":
        assert self._condition["reason"] == reason
        for word in words:
            assert word in self._condition["message"]
            assert any(word in event for event in self._events)
        return self


def expect_scheduled(world: World, name: str) -> Scheduled:
    """The SharePod has a GPU, a node and a part of that GPU."""
    return Scheduled(world, name)


def expect_pending(world: World, name: str) -> Pending:
    """The SharePod has none of them, and its condition and an event say so."""
    return Pending(world, name)
