"""Fits the pages to the site: mkdocs calls these functions.

The pages are read in the repository first, so they link to its files. On the site such a link is
the text alone.
"""

import posixpath
import re
from pathlib import Path
from typing import Any, Final

_LINK: Final = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")
_FENCE: Final = re.compile(r"(^```.*?^```$)", re.DOTALL | re.MULTILINE)


def on_config(config: Any) -> Any:
    """Add the decision records to the navigation: their list, then each by its number."""
    folder = Path(config["docs_dir"])
    records = sorted(folder.glob("designs/*.md"), key=lambda path: (path.name[0] != "R", path))
    config["nav"].append({"Decisions": [str(path.relative_to(folder)) for path in records]})
    return config


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Replace links that leave the folder of the pages by their text."""
    return inside(markdown, page.file.src_uri)


def inside(markdown: str, page: str) -> str:
    """A page without links that leave the folder of the pages, or name a folder in it.

    Args:
        markdown: its text.
        page: its path in that folder.
    """
    parts = _FENCE.split(markdown)
    return "".join(
        part if part.startswith("```") else _LINK.sub(lambda found: _link(found, page), part)
        for part in parts
    )


def _link(found: "re.Match[str]", page: str) -> str:
    image, words, target = found.groups()
    path = target.partition("#")[0]
    if "://" in target or not path or image:
        return found[0]
    resolved = posixpath.normpath(posixpath.join(posixpath.dirname(page), path))
    is_page = not resolved.startswith("..") and "." in posixpath.basename(resolved)
    return found[0] if is_page else words
