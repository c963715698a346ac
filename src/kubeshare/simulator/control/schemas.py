"""Prunes and defaults custom objects by the structural schema of their CRD.

Of an OpenAPI v3 schema only ``properties``, ``additionalProperties``, ``items``, ``default`` and
``x-kubernetes-preserve-unknown-fields`` count; types, bounds and CEL rules do not.
"""

from collections.abc import Mapping
from typing import Any

from kubeshare.simulator.control.json_copy import clone

Raw = dict[str, Any]

_ALWAYS_KEPT = frozenset({"apiVersion", "kind", "metadata"})


def schema_of(crd: Mapping[str, Any]) -> Raw:
    """The schema of the storage version of a CustomResourceDefinition manifest."""
    versions = crd["spec"]["versions"]
    schema: Raw = next(each for each in versions if each["storage"])["schema"]["openAPIV3Schema"]
    return schema


def prune_and_default(schema: Raw, obj: Raw) -> Raw:
    """The object without fields that its schema does not know, and with its defaults."""
    return {name: value for name, value in obj.items() if name in _ALWAYS_KEPT} | _object(
        schema, {name: value for name, value in obj.items() if name not in _ALWAYS_KEPT}
    )


def _value(schema: Raw, value: Any) -> Any:
    if isinstance(value, dict):
        return _object(schema, value)
    if isinstance(value, list) and "items" in schema:
        return [_value(schema["items"], each) for each in value]
    return value


def _object(schema: Raw, value: Raw) -> Raw:
    properties: Raw = schema.get("properties", {})
    keeps_unknown = schema.get("x-kubernetes-preserve-unknown-fields", False)
    others = schema.get("additionalProperties")
    found = {}
    for name, field in value.items():
        if name in properties:
            found[name] = _value(properties[name], field)
        elif isinstance(others, dict):
            found[name] = _value(others, field)
        elif keeps_unknown or others:
            found[name] = field
    for name, known in properties.items():
        # As the API server: null stands for a missing value where there is a default.
        if "default" in known and found.get(name) is None:
            found[name] = _value(known, clone(known["default"]))
    return found
