"""``kubeshare plan``: prints where pods of a scenario would be placed.

Each answer is one line, printed as soon as it is known. The dialects and the core are those
that the cluster runs.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import BinaryIO, Final, NamedTuple

import click
import msgspec

from kubeshare.cli.output import output_option
from kubeshare.cli.plan.defragmentation import DefragmentationPlan
from kubeshare.core.decision import Decision, device_names
from kubeshare.core.diagnosis.explain import Change, shortest_change
from kubeshare.core.errors import InvalidValueError
from kubeshare.core.gang_preemption import change_for_gang
from kubeshare.core.simulation import Bound, PlacementQueue
from kubeshare.dialects.scenario.request import MIN_AVAILABLE, NEAR
from kubeshare.dialects.scenario.scenario import (
    Fail,
    Refused,
    Release,
    Request,
    Scenario,
    read_scenario,
)
from kubeshare.explain.decision_output import as_fields, as_lines

_WRITTEN: Final[Mapping[str, str]] = {
    "priority": "priority",
    "min_available": MIN_AVAILABLE,
    "near": NEAR,
}
"""Gang settings on which all members must agree -> their names in the file."""


class Answer(NamedTuple):
    """An answer to a request of a scenario.

    Attributes:
        number: of the event that asked.
        name: of the request.
        decision: in the file's own names.
        change: the smallest change that would place it, where that was asked and it is pending.
    """

    number: int
    name: str
    decision: Decision
    change: Change | None = None


@click.command(
    epilog="\b\nExamples:\n  kubeshare plan scenario.yaml -o json\n"
    "  kubeshare plan --explain scenario.yaml\n"
    "  kubeshare plan --defragment scenario.yaml"
)
@click.argument("scenario", type=click.File("rb"))
@output_option("text", "json")
@click.option("--explain", is_flag=True, help="Of what waits say also whose leaving would help.")
@click.option(
    "--defragment",
    is_flag=True,
    help="After the events, say which pods would free whole GPUs if they were evicted and placed "
    "again, the cheapest first. Nothing is moved.",
)
def plan(scenario: BinaryIO, output: str, *, explain: bool, defragment: bool) -> None:
    """Say where the pods of SCENARIO (a YAML file, or - for the standard input) would be placed.

    With -o json each answer is one JSON object on a line of its own.
    """
    source = str(getattr(scenario, "name", "<stdin>"))
    show = _FORMATS[output]
    read = read_scenario(scenario, source)
    moves = DefragmentationPlan(read) if defragment else None
    for answer in answers(moves.scenario if moves else read, explain=explain):
        # Flushed at once: a caller that pipes events in may wait for each answer.
        click.echo(show(answer))
    for line in moves.lines(output) if moves else ():
        click.echo(line)


def answers(scenario: Scenario, *, explain: bool = False) -> Iterator[Answer]:
    """Play a scenario, which consumes its events.

    Args:
        scenario: as it was read.
        explain: compute for each pending request the smallest change that would place it.

    Yields:
        an answer for each request, and another one when a pending request is bound.

    Raises:
        FileError: an event is not valid.
    """
    queue = PlacementQueue(scenario.ledger, scenario.policy)
    asked: dict[str, int] = {}  # uid of a demand that may be pending -> number of its event
    for number, event in enumerate(scenario.events):
        bound: Iterable[Bound] = ()
        match event:
            case Request(demand):
                try:
                    decision, bound = _ask(queue, event)
                except InvalidValueError as error:
                    yield Answer(number, demand.name, _refusal(error.under(_WRITTEN[error.field])))
                    continue
                change = None
                if decision.outcome == "pending":
                    asked[demand.uid] = number
                    if explain:
                        change = _change(scenario, queue, event)
                yield Answer(number, demand.name, _in_its_words(scenario, decision), change)
            case Refused(name, error):
                yield Answer(number, name, _refusal(error))
            case Release(demand_uid):
                asked.pop(demand_uid, None)
                bound = queue.release(demand_uid)
            case Fail():
                scenario.ledger.mark(scenario.failed(event).id, healthy=False)
        for demand, decision in bound:
            words = _in_its_words(scenario, decision)
            yield Answer(asked.pop(demand.uid), demand.name, words)


def _ask(queue: PlacementQueue, request: Request) -> tuple[Decision, Iterable[Bound]]:
    """Answer a request, and those of its gang that are bound with it.

    Raises:
        InvalidValueError: its gang settings differ from its gang's.
    """
    demand, standing = request.demand, request.standing
    if standing.gang is None:
        return queue.submit(demand, standing.priority), ()
    return queue.join(demand, standing.gang, standing.priority)


def _change(scenario: Scenario, queue: PlacementQueue, request: Request) -> Change | None:
    """Compute the smallest change that would bind a pending request."""
    gang = request.standing.gang
    if gang is None:
        return shortest_change(scenario.policy, scenario.ledger, request.demand)
    waiting = queue.waiting(request.demand, gang)
    if waiting.needed > len(waiting.members):
        return None  # other members have to be created first
    return change_for_gang(
        scenario.policy,
        scenario.ledger,
        waiting.members,
        needed=max(1, waiting.needed),
        stay=waiting.placed,
        near=waiting.near,
    )


def _in_its_words(scenario: Scenario, decision: Decision) -> Decision:
    """Translate a decision to the file's names of GPUs and fields."""
    names = device_names(decision, scenario.ledger.devices)
    field = decision.field
    if field is None:
        return msgspec.structs.replace(decision, devices=names)
    written: Mapping[str, str] = scenario.written
    reasons = {written.get(place, place): why for place, why in decision.reasons.items()}
    return msgspec.structs.replace(decision, reasons=reasons, field=written.get(field, field))


def _refusal(error: InvalidValueError) -> Decision:
    return Decision(outcome="rejected", reasons={error.field: error.message}, field=error.field)


def _as_json(answer: Answer) -> str:
    asked = {"event": answer.number, "name": answer.name}
    return json.dumps(asked | as_fields(answer.decision, answer.change))


def _as_text(answer: Answer) -> str:
    head = f"{answer.number}: {answer.name}:"
    return "\n".join(as_lines(head, answer.decision, answer.change))


_FORMATS: dict[str, Callable[[Answer], str]] = {"json": _as_json, "text": _as_text}
