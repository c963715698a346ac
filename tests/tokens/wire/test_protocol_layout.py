"""The Python wire layout equals that of the C header."""

import json
import re
import shutil
import struct
import subprocess
from pathlib import Path

import pytest

from deadlines import DEADLINE_S
from kubeshare.tokens.wire import protocol

HEADER = Path(__file__).resolve().parents[3] / "native" / "include" / "kubeshare_wire.h"

CONSTANTS = {
    "KS_WIRE_VERSION": protocol.VERSION,
    "KS_PROTOCOL_OLDEST": protocol.PROTOCOL_OLDEST,
    "KS_PROTOCOL_NEWEST": protocol.PROTOCOL_NEWEST,
    "KS_CELLS_MAX": protocol.CELLS_MAX,
    "KS_PROCESSES_MAX": protocol.PROCESSES_MAX,
    "KS_USE_TAU_NS": protocol.USE_TAU_NS,
    "KS_BUSY_INTERVAL_NS": protocol.BUSY_INTERVAL_NS,
    "KS_PAGE_MAGIC": protocol.PAGE_MAGIC,
    "KS_COUNTERS_MAGIC": protocol.COUNTERS_MAGIC,
    **{f"KS_GRANT_{state.name}": state.value for state in protocol.GrantState},
    **{f"KS_GATE_{state.name}": state.value for state in protocol.GateState},
    **{f"KS_{kind.name}": kind.value for kind in protocol.MessageType},
    "offsetof(struct ks_page_header, grant_state)": protocol.GRANT_STATE_OFFSET,
    "offsetof(struct ks_page_cell, epoch)": protocol.EPOCH_OFFSET,
    "offsetof(struct ks_page_cell, gate_state)": protocol.GATE_STATE_OFFSET,
    "offsetof(struct ks_page_cell, lease_end_ns)": protocol.LEASE_END_OFFSET,
    "offsetof(struct ks_page_cell, memory_limit_bytes)": protocol.BOUNDS_OFFSET,
    "offsetof(struct ks_page_cell, uuid)": protocol.BOUNDS_OFFSET + protocol.PAGE_BOUNDS.size,
    "offsetof(struct ks_page_cell, overhead_bytes)": protocol.OVERHEAD_OFFSET,
    "offsetof(struct ks_page_extension, used_micros)": protocol.USED_OFFSET,
    "offsetof(struct ks_page_extension, oversubscribed)": protocol.OVERSUBSCRIBED_OFFSET,
    "offsetof(struct ks_page_extension, memory_reserved_bytes)": protocol.RESERVED_OFFSET,
    "sizeof(struct ks_counters)": protocol.COUNTERS_SIZE,
}

# struct -> (the mirror, its fields in order)
LAYOUTS = {
    "ks_page_header": (
        protocol.PAGE_HEADER,
        ["magic", "version", "size_bytes", "cells", "grant_state", "extensions"],
    ),
    "ks_page_cell": (
        protocol.PAGE_CELL,
        [
            "epoch",
            "gate_state",
            "lease_end_ns",
            "memory_limit_bytes",
            "memory_total_bytes",
            "request_micros",
            "limit_micros",
            "uuid",
            "overhead_bytes",
        ],
    ),
    "ks_page_extension": (
        protocol.PAGE_EXTENSION,
        ["used_at_ns", "used_micros", "oversubscribed", "memory_reserved_bytes"],
    ),
    "ks_message": (
        protocol.MESSAGE,
        ["version", "type", "cell", "epoch", "pid", "time_ns", "value"],
    ),
    "ks_counters": (protocol.COUNTERS_HEADER, ["magic", "version", "slots"]),
    "ks_counters_slot": (
        protocol.COUNTERS_SLOT,
        [
            "used",
            "pid",
            "host_bytes",
            "spilled_bytes",
            *(f"memory_bytes[{cell}]" for cell in range(protocol.CELLS_MAX)),
            *(f"launches[{cell}]" for cell in range(protocol.CELLS_MAX)),
        ],
    ),
    "ks_counters_budget": (
        protocol.COUNTERS_BUDGET,
        [f"cell[{cell}]" for cell in range(protocol.CELLS_MAX)],
    ),
}


