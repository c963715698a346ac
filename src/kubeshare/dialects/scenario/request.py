"""Reads requests and holders of a scenario in their policy's fields.

Each manifest family has its own fields: shares (SharePods), ``gpuMem`` (gpushare), ``cores`` and
``memoryBlocks`` (Gaia). Labels bind under every policy, so requests of every family may have
them. Requests of a built-in policy use the fields of its family, those of other policies the
fields of SharePods.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

import msgspec

from kubeshare.core.demand import Demand, Memory, Share
from kubeshare.core.errors import InvalidValueError
from kubeshare.core.gang import Gang
from kubeshare.core.units import MICROS, format_share, parse_count, parse_memory, parse_share
from kubeshare.dialects import gpushare, vcuda
from kubeshare.dialects.amounts import Amounts
from kubeshare.dialects.priority_and_gang import Standing, parse_near, parse_priority
from kubeshare.dialects.scenario.strict_yaml import Field
from kubeshare.dialects.share_fields import read_gpuid
from kubeshare.dialects.shares import check_together, of_several_gpus, of_whole_gpus, parse_request

MIN_AVAILABLE: Final = "gang.minAvailable"
"""The field with the number of members that a gang needs."""
NEAR: Final = "gang.near"
"""The field with how near each other the members of a gang are placed."""

Entries: TypeAlias = Mapping[str, Field]

_AMOUNTS: Final = ("request", "limit", "limitAlone", "memory")
_LABELS: Final = ("affinity", "antiAffinity", "exclusion")
_WHO: Final = ("name", "namespace", "group")
_WHERE: Final = ("model", "nodes")
_WHEN: Final = ("priority", "gang")
_SHARE: Final = (*_AMOUNTS, *_LABELS)
_GANG: Final = ("name", "minAvailable")
_GANG_FIELDS: Final = (*_GANG, "near")
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
        pooled: whether its vGPUs may have names, not only numbers.
        amounts: parses the amounts of a request, or of one of its shares.
        spreads: whether its nodes may spread shares over their GPUs.
        of_share: the fields that its shares have.
    """

    fields: tuple[str, ...]
    of_share: tuple[str, ...]
    written: Mapping[str, str]
    numbered: bool
    pooled: bool
    amounts: Callable[[Entries], Amounts]
    spreads: bool = False

    @property
    def request(self) -> tuple[str, ...]:
        """All fields of a request."""
        return (*_WHO, *_WHEN, *_WHERE, *_LABELS, "shares", *self.fields)

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
    gang = entries["gang"].mapping(_GANG_FIELDS, required=_GANG)
    needed = parse_count(gang["minAvailable"].number(), MIN_AVAILABLE)
    if needed == 0:
        raise InvalidValueError(MIN_AVAILABLE, "0 is less than one member")
    near = parse_near(gang["near"].name(), NEAR) if "near" in gang else None
    found = Gang(name=gang["name"].name(), min_available=needed, near=near)
    return Standing(priority=priority, gang=found)


def read_holder(entries: Entries, family: Family) -> Demand:
    """The demand of a holder; see :func:`read_request`."""
    uses_family = any(key in entries for key in family.fields)
    _check_one_gpu(entries)
    return _demand(entries, family if uses_family else _OTHERS)


def _demand(entries: Entries, family: Family) -> Demand:
    fields: dict[str, Any] = {
        key: entries[written].text() for key, written in _TEXTS if written in entries
    }
    if "nodes" in entries:
        fields["nodes"] = frozenset(node.name() for node in entries["nodes"].items())
        if fields.get("device_id"):
            fields["device_nodes"] = fields["nodes"]
    if fields.get("device_id"):
        read_gpuid(fields["device_id"], "id")
    name = entries["name"].name()
    try:
        amounts = _shares(entries, family) if "shares" in entries else family.amounts(entries)
        return Demand(uid=uid_of(name), name=name, **fields, **amounts)
    except InvalidValueError as error:
        raise error.under(family.written.get(error.field, error.field)) from None


def _shares(entries: Entries, family: Family) -> Amounts:
    """The different shares of a request, which exclude the amounts of the short form."""
    for key in family.of_share:
        if key in entries:
            entries[key].fail("is for one share, and several are given: use either")
    shares = [_one_share(item, family) for item in entries["shares"].items()]
    if not shares:
        entries["shares"].fail("lists no share")
    return Amounts(shares=check_together(shares, "shares"))


def _one_share(item: Field, family: Family) -> Share:
    written = item.mapping(("name", "containers", *family.of_share), required=("name",))
    name = written["name"].name()
    users = written["containers"].items() if "containers" in written else []
    containers = tuple(sorted({user.name() for user in users}))
    try:
        _check_one_gpu(written)
        only, *_ = Demand(uid=name, name=name, **family.amounts(written)).per_gpu()
        return msgspec.structs.replace(only, name=name, containers=containers)
    except InvalidValueError as error:
        field = family.written.get(error.field, error.field)
        raise error.under(f"shares[{name}].{field}") from None


def _check_one_gpu(entries: Entries) -> None:
    """Check that a request is not for more than one GPU, as it may be for a whole demand."""
    if "request" in entries:
        parse_share(entries["request"].number(), "request")


def _of_holder(fields: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(key for key in fields if key not in ("id", "count", "gpuCount"))


def _number(entries: Entries, key: str) -> str | None:
    return entries[key].number() if key in entries else None


def _share(entries: Entries) -> Amounts:
    written = {key: entries[key].number() for key in _AMOUNTS if key in entries}
    count = entries["count"].whole_number() if "count" in entries else 1
    request = parse_request(written.get("request", "0"), "request")
    if request > MICROS:
        for key in ("limit", "limitAlone", "memory", "count"):
            if key in entries:
                raise InvalidValueError("request", of_whole_gpus(format_share(request), key))
        return of_several_gpus(request)
    return Amounts(
        request_micros=request,
        limit_micros=parse_share(written["limit"], "limit") if "limit" in written else MICROS,
        limit_alone_micros=(
            parse_share(written["limitAlone"], "limitAlone") if "limitAlone" in written else None
        ),
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
        fields=(*_AMOUNTS, "id", "count"),
        of_share=(*_AMOUNTS, "count"),
        written={"anti_affinity": "antiAffinity", "device_id": "id"},
        numbered=False,
        pooled=True,
        amounts=_share,
    ),
    "binpack": Family(
        fields=("gpuMem", "gpuCount"),
        of_share=("gpuMem", "gpuCount"),
        written={"memory": "gpuMem", "count": "gpuCount"},
        numbered=True,
        pooled=False,
        amounts=_gpu_memory,
        spreads=True,
    ),
    "topology": Family(
        fields=("cores", "memoryBlocks"),
        of_share=("cores", "memoryBlocks"),
        written={"request": "cores", "count": "cores", "memory": "memoryBlocks"},
        numbered=True,
        pooled=False,
        amounts=_cores,
    ),
}
_OTHERS: Final = Family(
    fields=_FAMILIES["locality"].fields,
    of_share=_FAMILIES["locality"].of_share,
    written=_FAMILIES["locality"].written,
    numbered=True,
    pooled=True,
    amounts=_share,
)
