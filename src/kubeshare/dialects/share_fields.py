"""The fields of a share, in either spelling, as a demand.

One spelling is ``spec.gpu`` of a SharePod or the ``kubeshare.nthu/…`` annotations of a pod, the
other the published ``kubeshare/…`` annotations. Each field may use either, or both with the same
value. The API server's policies reject most invalid values earlier; this check does not depend
on the cluster's configuration.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from kubeshare.core import gpuid
from kubeshare.core.demand import Demand, Share
from kubeshare.core.errors import InvalidValueError
from kubeshare.core.units import MICROS, Memory, format_share, parse_memory, parse_share
from kubeshare.dialects.amounts import Amounts
from kubeshare.dialects.requester.ref import RequesterRef
from kubeshare.dialects.shares import (
    FIELDS,
    NO_MEMORY,
    of_several_gpus,
    of_whole_gpus,
    parse_request,
    read_count,
    read_flag,
)

ANNOTATIONS: Final[Mapping[str, str]] = {  # field -> published annotation
    "request": "kubeshare/gpu_request",
    "limit": "kubeshare/gpu_limit",
    "memory": "kubeshare/gpu_mem",
    "affinity": "kubeshare/sched_affinity",
    "antiAffinity": "kubeshare/sched_anti-affinity",
    "exclusion": "kubeshare/sched_exclusion",
    "id": "kubeshare/GPUID",
}
POD_PREFIX: Final = "kubeshare.nthu/"
"""The prefix of KubeShare's own annotations of pods."""
_TOGETHER: Final = tuple(ANNOTATIONS[field] for field in ("request", "limit", "memory"))
_REQUESTING: Final = frozenset({*_TOGETHER, ANNOTATIONS["id"]})

MAX_LABEL: Final = 253


Value = TypeVar("Value")


