"""``kubeshare plan``: where the pods of a scenario file would be placed.

It prints one answer a line, as soon as it is known, and goes through the same
dialects and core as the cluster does.
"""

import json
from collections.abc import Callable, Iterator
from typing import BinaryIO, TypeAlias

import click

from kubeshare.core.decision import Decision
from kubeshare.core.errors import InvalidValueError
from kubeshare.core.queue import Queue
from kubeshare.dialects.scenario import Fail, Refused, Release, Request, Scenario, read_scenario
from kubeshare.dialects.strict_yaml import MAX_BYTES

Answer: TypeAlias = tuple[int, str, Decision]
"""The number of the event that asked, the name, and the decision."""


@click.command(epilog="Example: kubeshare plan scenario.yaml -o json")
@click.argument("scenario", type=click.File("rb"))
@click.option(
    "-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True
)
def plan(scenario: BinaryIO, output: str) -> None:
    """Say where the pods of SCENARIO (a YAML file, or - for the standard input) would be placed.

    With -o json each answer is one JSON object on a line of its own.
    """
    text = scenario.read(MAX_BYTES + 1)
    source = str(getattr(scenario, "name", "<stdin>"))
    show = _FORMATS[output]
    for answer in answers(read_scenario(text, source)):
        click.echo(show(*answer))


def answers(scenario: Scenario) -> Iterator[Answer]:
    """Play a scenario; it is used up by that.

    Yields:
        an answer for each request, and one more when a request that waited is bound.

    Raises:
        FileError: a GPU fails that is not there.
    """
    queue = Queue(scenario.ledger, scenario.policy)
    asked: dict[str, int] = {}  # uid of a demand that may wait -> number of its event
    for number, event in enumerate(scenario.events):
        match event:
            case Request(demand):
                decision = queue.submit(demand)
                if decision.outcome == "pending":
                    asked[demand.uid] = number
                yield number, demand.name, decision
            case Refused(name, error):
                yield number, name, _refusal(error)
            case Release(demand_uid):
                asked.pop(demand_uid, None)
                for demand, decision in queue.release(demand_uid):
                    yield asked.pop(demand.uid), demand.name, decision
            case Fail():
                _fail(scenario, event)


def _refusal(error: InvalidValueError) -> Decision:
    return Decision(outcome="rejected", reasons={error.field: error.message}, field=error.field)


def _fail(scenario: Scenario, event: Fail) -> None:
    device = scenario.ledger.devices.get(event.device_id)
    if device is None or device.node != event.node:
        event.where.fail(f"node {event.node} has no vGPU {event.device_id}")
    scenario.ledger.mark(device.id, healthy=False)


def _as_json(number: int, name: str, decision: Decision) -> str:
    answer: dict[str, object] = {
        "event": number,
        "name": name,
        "decision": decision.outcome,
        "node": decision.node,
        "gpus": list(decision.devices),
        "created": decision.created,
        "reasons": decision.reasons,
    }
    if decision.field is not None:
        answer["field"] = decision.field
    return json.dumps(answer)


def _as_text(number: int, name: str, decision: Decision) -> str:
    head = [f"{number}: {name}: {decision.outcome}"]
    head += [f"{decision.node}/{device_id}" for device_id in decision.devices]
    head += ["(new)"] if decision.created else []
    head += [f"({decision.field})"] if decision.field else []
    lines = [" ".join(head)]
    lines += [f"    {place}: {reason}" for place, reason in decision.reasons.items()]
    return "\n".join(lines)


_FORMATS: dict[str, Callable[[int, str, Decision], str]] = {"json": _as_json, "text": _as_text}
