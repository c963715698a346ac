"""Which policy is in force on a node: that of its label, or of the option."""

import asyncio

import pytest

from fakes.node import NODE, Cluster, Running
from fakes.recorder import FakeRecorder
from kubeshare.api.types.constants import LABEL_ESCAPES
from kubeshare.kube.resources import NODES
from kubeshare.node.agent import Agent
from kubeshare.node.escapes.policy import EscapePolicy
from kubeshare.simulator.control import FakeApiServer, run_virtual


def label(server: FakeApiServer, value: str | None) -> None:
    labels = {} if value is None else {LABEL_ESCAPES: value}
    server.change(NODES, NODE, "", lambda node: node["metadata"].update(labels=labels))


def with_agent(agent: Running, values: list[str | None], server: FakeApiServer) -> list[str]:
    """The policies of an agent after each value of the label; it reports by default."""

    async def main() -> list[str]:
        async with agent() as running:
            return [await policy_after(running, value) for value in values]

    async def policy_after(running: Agent, value: str | None) -> EscapePolicy:
        label(server, value)
        await asyncio.sleep(1)
        return running.escape_policy.now()

    return run_virtual(main())


def test_the_label_of_a_node_sets_the_policy_while_it_is_there(
    cluster: Cluster, server: FakeApiServer, agent: Running
) -> None:
    values = [None, "kill", "report", "kill", None]
    assert with_agent(agent, values, server) == ["report", "kill", "report", "kill", "report"]


@pytest.mark.parametrize("value", ["", "Kill", "none"])
def test_a_label_that_names_no_policy_is_reported_and_changes_nothing(
    cluster: Cluster,
    server: FakeApiServer,
    agent: Running,
    monkeypatch: pytest.MonkeyPatch,
    value: str,
) -> None:
    recorder = FakeRecorder()
    monkeypatch.setattr("kubeshare.node.agent.EventRecorder", lambda *_: recorder)
    assert with_agent(agent, ["kill", value, value], server) == ["kill", "report", "report"]
    [(about, reason, _, note, kind)] = recorder.emitted
    assert (about.kind, about.name, reason, kind) == ("Node", NODE, "InvalidLabel", "Warning")
    assert note == (
        f"its label {LABEL_ESCAPES} says {value!r}, which is neither report nor kill; report is in "
        "force"
    )
