"""Serves lists of many objects that are computed page by page."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from kubeshare.kube.resources import Raw, Resource
from kubeshare.simulator.control.api_server import FakeApiServer
from kubeshare.simulator.control.requests import Answer, Request


class Generated(NamedTuple):
    """So many objects of a kind, and what makes the n-th of them, without server metadata."""

    size: int
    make: Callable[[int], Raw]


class GeneratedLists(FakeApiServer):
    """A fake API server whose lists of some kinds hold objects that it does not keep.

    They are in lists without a selector only; they do not change.

    Args:
        objects: the objects by kind.
    """

    def __init__(self, objects: Mapping[Resource[Any], Generated]) -> None:
        super().__init__()
        self._generated = {(each.group, each.plural): found for each, found in objects.items()}

    def _answer(self, request: Request) -> Answer:
        found = self._generated.get((request.path.group, request.path.plural))
        query = request.query
        if found is None or request.verb != "list" or {"labelSelector", "fieldSelector"} & {*query}:
            return super()._answer(request)
        first = int(query.get("continue", "0"))
        last = min(first + int(query["limit"]), found.size)
        metadata = {"resourceVersion": str(self.storage.version)}
        if last < found.size:
            metadata["continue"] = str(last)
        items = [_stored(found.make(number), number) for number in range(first, last)]
        return Answer.of(200, {"kind": "List", "metadata": metadata, "items": items})


def _stored(obj: Raw, number: int) -> Raw:
    metadata = {"uid": f"uid-{number}", "resourceVersion": "1", "generation": 1}
    return obj | {"metadata": metadata | obj["metadata"]}
