"""Parses the demand of each object once per generation.

A SharePod is reconciled many times between two edits, and several controllers of one program
need its demand. The parsed demand, or the error, is kept until the object's generation,
labels, annotations or owners change: the API server does not count those in the generation.
"""

from collections import OrderedDict
from collections.abc import Callable, Collection
from typing import Any, Final

import msgspec

from kubeshare.core.demand import Demand
from kubeshare.core.errors import InvalidValueError
from kubeshare.core.units import GI
from kubeshare.dialects import pod, sharepod
from kubeshare.kube.resources import Raw

MAX_OBJECTS: Final = 8192
"""Demands that are kept; the least recently used one is dropped first."""


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
        return self._parse(raw, (), sharepod.demand_of)

    def of_pod(self, raw: Raw, models: Collection[str] = (), *, unit: int = GI) -> Demand | None:
        """The demand of a plain pod; None if it asks for no GPU.

        Args:
            raw: the pod.
            models: the cluster's GPU models; a label has dashes for their spaces.
            unit: the bytes of a unit of ``aliyun.com/gpu-mem``.

        Raises:
            InvalidValueError: a value is not acceptable.
        """
        return self._parse(
            raw, (frozenset(models), unit), lambda found: pod.demand_of(found, models, unit=unit)
        )

    def _parse(
        self, raw: Raw, context: object, parse: Callable[[Raw], Demand | None]
    ) -> Demand | None:
        metadata = raw.get("metadata") or {}
        uid, generation = metadata.get("uid"), metadata.get("generation")
        if not uid or not generation:
            return parse(raw)
        described = (metadata.get(key) for key in ("labels", "annotations", "ownerReferences"))
        source = (generation, *described, context)
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
