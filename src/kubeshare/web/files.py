"""Serves the page's own files from memory."""

from collections.abc import Iterator, Mapping
from hashlib import sha256
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Final

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

_TYPES: Final[Mapping[str, str]] = {
    "css": "text/css; charset=utf-8",
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}


class StaticFiles:
    """The files below ``static``, by path; no other path is ever opened."""

    def __init__(self) -> None:
        folder = resources.files("kubeshare.web") / "static"
        self._files = {path: file.read_bytes() for path, file in _below(folder, "")}

    async def page(self, request: Request) -> Response:
        """The page."""
        return self._response("index.html", request)

    async def file(self, request: Request) -> Response:
        """One of the files that the page loads."""
        return self._response(request.path_params["path"], request)

    def _response(self, path: str, request: Request) -> Response:
        body = self._files.get(path)
        if body is None:
            return PlainTextResponse("there is no such file", 404)
        etag = f'"{sha256(body).hexdigest()[:32]}"'
        headers = {"etag": etag, "cache-control": "no-cache"}
        if request.headers.get("if-none-match") == etag:
            return Response(status_code=304, headers=headers)
        return Response(body, media_type=_TYPES[path.rpartition(".")[2]], headers=headers)


def _below(folder: Traversable, prefix: str) -> Iterator[tuple[str, Traversable]]:
    for each in folder.iterdir():
        if each.is_dir():
            yield from _below(each, f"{prefix}{each.name}/")
        elif each.name.rpartition(".")[2] in _TYPES:
            yield prefix + each.name, each
