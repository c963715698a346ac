"""Parses the demand of each object once per generation.

A SharePod is reconciled many times between two edits, and several controllers of one program
need its demand. The parsed demand, or the error, is kept until the object's generation,
labels or annotations change: the API server does not count labels and annotations in the
generation.
"""

from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

import msgspec

from kubeshare.core.demand import Demand
from kubeshare.core.errors import InvalidValueError
from kubeshare.dialects import pod, sharepod
from kubeshare.kube.resources import Raw

NO_SHARES: Final = (
    "the nodes of this version attach one share to a pod, of one GPU or the same of several; "
    "only kubeshare plan places different shares"
)
NO_LIMIT_ALONE: Final = (
    "the nodes of this version enforce the limit whether a share is alone on its GPU or not"
)

MAX_OBJECTS: Final = 8192
"""Demands that are kept; the least recently used one is dropped first."""


def sharepod_demand(raw: Mapping[str, Any]) -> Demand | None:
    """The demand of a SharePod that this version can carry out; None if it asks for no GPU.

    Raises:
        InvalidValueError: a value is not acceptable, or no node could attach what it asks for.
    """
    return _supported(sharepod.demand_of(raw), "spec.gpu", "spec.gpu.limitAlone")


def pod_demand(raw: Mapping[str, Any], models: Collection[str] = ()) -> Demand | None:
    """The same for a plain pod; a label has dashes for the spaces of the cluster's `models`.

    Raises:
        InvalidValueError: as above.
    """
    return _supported(pod.demand_of(raw, models), "metadata.annotations", f"{pod.PREFIX}limitAlone")


def _supported(demand: Demand | None, shares: str, limit_alone: str) -> Demand | None:
    """Refuse what only `kubeshare plan` places: no node could attach it as it is asked for."""
    if demand is None:
        return None
    if demand.shares:
        names = ", ".join(share.name for share in demand.shares)
        raise InvalidValueError(shares, f"{NO_SHARES} (here {names})")
    if demand.limit_alone_micros not in (None, demand.limit_micros):
        raise InvalidValueError(limit_alone, NO_LIMIT_ALONE)
    return demand


class _Parsed(msgspec.Struct, frozen=True):
    """What was parsed, and from what."""

    source: tuple[Any, ...]
    demand: Demand | None
    error: InvalidValueError | None


class Demands:
    """The demands of SharePods and pods."""

    def __init__(self) -> None:
        self._parsed: OrderedDict[str, _Parsed] = OrderedDict()  # by uid

    def of_sharepod(self, raw: Raw) -> Demand | None:
        """The demand of a SharePod; None if it asks for no GPU.

        Raises:
            InvalidValueError: a value is not acceptable.
        """
        return self._parse(raw, (), sharepod_demand)

    def of_pod(self, raw: Raw, models: Collection[str] = ()) -> Demand | None:
        """The demand of a plain pod; None if it asks for no GPU.

        Args:
            raw: the pod.
            models: the cluster's GPU models; a label has dashes for their spaces.

        Raises:
            InvalidValueError: a value is not acceptable.
        """
        return self._parse(raw, frozenset(models), lambda found: pod_demand(found, models))

    def _parse(
        self, raw: Raw, context: object, parse: Callable[[Raw], Demand | None]
    ) -> Demand | None:
        metadata = raw.get("metadata") or {}
        uid, generation = metadata.get("uid"), metadata.get("generation")
        if not uid or not generation:
            return parse(raw)
        source = (generation, metadata.get("labels"), metadata.get("annotations"), context)
        known = self._parsed.get(uid)
        if known is None or known.source != source:
            known = _parsed(raw, source, parse)
            self._parsed[uid] = known
            if len(self._parsed) > MAX_OBJECTS:
                self._parsed.popitem(last=False)
        self._parsed.move_to_end(uid)
        if known.error is not None:
            raise known.error.with_traceback(None)
        return known.demand


def _parsed(raw: Raw, source: tuple[Any, ...], parse: Callable[[Raw], Demand | None]) -> _Parsed:
    try:
        return _Parsed(source, parse(raw), None)
    except InvalidValueError as error:
        return _Parsed(source, None, error.with_traceback(None))
