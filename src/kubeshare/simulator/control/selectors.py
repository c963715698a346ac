"""Label and field selectors."""

import re
from typing import Any

_REQUIREMENTS = re.compile(r",(?![^(]*\))")
_SET = re.compile(r"^(\S+)\s+(in|notin)\s+\(([^)]*)\)$")


def matches(obj: dict[str, Any], labels: str, fields: str) -> bool:
    """Whether an object is selected; an empty selector selects all."""
    if not labels and not fields:
        return True
    have = obj.get("metadata", {}).get("labels") or {}
    return all(_label(have, part.strip()) for part in _REQUIREMENTS.split(labels) if part) and all(
        _field(obj, part.strip()) for part in fields.split(",") if part
    )


def _label(have: dict[str, str], requirement: str) -> bool:
    if found := _SET.match(requirement):
        key, operator, values = found.groups()
        inside = have.get(key) in {value.strip() for value in values.split(",")}
        return inside if operator == "in" else not inside
    if "!=" in requirement:
        key, value = requirement.split("!=")
        return have.get(key) != value
    if "=" in requirement:
        key, value = requirement.replace("==", "=").split("=")
        return have.get(key) == value
    if requirement.startswith("!"):
        return requirement[1:] not in have
    return requirement in have


def _field(obj: Any, requirement: str) -> bool:
    unequal = "!=" in requirement
    path, value = requirement.split("!=") if unequal else requirement.replace("==", "=").split("=")
    for part in path.split("."):
        obj = (obj or {}).get(part)
    return ((obj or "") == value) != unequal
