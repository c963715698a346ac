"""The form of a PodSpec, as far as it is read before there is a pod.

The schema of a SharePod keeps its PodSpec as it came, so that newer fields pass: a list may be
text there, or null. What Kubernetes would take, absent and null alike, is taken; all else is
refused by the field's name, before anything is looked for in it.
"""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from kubeshare.core.errors import InvalidValueError


class _Resources(Struct):
    limits: dict[str, Any] | None = None


class _Container(Struct):
    name: str
    resources: _Resources | None = None


class _Toleration(Struct):
    key: str | None = None
    operator: str | None = None
    value: str | None = None
    effect: str | None = None


class _Requirement(Struct):
    key: str
    operator: str | None = None
    values: list[str] | None = None


class _Term(Struct, rename="camel"):
    match_expressions: list[_Requirement] | None = None
    match_fields: list[_Requirement] | None = None


class _Required(Struct, rename="camel"):
    node_selector_terms: list[_Term] | None = None


class _NodeAffinity(Struct, rename="camel"):
    required_during_scheduling_ignored_during_execution: _Required | None = None


class _Affinity(Struct, rename="camel"):
    node_affinity: _NodeAffinity | None = None


class _PodSpec(Struct, rename="camel"):
    containers: list[_Container] | None = None
    init_containers: list[_Container] | None = None
    node_selector: dict[str, str] | None = None
    tolerations: list[_Toleration] | None = None
    affinity: _Affinity | None = None


def check_form(spec: Mapping[str, Any]) -> None:
    """See that what is read of a PodSpec can be.

    Args:
        spec: as a manifest has it.

    Raises:
        InvalidValueError: Kubernetes would make no pod of it; under the field's name.
    """
    try:
        msgspec.convert(spec, _PodSpec)
    except msgspec.ValidationError as error:
        words, _, place = str(error).partition(" - at `$")
        said = f"is not as Kubernetes has it: {words[:1].lower()}{words[1:]}"
        raise InvalidValueError(f"spec{place.rstrip('`')}", said) from None
