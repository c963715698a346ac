"""Writes docs/kinds.md from the schemas of KubeShare's kinds."""

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import yaml

ROOT: Final = Path(__file__).resolve().parents[1]
CRDS: Final = ROOT / "deploy" / "chart" / "kubeshare" / "manifests" / "crds"
PAGE: Final = ROOT / "docs" / "kinds.md"

_ORDER: Final = ("SharePod", "VGPU", "GPUNode", "GPUQuota", "ShareUsage")
_NOT_OURS: Final = ("apiVersion", "kind", "metadata")
_BOUNDS: Final = {
    "minimum": "at least {}",
    "maximum": "at most {}",
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "minItems": "at least {} items",
    "maxItems": "at most {} items",
    "maxProperties": "at most {} entries",
    "format": "{}",
    "pattern": "matches `{}`",
}
_HEAD: Final = """\
# Kinds of KubeShare

The fields of each kind, from its schema; `kubectl explain sharepod.spec.gpu` shows them too. \
Written by `tools/kinds_page.py`: run it when a schema changes.

A field with * is required. The last words in "allowed" are what the API server answers where a \
rule of the schema refuses an object. [Conditions](conditions.md) describes `status.conditions`.
"""


def definitions() -> list[dict[str, Any]]:
    """The definitions of the kinds, in the order of the page."""
    found = [yaml.safe_load(path.read_text()) for path in CRDS.glob("*.yaml")]
    return sorted(found, key=lambda each: _ORDER.index(each["spec"]["names"]["kind"]))


def text() -> str:
    """The page."""
    return "\n".join([_HEAD, *(_kind(each["spec"]) for each in definitions())])


def fields(schema: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The path of each field and its schema, a field before those in it.

    Args:
        schema: of an object.
        prefix: its path; ``""`` for the whole object.
    """
    required = schema.get("required", ())
    for name, each in schema.get("properties", {}).items():
        if not prefix and name in _NOT_OURS:
            continue
        path = f"{prefix}{name}"
        yield path + ("*" if name in required else ""), each
        if "items" in each:
            yield from fields(each["items"], f"{path}[].")
        elif isinstance(each.get("additionalProperties"), Mapping):
            yield from fields(each["additionalProperties"], f"{path}.NAME.")
        else:
            yield from fields(each, f"{path}.")


def _kind(spec: Mapping[str, Any]) -> str:
    names, [version] = spec["names"], spec["versions"]
    schema = version["schema"]["openAPIV3Schema"]
    short = ", ".join(f"`{each}`" for each in names.get("shortNames", ()))
    rows = [
        f"| `{path}` | {_type(each)} | {_cell(each.get('description', ''))} | {_allowed(each)} |"
        for path, each in fields(schema)
    ]
    rules = "".join(f"- {each}\n" for each in _rules(schema))
    columns = ", ".join(
        f"`{each['name']}`" + (" (wide)" if each.get("priority") else "")
        for each in version.get("additionalPrinterColumns", ())
    )
    return "\n".join(
        [
            f"## {names['kind']}",
            _cell(schema.get("description", "")),
            "",
            f"`{spec['group']}/{version['name']}`, "
            f"{'in a namespace' if spec['scope'] == 'Namespaced' else 'of the cluster'}; "
            f"`kubectl get {names['plural']}`" + (f" or {short}" if short else "") + ".",
            *([f"Columns: {columns}."] if columns else []),
            "",
            "| field | type | meaning | allowed |",
            "|---|---|---|---|",
            *rows,
            *(["", "Of the whole object:", "", rules.rstrip()] if rules else []),
            "",
        ]
    )


def _type(schema: Mapping[str, Any]) -> str:
    if schema.get("x-kubernetes-int-or-string"):
        return "number or text"
    kind = str(schema.get("type", "any"))
    if kind == "array":
        return f"list of {_type(schema['items'])}"
    if isinstance(schema.get("additionalProperties"), Mapping):
        return f"map to {_type(schema['additionalProperties'])}"
    return kind


def _allowed(schema: Mapping[str, Any]) -> str:
    found = []
    if "enum" in schema:
        found.append(", ".join(f"`{value}`" for value in schema["enum"]))
    found += [words.format(schema[key]) for key, words in _BOUNDS.items() if key in schema]
    if "default" in schema:
        found.append(f"default `{schema['default']}`")
    return _cell("; ".join([*found, *_rules(schema)]))


def _rules(schema: Mapping[str, Any]) -> Iterator[str]:
    for rule in schema.get("x-kubernetes-validations", ()):
        if message := rule.get("message"):
            yield _cell(str(message))


def _cell(words: str) -> str:
    return " ".join(words.split()).replace("|", "\\|")


def main() -> int:
    """Write the page; returns the exit code."""
    PAGE.write_text(text(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
