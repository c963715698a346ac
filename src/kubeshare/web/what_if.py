"""Reads the form of a SharePod that does not exist."""

import re
from collections.abc import Mapping
from typing import Final

from kubeshare.core.errors import InvalidValueError
from kubeshare.dialects.shares import read_flag
from kubeshare.kube.resources import Raw

FIELDS: Final = ("request", "limit", "memory", "affinity", "antiAffinity", "exclusion", "model")
"""Fields of the form that are fields of ``spec.gpu``, besides :data:`OTHERS`."""
OTHERS: Final = ("count", "latencySensitive")
"""Those whose values are a number and a flag."""

_LONGEST: Final = 253
_MOST_GPUS: Final = 64
_NAMESPACE: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_LABEL: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_./]*[A-Za-z0-9])?")


def read_form(form: Mapping[str, str]) -> Raw:
    """A SharePod as the form describes it; its values are checked when it is decided.

    Args:
        form: ``namespace``, :data:`FIELDS` and :data:`OTHERS`; an empty field is absent.

    Raises:
        InvalidValueError: a field is unknown, or one that no manifest could have.
    """
    for name, value in form.items():
        if name not in (*FIELDS, *OTHERS, "namespace"):
            raise InvalidValueError(name, f"is not a field: {', '.join((*FIELDS, *OTHERS))} are")
        if len(value) > _LONGEST:
            raise InvalidValueError(name, f"is longer than {_LONGEST} characters")
    namespace = form.get("namespace") or "default"
    if not _NAMESPACE.fullmatch(namespace):
        raise InvalidValueError("namespace", f"{namespace} is no name of a namespace")
    for name in ("affinity", "antiAffinity", "exclusion"):
        if form.get(name) and not _LABEL.fullmatch(form[name]):
            raise InvalidValueError(name, f"{form[name]} is no label")
    gpu: Raw = {name: form[name] for name in FIELDS if form.get(name)}
    if not gpu:
        raise InvalidValueError("request", "is missing: give a share such as 0.5")
    if form.get("count"):
        gpu["count"] = _count(form["count"])
    if form.get("latencySensitive"):
        gpu["latencySensitive"] = read_flag(form["latencySensitive"], "latencySensitive")
    metadata = {"name": "what-if", "namespace": namespace, "uid": "what-if"}
    container = {"name": "main", "image": "what-if"}
    return {"metadata": metadata, "spec": {"gpu": gpu, "containers": [container]}}


def _count(value: str) -> int:
    if not value.isascii() or not value.isdigit() or not 1 <= int(value) <= _MOST_GPUS:
        raise InvalidValueError("count", f"{value} is not a number from 1 to {_MOST_GPUS}")
    return int(value)
