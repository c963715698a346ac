"""Generates C from `names.list` at build time: `python -m driver_api.generate FOLDER`.

Needs only the standard library. The head of `names.list` describes the files.
"""

import sys
from collections.abc import Callable, Iterable
from itertools import groupby
from pathlib import Path

from driver_api.rows import GENERATED, ListError, Row, read, read_nvml

NOTICE = "/* Generated from driver_api/names.list by driver_api/generate.py. */\n"
LOADER = ("dlsym", "dlvsym")  # libc's, without a row: lookup.c exports them


def hash_of(name: str) -> int:
    """Returns the FNV-1a hash in 32 bits, as hooks.c computes it."""
    value = 2166136261
    for byte in name.encode():
        value = (value ^ byte) * 16777619 & 0xFFFFFFFF
    return value


def slots(names: list[str]) -> list[int]:
    """Returns an open-addressed hash table: the index of a name plus one, 0 for a free slot.

    A name is in the first free slot from its hash on. The size is a power of two, and less
    than half of it is used, so a search is short.
    """
    size = 1
    while size < 2 * len(names) + 1:
        size *= 2
    table = [0] * size
    for index, name in enumerate(names):
        place = hash_of(name) % size
        while table[place]:
            place = (place + 1) % size
        table[place] = index + 1
    return table


def table_of(rows: list[Row]) -> list[Row]:
    """Returns the rows that a lookup needs: all ABIs of each name with a hook."""
    hooked = {row.base for row in rows if row.body}
    return sorted((row for row in rows if row.base in hooked), key=lambda row: row.order)


def declarations(rows: list[Row]) -> str:
    """Returns hook_declarations.h."""
    table = table_of(rows)
    declared = "".join(
        f"KS_EXPORT int {row.symbol}{row.parameters};\n" for row in table if row.body
    )
    numbers = "".join(f"    KS_HOOK_{row.symbol},\n" for row in table)
    return f"{NOTICE}{declared}\nenum ks_hook_index {{\n{numbers}    KS_HOOKS\n}};\n"


def _array(name: str, values: Iterable[int]) -> str:
    return f"static const uint16_t {name}[] = {{{', '.join(map(str, values))}}};\n"


def hook_rows(rows: list[Row]) -> str:
    """Returns hook_rows.h."""
    table = table_of(rows)
    lines = "".join(
        f'    {{"{row.symbol}", "{row.base}", {row.since}, {str(row.is_twin).lower()}}},\n'
        for row in table
    )
    bases = [(base, len(list(group))) for base, group in groupby(table, lambda row: row.base)]
    firsts = [0]
    for _, count in bases:
        firsts.append(firsts[-1] + count)
    newest = max(row.since for row in rows)
    return (
        f"{NOTICE}enum {{ NEWEST_KNOWN = {newest} }};\n\n"
        f"static const struct hook hooks[KS_HOOKS] = {{\n{lines}}};\n\n"
        "/* The first row of each base name, and the end of the last. */\n"
        + _array("first_of_base", firsts)
        + "\n/* Hash tables: an index plus one. */\n"
        + _array("name_slots", slots([row.symbol for row in table]))
        + _array("base_slots", slots([base for base, _ in bases]))
    )


def hook_names(rows: list[Row]) -> str:
    """Returns hook_names.def."""
    return NOTICE + "".join(f"HOOK_NAME({row.symbol})\n" for row in table_of(rows))


def hook_functions(rows: list[Row]) -> str:
    """Returns hook_functions.def."""
    return NOTICE + "".join(
        f"{'HOOKED' if row.body else 'NOT_HOOKED'}({row.symbol})\n" for row in table_of(rows)
    )


def gated(rows: list[Row]) -> str:
    """Returns gated.def."""
    return NOTICE + "".join(
        f"GATED({row.symbol}, {row.parameters}, {row.arguments}, {row.target})\n"
        for row in rows
        if row.body == GENERATED
    )


def exports(rows: list[Row]) -> str:
    """Returns exports.txt."""
    return "\n".join(sorted([row.symbol for row in rows if row.body] + list(LOADER))) + "\n"


def driver_names(rows: list[Row]) -> str:
    """Returns driver_names.def."""
    return NOTICE + "".join(
        f"DRIVER_NAME({row.base}, {row.since}, {row.symbol}, {str(row.is_twin).lower()})\n"
        for row in sorted(rows, key=lambda row: row.order)
        if not row.is_nvml
    )


def nvml_names(rows: list[Row]) -> str:
    """Returns nvml_names.def."""
    names = [row.symbol for row in rows if row.is_nvml] + read_nvml()
    return NOTICE + "".join(f"NVML_NAME({name})\n" for name in names)


FILES: dict[str, Callable[[list[Row]], str]] = {
    "hook_declarations.h": declarations,
    "hook_rows.h": hook_rows,
    "hook_names.def": hook_names,
    "hook_functions.def": hook_functions,
    "gated.def": gated,
    "exports.txt": exports,
    "driver_names.def": driver_names,
    "nvml_names.def": nvml_names,
}


def main(folder: Path) -> None:
    """Writes the files whose text has changed: what depends on the others is not compiled again."""
    rows = read()
    folder.mkdir(parents=True, exist_ok=True)
    for name, text_of in FILES.items():
        path, text = folder / name, text_of(rows)
        if not path.exists() or path.read_text() != text:
            path.write_text(text)


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]))
    except ListError as error:
        sys.exit(f"driver_api/{error}")