def field_places(layout: struct.Struct, fields: int) -> list[tuple[int, int]]:
    """(offset, size) of each field, found by filling one field at a time with ones."""
    places = []
    for index in range(fields):
        values: list[object] = [0] * fields
        sizes = layout.unpack(b"\xff" * layout.size)
        for position, value in enumerate(sizes):
            if isinstance(value, bytes):
                values[position] = b""
        values[index] = sizes[index]
        data = layout.pack(*values)
        set_bytes = [offset for offset, byte in enumerate(data) if byte]
        places.append((set_bytes[0], len(set_bytes)))
    return places


@pytest.fixture(scope="module")
def header(tmp_path_factory: pytest.TempPathFactory) -> dict[str, int]:
    """What a C compiler makes of the header."""
    expressions = [
        *CONSTANTS,
        *(f"sizeof(struct {name})" for name in LAYOUTS if name != "ks_counters"),
        *(
            f"{what}(struct {name}, {field})"
            for name, (_, fields) in LAYOUTS.items()
            for field in fields
            for what in ("offsetof", "SIZE_OF")
        ),
    ]
    lines = "\n".join(
        f'printf("\\"%s\\": %llu,\\n", "{text}", (unsigned long long)({text}));'
        for text in expressions
    )
    folder = tmp_path_factory.mktemp("wire")
    source = folder / "wire.c"
    source.write_text(
        "#include <stddef.h>\n#include <stdio.h>\n#include <kubeshare_wire.h>\n"
        "#define SIZE_OF(type, field) sizeof(((type *)0)->field)\n"
        f'int main(void) {{\nputs("{{");\n{lines}\nputs("\\"\\": 0}}");\n}}\n'
    )
    compiler = shutil.which("gcc") or shutil.which("cc")
    assert compiler is not None, "these tests need a C compiler: gcc or cc"
    program = folder / "wire"
    subprocess.run(
        [compiler, "-std=c11", "-I", HEADER.parent, source, "-o", program],
        check=True,
        timeout=DEADLINE_S,
    )
    output = subprocess.run([program], check=True, capture_output=True, timeout=DEADLINE_S).stdout
    numbers: dict[str, int] = json.loads(output)
    return numbers


def test_constants_and_marked_offsets_agree(header: dict[str, int]) -> None:
    assert {name: header[name] for name in CONSTANTS} == CONSTANTS


@pytest.mark.parametrize("name", LAYOUTS)
def test_each_field_has_its_place_and_size(header: dict[str, int], name: str) -> None:
    layout, fields = LAYOUTS[name]

    expected = [
        (header[f"offsetof(struct {name}, {field})"], header[f"SIZE_OF(struct {name}, {field})"])
        for field in fields
    ]
    assert field_places(layout, len(fields)) == expected


@pytest.mark.parametrize("name", [name for name in LAYOUTS if name != "ks_counters"])
def test_each_struct_has_its_size(header: dict[str, int], name: str) -> None:
    assert LAYOUTS[name][0].size == header[f"sizeof(struct {name})"]


def test_the_names_of_the_environment_agree() -> None:
    defined = dict(re.findall(r'#define (\w+)\s+"(.*)"', HEADER.read_text()))

    assert defined["KS_CLAIM_FOLDER_ENV"] == protocol.CLAIM_FOLDER_ENV
    assert defined["KS_COUNTERS_FILE_ENV"] == protocol.COUNTERS_FILE_ENV


def test_a_message_survives_the_way_there_and_back() -> None:
    message = protocol.Message(protocol.MessageType.DRAINED, 3, 2**32 - 1, 77, 2**64 - 1, 5)

    assert protocol.Message.unpack(message.pack()) == message


@pytest.mark.parametrize("data", [b"", b"x" * 31, b"x" * 33, bytes(32)])
def test_what_is_no_message_is_refused(data: bytes) -> None:
    with pytest.raises(protocol.MessageError):
        protocol.Message.unpack(data)


@pytest.mark.parametrize(
    ("oldest", "newest", "agreed"),
    [(1, 0, 1), (1, 1, 1), (1, 2, 2), (1, 99, 2), (2, 2, 2), (2, 3, 2), (3, 3, None), (0, 0, None)],
)
def test_sides_of_different_age_use_the_highest_protocol_of_both(
    oldest: int, newest: int, agreed: int | None
) -> None:
    assert protocol.agreed_protocol(oldest, newest) == agreed
