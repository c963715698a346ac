"""Writes docs/designs/README.md, the list of the decision records, from their titles."""

import re
import sys
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).parents[1] / "docs" / "designs"
PAGE: Final = FOLDER / "README.md"

_TITLE: Final = re.compile(r"# (\d{3}): (\S.*)")
_ABOUT: Final = (
    "Each record says which problem had to be solved, what was chosen, and what was turned down "
    "and why. A change of a design adds a record, or changes the one that it concerns. Where a "
    "number is missing, its record was given up."
)
_HEAD: Final = f"""# Decision records

<!-- Written by tools/designs_page.py from the titles of the records: do not edit. -->

{_ABOUT}

| record | decision |
|---|---|
"""


class TitleError(Exception):
    """A record has no title, or another number than its file."""


def records(folder: Path = FOLDER) -> list[Path]:
    """The files of the records, by their numbers."""
    return sorted(path for path in folder.glob("*.md") if path.name != PAGE.name)


def text(folder: Path = FOLDER) -> str:
    """The page.

    Raises:
        TitleError: a record does not begin with ``# NUMBER: TITLE``, its number as in its name.
    """
    return _HEAD + "".join(_row(path) for path in records(folder))


def _row(path: Path) -> str:
    first = path.read_text().partition("\n")[0]
    found = _TITLE.fullmatch(first)
    if found is None or not path.name.startswith(f"{found[1]}-"):
        raise TitleError(f"{path}: its first line is {first!r}, not '# {path.name[:3]}: TITLE'")
    return f"| [{found[1]}]({path.name}) | {found[2]} |\n"


def main() -> int:
    """Write the page."""
    try:
        PAGE.write_text(text())
    except TitleError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