class Spellings:
    """The fields of an object in both spellings.

    Args:
        fields: field → value, in KubeShare's own spelling.
        prefix: the prefix of a field's name in that spelling.
        annotations: all annotations, among them the published ones.

    Attributes:
        written: field → its name in the object.
    """

    def __init__(
        self, fields: Mapping[str, Any], prefix: str, annotations: Mapping[str, Any]
    ) -> None:
        self.fields = fields
        self.annotations = annotations
        self.written: dict[str, str] = {}
        self._prefix = prefix

    def published(self) -> bool:
        """Whether the published annotations request a GPU; labels alone do not."""
        return not _REQUESTING.isdisjoint(self.annotations)

    def check_amounts_are_complete(self, *, needed: bool) -> None:
        """Check that the three published amounts are given together.

        Args:
            needed: whether they must be given, since nothing else requests a GPU.

        Raises:
            InvalidValueError: one of them is missing.
        """
        missing = [key for key in _TOGETHER if key not in self.annotations]
        if missing and (needed or len(missing) < len(_TOGETHER)):
            together = ", ".join(_TOGETHER)
            raise InvalidValueError(
                missing[0], f"{' and '.join(missing)} missing: {together} are given together"
            )

    def read(
        self,
        field: str,
        parse: Callable[[object, str], Value],
        parse_published: Callable[[object, str], Value] | None = None,
    ) -> Value | None:
        """A field from either spelling; None if absent.

        Args:
            field: its name.
            parse: parses either spelling.
            parse_published: parses the published spelling, if it is narrower.

        Raises:
            InvalidValueError: it is not acceptable, or both spellings differ.
        """
        name, key = self._prefix + field, ANNOTATIONS.get(field, "")
        new = parse(self.fields[field], name) if field in self.fields else None
        parse_old = parse_published or parse
        old = parse_old(self.annotations[key], key) if key in self.annotations else None
        if new is None:
            self.written[field] = key if old is not None else name
            return old
        if old is not None and old != new:
            own, published = self.fields[field], self.annotations[key]
            raise InvalidValueError(
                name, f"{own} differs from {published} in {key}: give one, or the same value"
            )
        self.written[field] = name
        return new

    def demand(
        self,
        requester: RequesterRef,
        *,
        nodes: frozenset[str] | None = None,
        attempt: int = 0,
        shares: tuple[Share, ...] = (),
    ) -> Demand:
        """The demand of the fields, with the defaults of all manifest families.

        Args:
            requester: the object.
            nodes: the nodes that it may use; None for all.
            attempt: how often it has been scheduled before.
            shares: the different shares, which exclude the amounts of the short form.

        Raises:
            InvalidValueError: a value is not acceptable; under its name in the object.
        """
        amounts = self._amounts_beside(shares) if shares else self._amounts()
        device_id = self.read("id", read_gpuid) or ""
        try:
            return Demand(
                **requester.fields(),
                affinity=self.read("affinity", read_label) or "",
                anti_affinity=self.read("antiAffinity", read_label) or "",
                exclusion=self.read("exclusion", read_label) or "",
                device_id=device_id,
                device_nodes=nodes if device_id else None,
                model=self.read("model", read_label) or "",
                nodes=nodes,
                attempt=attempt,
                **amounts,
            )
        except InvalidValueError as error:
            # The core uses its own field names; users know those of their manifest.
            raise error.under(self.written.get(error.field, error.field)) from None

    def check_memory(self, demand: Demand) -> None:
        """Check that the demand asks for some memory.

        Raises:
            InvalidValueError: it asks for none.
        """
        if not (demand.shares or demand.memory.micros or demand.memory.bytes):
            raise InvalidValueError(self.written["memory"], NO_MEMORY)

    def _amounts(self) -> Amounts:
        """The amounts of the short form."""
        request = self.read("request", parse_request, parse_share) or 0
        limit = self.read("limit", parse_share)
        memory = self.read("memory", parse_memory)
        count = self.read("count", read_count)
        alone = self.read("limitAlone", parse_share)
        latency_sensitive = self.read("latencySensitive", read_flag)
        if request > MICROS:
            given = {"limit": limit, "memory": memory, "count": count, "limitAlone": alone}
            given["latencySensitive"] = latency_sensitive
            for field, value in given.items():
                if value is not None:
                    words = of_whole_gpus(format_share(request), self.written[field])
                    raise InvalidValueError(self.written["request"], words)
            return of_several_gpus(request)
        return Amounts(
            request_micros=request,
            limit_micros=MICROS if limit is None else limit,
            limit_alone_micros=alone,
            latency_sensitive=latency_sensitive or False,
            memory=Memory(micros=request) if memory is None else memory,
            count=count or 1,
        )

    def _amounts_beside(self, shares: tuple[Share, ...]) -> Amounts:
        """The amounts of a demand of different shares."""
        own = [self._prefix + field for field in FIELDS if field in self.fields]
        published = [key for key in _TOGETHER if key in self.annotations]
        for name in own + published:
            raise InvalidValueError(name, "is for one share, and several are given: use either")
        return Amounts(shares=shares)


def without_own_gpuid(
    annotations: Mapping[str, Any], *, decided: bool, given: bool
) -> Mapping[str, Any]:
    """The annotations without the published GPUID, if the scheduler has written it.

    Args:
        annotations: the annotations of the object.
        decided: whether the scheduler has decided about the object, now or before.
        given: whether its author had given the GPUID.
    """
    key = ANNOTATIONS["id"]
    if not decided or given or key not in annotations:
        return annotations
    return {name: value for name, value in annotations.items() if name != key}


def mapping(value: object, name: str) -> Mapping[str, Any]:
    """A mapping that may be absent.

    Raises:
        InvalidValueError: it is no mapping.
    """
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise InvalidValueError(name, "is not a mapping")
    return value


def present(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields with a value; empty text and empty lists count as absent."""
    return {key: value for key, value in fields.items() if value not in (None, "", [])}


def read_label(value: object, name: str) -> str:
    """Parse a label: text of a bounded length.

    Raises:
        InvalidValueError: it is no such text.
    """
    if not isinstance(value, str):
        raise InvalidValueError(name, f"{value!r} is not text")
    if len(value) > MAX_LABEL:
        raise InvalidValueError(name, f"is longer than {MAX_LABEL} characters")
    return value


def read_gpuid(value: object, name: str) -> str:
    """Parse a GPUID.

    Raises:
        InvalidValueError: it is none.
    """
    if not isinstance(value, str) or not gpuid.is_valid(value):
        raise InvalidValueError(
            name, f"{value!r} is not 1 to {gpuid.MAX_LENGTH} printable characters"
        )
    return value
