"""Validation of the fields of a PodSpec that KubeShare reads.

The schema of a SharePod does not type its PodSpec, so that newer fields are preserved: a list may
be text, or null. Everything that Kubernetes would accept, including null, is accepted; anything
else is rejected by the name of the field before it is read.
"""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from kubeshare.core.errors import InvalidValueError


class _Resources(Struct):
    limits: dict[str, Any] | None = None
    requests: dict[str, Any] | None = None


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
    """Check the form of the PodSpec in a manifest.

    Raises:
        InvalidValueError: Kubernetes would reject it; under the name of the field.
    """
    try:
        msgspec.convert(spec, _PodSpec)
    except msgspec.ValidationError as error:
        words, _, place = str(error).partition(" - at `$")
        message = f"is not as Kubernetes has it: {words[:1].lower()}{words[1:]}"
        raise InvalidValueError(f"spec{place.rstrip('`')}", message) from None
