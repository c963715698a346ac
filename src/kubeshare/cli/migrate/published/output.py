"""Formats what ``kubeshare migrate kubeshare`` answers."""

from typing import Any

from kubeshare.cli.migrate.published.model import Former
from kubeshare.cli.migrate.published.restoring import Restored
from kubeshare.cli.migrate.published.steps import NOT_CARRIED, next_command, notes, problems, steps
from kubeshare.cli.output import aligned

Answer = Former | Restored

_NONE = "There is no KubeShare of version 1 or 2 on this cluster."


def formatted(answer: Answer) -> tuple[str, dict[str, Any], int]:
    """An answer as text and as fields, and the exit code: 1 where a person has to do more."""
    if isinstance(answer, Restored):
        return _restored_text(answer), {"done": list(answer.done), "next": list(answer.next)}, 0
    return _plan_text(answer), _plan_fields(answer), int(any(problems(answer)))


def _plan_text(former: Former) -> str:
    if not former.is_there and not any(problems(former)):
        return _NONE if former.installed else f"{_NONE}\nnext: {next_command(former)}"
    done = [f"{number}. {step}" for number, step in enumerate(steps(former), 1)]
    lines = ["To be done by --apply:", *done] if done else ["Nothing is left for --apply."]
    lines += [f"problem: {each}" for each in problems(former)]
    lines += [f"note: {each}" for each in notes(former)]
    lines += ["", *aligned([("NOT CARRIED OVER", "INSTEAD"), *NOT_CARRIED])]
    if command := next_command(former):
        lines += ["", f"next: {command}"]
    return "\n".join(lines)


def _plan_fields(former: Former) -> dict[str, Any]:
    return {
        "system": "kubeshare",
        "found": former.is_there,
        "steps": list(steps(former)),
        "problems": list(problems(former)),
        "notes": list(notes(former)),
        "programs": [
            {"kind": each.resource.kind, "name": each.name, "running": each in former.running}
            for each in former.programs
        ],
        "storedVersions": list(former.stored_versions),
        "pods": [
            {"pod": each.title, "node": each.node, "gpuid": each.gpuid} for each in former.pods
        ],
        "placeholders": [each.title for each in former.placeholders],
        "sharepods": [
            {"name": each.title, "oldStatus": list(each.old_keys), "problem": each.problem}
            for each in former.sharepods
        ],
        "notCarriedOver": [{"what": what, "instead": instead} for what, instead in NOT_CARRIED],
        "next": next_command(former),
    }


def _restored_text(restored: Restored) -> str:
    if not (restored.done or restored.next):
        return "Nothing is left to undo."
    return "\n".join([*restored.done, *(f"next: {each}" for each in restored.next)])
