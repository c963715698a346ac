"""The check for circles among C files finds them, and lets the memory folder have its own."""

import subprocess
import sys
from pathlib import Path

import pytest
from checks import circles

from kubeshare import native

CHAIN = {
    "a.c": "void b(void); void a(void); void a(void) { b(); }",
    "gate/b.c": "void c(void); void b(void); void b(void) { c(); }",
    "gate/c.c": "void c(void); void c(void) { }",
}
BACK = "void a(void); void c(void); void c(void) { a(); }"


SOURCES = Path(__file__).parents[3] / "native"


def compiled(folder: Path, sources: dict[str, str]) -> list[Path]:
    for name, text in sources.items():
        source = folder / name
        source.parent.mkdir(parents=True, exist_ok=True)
        source.write_text(text)
        subprocess.run(["gcc", "-c", source, "-o", source.with_suffix(".o")], check=True)
    return sorted(folder.rglob("*.o"))


def test_files_that_need_each_other_in_turn_pass(tmp_path: Path) -> None:
    needs = circles.graph(tmp_path, compiled(tmp_path, CHAIN))
    assert needs == {"a": {"gate/b"}, "gate/b": {"gate/c"}, "gate/c": set()}
    assert circles.report(needs) == []


def test_a_planted_circle_fails_and_its_files_are_named(tmp_path: Path) -> None:
    objects = compiled(tmp_path, CHAIN | {"gate/c.c": BACK})
    assert circles.report(circles.graph(tmp_path, objects)) == [
        "these files need each other in a circle: a, gate/b, gate/c",
        "  a needs gate/b",
        "  gate/b needs gate/c",
        "  gate/c needs a",
    ]
    done = subprocess.run(
        [sys.executable, "-m", "checks.circles", tmp_path, *objects],
        cwd=SOURCES,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "gate/c needs a" in done.stderr


def test_a_reference_to_data_counts_too(tmp_path: Path) -> None:
    sources = {
        "a.c": "extern int value; int *a(void); int *a(void) { return &value; }",
        "b.c": "int *a(void); int value = 1; int *b(void); int *b(void) { return a(); }",
    }
    needs = circles.graph(tmp_path, compiled(tmp_path, sources))
    assert circles.circles(needs) == [["a", "b"]]


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ([["memory/charge", "memory/pools"]], 0),
        ([["memory/charge", "memory/pools", "slots"]], 1),
        ([["gate/gate", "gate/meter"]], 1),
    ],
)
def test_only_a_circle_inside_the_memory_folder_is_allowed(
    found: list[list[str]], expected: int
) -> None:
    assert len(circles.forbidden(found)) == expected


def test_a_table_of_functions_is_no_caller(tmp_path: Path) -> None:
    sources = {
        "lookup/hook_table.c": "void a(void); void (*const table[])(void) = {a};",
        "a.c": "extern void (*const table[])(void); void a(void); void a(void) { table[0](); }",
    }
    assert circles.report(circles.graph(tmp_path, compiled(tmp_path, sources))) == []


@pytest.mark.slow
@pytest.mark.native
def test_the_device_library_has_no_other_circle() -> None:
    library = SOURCES / "device_library"
    built = native.path("obj/device_library")
    sources = [source.relative_to(library) for source in library.rglob("*.c")]
    needs = circles.graph(built, [(built / source).with_suffix(".o") for source in sources])
    assert len(needs) > 40
    assert "session" in needs["gate/gate"]
    assert circles.report(needs) == []
