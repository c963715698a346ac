"""Lists of GPUIDs in one annotation, separated by commas.

A GPUID that contains a comma or a quote is quoted as in CSV (RFC 4180).
"""

import csv
import io
from collections.abc import Sequence


def format_list(gpuids: Sequence[str]) -> str:
    """The text of a list of GPUIDs."""
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(gpuids)
    return text.getvalue()


def parse(text: str) -> tuple[str, ...]:
    """The GPUIDs of a text; none if it is not such a list."""
    if '"' not in text:
        return tuple(text.split(",")) if text else ()
    try:
        return tuple(next(csv.reader([text]), ()))
    except csv.Error:
        return ()
