"""Several different shares of one demand, in each spelling.

SharePods list them in ``spec.gpu.shares``, plain pods write one annotation for each, such as
``kubeshare.nthu/share.NAME: "request=.5,memory=4Gi,containers=a+b"``. A request of more than one
GPU, such as 2.5, is short for whole GPUs and the rest of one.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from kubeshare.core.demand import Share
from kubeshare.core.errors import InvalidValueError
from kubeshare.core.units import (
    MICROS,
    Memory,
    format_share,
    parse_gpus,
    parse_memory,
    parse_share,
)
from kubeshare.dialects.amounts import Amounts

MAX_COUNT: Final = 16
"""The most GPUs that one demand may ask for, and the most shares."""

NO_MEMORY: Final = (
    "asks for no memory, and nothing runs on a GPU without: give an amount such as 1Gi "
    "(as a rule it follows the request, which is 0)"
)

SHARE: Final = "kubeshare.nthu/share."
"""The prefix of annotations that request one of several shares; the name of the share follows."""

FIELDS: Final = (
    *("request", "limit", "limitAlone", "latencySensitive"),
    *("memory", "count", "containers"),
)
"""The fields of a share, which are also those of the short form."""

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_COUNT = re.compile("[0-9]{1,2}")


def read_list(value: object, field: str) -> tuple[Share, ...]:
    """The shares of a list in which each entry has a ``name``.

    Raises:
        InvalidValueError: a value is not acceptable; under its name in the object.
    """
    if not isinstance(value, list) or not value:
        raise InvalidValueError(field, f"{value!r} is not a list of shares")
    shares = []
    for entry in value:
        if not isinstance(entry, Mapping):
            raise InvalidValueError(field, f"{entry!r} is not a mapping")
        name = entry.get("name")
        shares.append(read_share(name, _without(entry, "name"), f"{field}[{name}]"))
    return check_together(shares, field)


def read_annotation(name: str, text: object, key: str) -> Share:
    """The share of an annotation: fields with ``=`` between commas, containers with ``+``.

    Raises:
        InvalidValueError: it has another form, or a value is not acceptable.
    """
    fields: dict[str, Any] = {}
    for entry in str(text).split(","):
        field, equals, value = (word.strip() for word in entry.partition("="))
        if not equals or not value or field in fields:
            raise InvalidValueError(key, f"{entry.strip()!r} is not a field and its value")
        fields[field] = value.split("+") if field == "containers" else value
    return read_share(name, fields, key)


def annotations_of(shares: Iterable[Share]) -> dict[str, str]:
    """The annotations of a pod that say the same as the shares of its SharePod.

    Not whether a share is latency-sensitive: the holder says so, and agents of earlier versions
    refuse what they do not know.
    """
    return {SHARE + share.name: _format(share) for share in shares}


def _format(share: Share) -> str:
    memory, alone = share.memory, share.limit_alone_micros
    fields = {
        "request": format_share(share.request_micros),
        "limit": format_share(share.limit_micros),
        "limitAlone": "" if alone is None else format_share(alone),
        "memory": format_share(memory.micros) if memory.micros else str(memory.bytes),
        "count": str(share.count) if share.count > 1 else "",
        "containers": "+".join(share.containers),
    }
    return ",".join(f"{field}={value}" for field, value in fields.items() if value)


def read_share(name: object, fields: Mapping[str, Any], path: str) -> Share:
    """One share; ``path`` is its name in the object.

    Raises:
        InvalidValueError: a value is not acceptable; under its name in the object.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidValueError(
            path, f"{name!r} is not a name of 1 to 63 lower-case letters, digits or dashes"
        )
    for field in fields:
        if field not in FIELDS:
            raise InvalidValueError(path, f"{field} is not one of {', '.join(FIELDS)}")
    request = parse_share(fields.get("request", 0), f"{path}.request")
    memory = Memory(micros=request)
    if "memory" in fields:
        memory = parse_memory(fields["memory"], f"{path}.memory")
    if not (memory.micros or memory.bytes):
        raise InvalidValueError(f"{path}.memory", NO_MEMORY)
    limit = parse_share(fields["limit"], f"{path}.limit") if "limit" in fields else MICROS
    alone = fields.get("limitAlone")
    try:
        return Share(
            name=name,
            request_micros=request,
            limit_micros=limit,
            limit_alone_micros=None if alone is None else parse_share(alone, f"{path}.limitAlone"),
            latency_sensitive=read_flag(
                fields.get("latencySensitive", False), f"{path}.latencySensitive"
            ),
            memory=memory,
            count=read_count(fields.get("count", 1), f"{path}.count"),
            containers=_containers(fields.get("containers"), f"{path}.containers"),
        )
    except InvalidValueError as error:
        known = error.field in FIELDS  # the other names are those of the object
        raise error.under(f"{path}.{error.field}" if known else error.field) from None


