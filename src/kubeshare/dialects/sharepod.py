"""SharePods: ``spec.gpu`` and the published ``kubeshare/…`` annotations, which say the same.

Either spelling may be used for each field, or both with the same value. The API
server's policies refuse what is wrong long before; this is the last check, on
which nothing of the cluster's configuration has a say.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from kubeshare.core.demand import Demand
from kubeshare.core.errors import InvalidValueError
from kubeshare.core.units import MICROS, Memory, parse_memory, parse_share

ANNOTATIONS: Final[Mapping[str, str]] = {  # field of spec.gpu -> published annotation
    "request": "kubeshare/gpu_request",
    "limit": "kubeshare/gpu_limit",
    "memory": "kubeshare/gpu_mem",
    "affinity": "kubeshare/sched_affinity",
    "antiAffinity": "kubeshare/sched_anti-affinity",
    "exclusion": "kubeshare/sched_exclusion",
    "id": "kubeshare/GPUID",
}
AMOUNTS: Final = ("request", "limit", "memory")

MAX_LABEL: Final = 253
MAX_COUNT: Final = 16

# A GPUID names an object and a pod and is a label's value.
_ID = re.compile(r"[a-z0-9]([-a-z0-9]{0,48}[a-z0-9])?")

Value = TypeVar("Value")


def demand_of(sharepod: Mapping[str, Any]) -> Demand | None:
    """What a SharePod asks of a GPU.

    Args:
        sharepod: the object as the API server gives it.

    Returns:
        the demand, on the node of ``spec.nodeName`` where that is set; None when nothing
        of a GPU is asked.

    Raises:
        InvalidValueError: a value is not acceptable, one of the annotations that come
            together is missing, or the two spellings differ.
    """
    manifest = _Manifest(sharepod)
    if not manifest.asks_for_a_gpu():
        return None
    manifest.check_amounts_come_together()
    request = manifest.read("request", parse_share) or 0
    limit = manifest.read("limit", parse_share)
    memory = manifest.read("memory", parse_memory)
    node = manifest.spec.get("nodeName")
    count = manifest.read("count", _count) or 1
    _check_ids(manifest.gpu.get("ids"), count, node)
    try:
        return Demand(
            uid=manifest.metadata.get("uid") or f"{manifest.namespace}/{manifest.name}",
            name=manifest.name,
            namespace=manifest.namespace,
            request=request,
            limit=MICROS if limit is None else limit,
            memory=Memory(micros=request) if memory is None else memory,
            affinity=manifest.read("affinity", _label) or "",
            anti_affinity=manifest.read("antiAffinity", _label) or "",
            exclusion=manifest.read("exclusion", _label) or "",
            device_id=manifest.read("id", _gpuid) or "",
            count=count,
            model=manifest.read("model", _label) or "",
            nodes=frozenset([node]) if node else None,
            attempt=manifest.read("attempt", _attempt) or 0,
        )
    except InvalidValueError as error:
        # The core knows its own names of the fields; people know those that they wrote.
        raise error.under(manifest.written.get(error.field, error.field)) from None


class _Manifest:
    """The two places of a SharePod in which its fields are written.

    Attributes:
        written: field → the name by which the SharePod writes it.
    """

    def __init__(self, sharepod: Mapping[str, Any]) -> None:
        self.metadata = _mapping(sharepod.get("metadata"), "metadata")
        self.spec = _mapping(sharepod.get("spec"), "spec")
        self.name = str(self.metadata.get("name", ""))
        self.namespace = str(self.metadata.get("namespace", ""))
        self.gpu = _present(_mapping(self.spec.get("gpu"), "spec.gpu"))
        self.annotations = _present(
            _mapping(self.metadata.get("annotations"), "metadata.annotations")
        )
        self.written: dict[str, str] = {}

    def asks_for_a_gpu(self) -> bool:
        """Labels alone ask for nothing in the published spelling; `attempt` is Sched's note."""
        asked = {ANNOTATIONS[field] for field in (*AMOUNTS, "id")}
        return bool(self.gpu.keys() - {"attempt"} or self.annotations.keys() & asked)

    def check_amounts_come_together(self) -> None:
        """The three published amounts are given together, or `spec.gpu` gives them."""
        keys = [ANNOTATIONS[field] for field in AMOUNTS]
        missing = [key for key in keys if key not in self.annotations]
        needed = len(missing) < len(keys) or not self.gpu.keys() - {"attempt"}
        if missing and needed:
            together = ", ".join(keys)
            raise InvalidValueError(
                missing[0], f"{' and '.join(missing)} missing: {together} are given together"
            )

    def read(self, field: str, parse: Callable[[object, str], Value]) -> Value | None:
        """A field from either spelling; None where neither has it."""
        name, key = f"spec.gpu.{field}", ANNOTATIONS.get(field, "")
        new = parse(self.gpu[field], name) if field in self.gpu else None
        old = parse(self.annotations[key], key) if key in self.annotations else None
        if new is None:
            self.written[field] = key if old is not None else name
            return old
        if old is not None and old != new:
            here, there = self.gpu[field], self.annotations[key]
            raise InvalidValueError(
                name, f"{here} differs from {there} in {key}: give one, or the same value"
            )
        self.written[field] = name
        return new


def _mapping(value: object, name: str) -> Mapping[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise InvalidValueError(name, "is not a mapping")
    return value


def _present(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Empty text and empty lists are absent."""
    return {key: value for key, value in fields.items() if value not in (None, "", [])}


def _label(value: object, name: str) -> str:
    if not isinstance(value, str):
        raise InvalidValueError(name, f"{value!r} is not text")
    if len(value) > MAX_LABEL:
        raise InvalidValueError(name, f"is longer than {MAX_LABEL} characters")
    return value


def _gpuid(value: object, name: str) -> str:
    if not isinstance(value, str) or not _ID.fullmatch(value):
        raise InvalidValueError(
            name, f"{value!r} is not 1 to 50 lower-case letters, digits or dashes between them"
        )
    return value


def _count(value: object, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MAX_COUNT:
        raise InvalidValueError(name, f"{value!r} is not a number of GPUs from 1 to {MAX_COUNT}")
    return value


def _check_ids(value: object, count: int, node: object) -> None:
    """Several GPUs are listed when they and their node are known, one name for each of them."""
    field = "spec.gpu.ids"
    if value is None:
        return
    if not isinstance(value, list):
        raise InvalidValueError(field, f"{value!r} is not a list")
    ids = [_gpuid(item, field) for item in value]
    if len(set(ids)) != count:
        raise InvalidValueError(field, f"{len(set(ids))} GPUs are listed, and count says {count}")
    if not node:
        raise InvalidValueError(field, "the node of the GPUs belongs in spec.nodeName")


def _attempt(value: object, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise InvalidValueError(name, f"{value!r} is not a number of attempts")
    return value
