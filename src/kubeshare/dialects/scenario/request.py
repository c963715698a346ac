"""Reads requests and holders of a scenario in their policy's fields.

Each manifest family has its own fields: shares and labels (SharePods), ``gpuMem`` (gpushare),
``cores`` and ``memoryBlocks`` (Gaia). Requests of a built-in policy use the fields of its family,
those of other policies the fields of SharePods.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

import msgspec

from kubeshare.core.demand import Demand, Memory
from kubeshare.core.errors import InvalidValueError
from kubeshare.core.gang import Gang
from kubeshare.core.units import MICROS, parse_count, parse_memory, parse_share
from kubeshare.dialects import gpushare, vcuda
from kubeshare.dialects.amounts import Amounts
from kubeshare.dialects.priority_and_gang import Standing, parse_priority
from kubeshare.dialects.scenario.strict_yaml import Field

MIN_AVAILABLE: Final = "gang.minAvailable"
"""The field with the number of members that a gang needs."""

Entries: TypeAlias = Mapping[str, Field]

_AMOUNTS: Final = ("request", "limit", "memory")
_LABELS: Final = ("affinity", "antiAffinity", "exclusion")
_WHO: Final = ("name", "namespace", "group")
_WHERE: Final = ("model", "nodes")
_WHEN: Final = ("priority", "gang")
_SHARE: Final = (*_AMOUNTS, *_LABELS)
_GANG: Final = ("name", "minAvailable")
_TEXTS: Final = (  # field of a Demand, field of the file
    ("namespace", "namespace"),
    ("group", "group"),
    ("model", "model"),
    ("affinity", "affinity"),
    ("anti_affinity", "antiAffinity"),
    ("exclusion", "exclusion"),
    ("device_id", "id"),
)


class Family(msgspec.Struct, frozen=True):
    """The fields of a policy's requests.

    Attributes:
        fields: the fields that only this family has.
        written: field of a Demand → field of this family, where the names differ.
        numbered: whether its nodes have numbered GPUs, all of them vGPUs.
        pooled: whether its nodes have vGPUs and free GPUs.
        amounts: parses the amounts of a request.
    """

    fields: tuple[str, ...]
    written: Mapping[str, str]
    numbered: bool
    pooled: bool
    amounts: Callable[[Entries], Amounts]

    @property
    def request(self) -> tuple[str, ...]:
        """All fields of a request."""
        return (*_WHO, *_WHEN, *_WHERE, *self.fields)

    @property
    def holder(self) -> tuple[str, ...]:
        """All fields of a holder, which may always use the fields of a share with labels."""
        return (*dict.fromkeys((*_WHO, *_SHARE, *_of_holder(self.fields))),)


def family_of(policy: str) -> Family:
    """The manifest family of a policy's requests."""
    return _FAMILIES.get(policy, _OTHERS)


def foreign(family: Family) -> dict[str, str]:
    """Field of another family → the policy it belongs to."""
    return {
        field: f"policy {policy}"
        for policy, other in _FAMILIES.items()
        for field in other.fields
        if field not in family.fields
    }


def uid_of(name: str) -> str:
    """The uid of the demand with this name."""
    return f"demand/{name}"


def read_request(entries: Entries, family: Family) -> Demand:
    """The demand of a request.

    Raises:
        InvalidValueError: a value that no cluster can satisfy; under its name in the file.
        FileError: a value of the wrong type.
    """
    return _demand(entries, family)


def read_standing(entries: Entries) -> Standing:
    """The priority and the gang of a request.

    Raises:
        InvalidValueError: a value that no cluster can satisfy; under its name in the file.
        FileError: a value of the wrong type.
    """
    priority = 0
    if "priority" in entries:
        priority = parse_priority(entries["priority"].number(), "priority")
    if "gang" not in entries:
        return Standing(priority=priority)
    gang = entries["gang"].mapping(_GANG, required=_GANG)
    needed = parse_count(gang["minAvailable"].number(), MIN_AVAILABLE)
    if needed == 0:
        raise InvalidValueError(MIN_AVAILABLE, "0 is less than one member")
    return Standing(priority=priority, gang=Gang(name=gang["name"].name(), min_available=needed))


def read_holder(entries: Entries, family: Family) -> Demand:
    """The demand of a holder; see :func:`read_request`."""
    uses_family = any(key in entries for key in family.fields)
    return _demand(entries, family if uses_family else _OTHERS)


def _demand(entries: Entries, family: Family) -> Demand:
    fields: dict[str, Any] = {
        key: entries[written].text() for key, written in _TEXTS if written in entries
    }
    if "nodes" in entries:
        fields["nodes"] = frozenset(node.name() for node in entries["nodes"].items())
    name = entries["name"].name()
    try:
        return Demand(uid=uid_of(name), name=name, **fields, **family.amounts(entries))
    except InvalidValueError as error:
        raise error.under(family.written.get(error.field, error.field)) from None


def _of_holder(fields: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(key for key in fields if key not in ("id", "count", "gpuCount"))


def _number(entries: Entries, key: str) -> str | None:
    return entries[key].number() if key in entries else None


def _share(entries: Entries) -> Amounts:
    written = {key: entries[key].number() for key in _AMOUNTS if key in entries}
    count = entries["count"].whole_number() if "count" in entries else 1
    request = parse_share(written.get("request", "0"), "request")
    return Amounts(
        request_micros=request,
        limit_micros=parse_share(written["limit"], "limit") if "limit" in written else MICROS,
        memory=(
            parse_memory(written["memory"], "memory")
            if "memory" in written
            else Memory(micros=request)
        ),
        count=count,
    )


def _gpu_memory(entries: Entries) -> Amounts:
    count = _number(entries, "gpuCount")
    return gpushare.amounts(_number(entries, "gpuMem"), "1" if count is None else count)


def _cores(entries: Entries) -> Amounts:
    return vcuda.amounts(_number(entries, "cores"), _number(entries, "memoryBlocks"))


_FAMILIES: Final[Mapping[str, Family]] = {
    "locality": Family(
        fields=(*_SHARE, "id", "count"),
        written={"anti_affinity": "antiAffinity", "device_id": "id"},
        numbered=False,
        pooled=True,
        amounts=_share,
    ),
    "binpack": Family(
        fields=("gpuMem", "gpuCount"),
        written={"memory": "gpuMem", "count": "gpuCount"},
        numbered=True,
        pooled=False,
        amounts=_gpu_memory,
    ),
    "topology": Family(
        fields=("cores", "memoryBlocks"),
        written={"request": "cores", "count": "cores", "memory": "memoryBlocks"},
        numbered=True,
        pooled=False,
        amounts=_cores,
    ),
}
_OTHERS: Final = Family(
    fields=_FAMILIES["locality"].fields,
    written=_FAMILIES["locality"].written,
    numbered=True,
    pooled=True,
    amounts=_share,
)