def check_together(shares: Iterable[Share], field: str) -> tuple[Share, ...]:
    """The shares of one demand.

    Raises:
        InvalidValueError: two have one name, or they are too many; under the name ``field``.
    """
    found = tuple(shares)
    names = [share.name for share in found]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InvalidValueError(field, f"there are two shares of the name {twice}")
    count = sum(share.count for share in found)
    if count > MAX_COUNT:
        raise InvalidValueError(field, f"{count} shares are more than {MAX_COUNT}")
    return found


def parse_request(value: object, field: str) -> int:
    """Parse a request that may be for more than one GPU: ``0.3``, ``2``, ``2.5``; micros.

    Raises:
        InvalidValueError: not such a number, negative, or more than 16 GPUs.
    """
    request = parse_gpus(value, field)
    if request > MAX_COUNT * MICROS:
        raise InvalidValueError(field, f"{value} is more than {MAX_COUNT} GPUs")
    return request


def of_whole_gpus(request: str, field: str) -> str:
    """Why a request of more than one GPU is not accepted beside a field."""
    return f"{request} GPUs are whole ones and the rest of one: leave {field} out, or list shares"


def of_several_gpus(request_micros: int) -> Amounts:
    """The amounts of a request of more than one GPU: whole GPUs, and the rest of one."""
    count, rest = divmod(request_micros, MICROS)
    if not rest:
        whole = Memory(micros=MICROS)
        return Amounts(request_micros=MICROS, limit_micros=MICROS, memory=whole, count=count)
    return Amounts(
        shares=(
            Share(name="whole", request_micros=MICROS, memory=Memory(micros=MICROS), count=count),
            Share(name="rest", request_micros=rest, memory=Memory(micros=rest)),
        )
    )


def read_count(value: object, name: str) -> int:
    """Parse a number of GPUs, which is text in an annotation.

    Raises:
        InvalidValueError: it is no such number.
    """
    number = int(value) if isinstance(value, str) and _COUNT.fullmatch(value) else value
    if isinstance(number, bool) or not isinstance(number, int) or not 1 <= number <= MAX_COUNT:
        raise InvalidValueError(name, f"{value!r} is not a number of GPUs from 1 to {MAX_COUNT}")
    return number


def read_flag(value: object, name: str) -> bool:
    """Parse a truth value, which is text in an annotation.

    Raises:
        InvalidValueError: it is neither true nor false.
    """
    if isinstance(value, bool) or value in ("true", "false"):
        return value in (True, "true")
    raise InvalidValueError(name, f"{value!r} is neither true nor false")


def _containers(value: object, field: str) -> tuple[str, ...]:
    names = [] if value is None else value
    if not isinstance(names, list) or not all(isinstance(name, str) and name for name in names):
        raise InvalidValueError(field, f"{value!r} is not a list of names of containers")
    return tuple(sorted(set(names)))


def _without(entry: Mapping[str, Any], key: str) -> dict[str, Any]:
    return {field: value for field, value in entry.items() if field != key}
