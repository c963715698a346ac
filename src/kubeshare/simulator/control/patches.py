"""JSON patch, merge patch, and a simple form of server-side apply."""

from collections.abc import Iterator, Mapping
from typing import Any

from kubeshare.simulator.control.json_copy import clone

Raw = dict[str, Any]
Path = tuple[Any, ...]

_SETS = {"finalizers"}
_MAPS = {"conditions": "type"}


class PatchError(Exception):
    """The patch cannot be applied; the message is that of the real server."""


def json_patch(obj: Raw, operations: list[Raw]) -> Raw:
    """The object after all operations of an RFC 6902 patch (add, remove, replace, test)."""
    root: Any = clone(obj)
    for operation in operations:
        parts = [
            part.replace("~1", "/").replace("~0", "~") for part in operation["path"].split("/")[1:]
        ]
        parent = _walk(root, parts[:-1], operation)
        _operate(parent, parts[-1], operation)
    return dict(root)


def _walk(root: Any, parts: list[str], operation: Raw) -> Any:
    for part in parts:
        try:
            root = root[int(part)] if isinstance(root, list) else root[part]
        except (KeyError, IndexError, ValueError, TypeError):
            verb, path = operation["op"], operation["path"]
            raise PatchError(
                f'{verb} operation does not apply: doc is missing path: "{path}": missing value'
            ) from None
    return root


def _operate(parent: Any, last: str, operation: Raw) -> None:
    verb, path, value = operation["op"], operation["path"], operation.get("value")
    if verb == "test":
        found = _walk(parent, [last], operation) if _has(parent, last) else None
        if found != value:
            raise PatchError(f"testing value {path} failed: test failed")
    elif verb == "add" and isinstance(parent, list):
        parent.insert(len(parent) if last == "-" else int(last), clone(value))
    elif verb in {"add", "replace"} and (isinstance(parent, dict) or _has(parent, last)):
        # As the API server, and unlike RFC 6902, `replace` adds a missing field of a map.
        parent[int(last) if isinstance(parent, list) else last] = clone(value)
    elif verb == "remove" and _has(parent, last):
        del parent[int(last) if isinstance(parent, list) else last]
    else:
        raise PatchError(f"{verb} operation does not apply: doc is missing key: {path}")


def _has(parent: Any, last: str) -> bool:
    if isinstance(parent, list):
        return last.isdigit() and int(last) < len(parent)
    return last in parent


def merge_patch(obj: Any, patch: Any) -> Any:
    """The object after an RFC 7386 patch: null removes, lists are replaced."""
    if not isinstance(patch, Mapping):
        return clone(patch)
    merged = dict(obj) if isinstance(obj, Mapping) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = merge_patch(merged.get(name), value)
    return merged


def leaves(body: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Every field of an applied body, as (path, value)."""
    name = path[-1] if path else ""
    if isinstance(body, Mapping) and body:
        for key, value in body.items():
            yield from leaves(value, (*path, key))
    elif isinstance(body, list) and name in _SETS:
        for value in body:
            yield (*path, ("", value)), value
    elif isinstance(body, list) and name in _MAPS:
        for value in body:
            yield from leaves(value, (*path, (_MAPS[name], value[_MAPS[name]])))
    else:
        yield path, body


def apply_leaves(obj: Raw, stated: Mapping[Path, Any], dropped: set[Path]) -> Raw:
    """The object with the stated fields set and the dropped ones removed."""
    changed = clone(obj)
    for path in dropped:
        _drop(changed, path)
    for path, value in stated.items():
        _set(changed, path, clone(value))
    return changed


def _step(node: Any, part: Any) -> Any:
    if isinstance(part, tuple):
        field, wanted = part
        return next((item for item in node if (item[field] if field else item) == wanted), None)
    return node.get(part)


def _drop(node: Any, path: Path) -> None:
    for index, part in enumerate(path[:-1]):
        following = _step(node, part)
        if following is None:
            return
        # An entry of a list map is removed together with its key.
        if isinstance(part, tuple) and path[index + 1] == part[0]:
            node.remove(following)
            return
        node = following
    last = path[-1]
    if isinstance(last, tuple):
        node[:] = [item for item in node if item != last[1]]
    else:
        node.pop(last, None)


def _set(node: Any, path: Path, value: Any) -> None:
    for index, part in enumerate(path):
        end = index == len(path) - 1
        following = _step(node, part)
        if isinstance(part, tuple):
            if following is None:
                following = value if end else {part[0]: part[1]}
                node.append(following)
        elif end:
            node[part] = value
        elif following is None:
            following = node[part] = [] if isinstance(path[index + 1], tuple) else {}
        node = following
