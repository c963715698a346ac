"""Mutants are what they say, and their verdicts are right."""

import gc
import importlib
import importlib.util
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from robustness.mutants import page
from robustness.mutants.forks import Verdict, judged, limit_time
from robustness.mutants.mutations import Mutant, mutants_of
from robustness.mutants.swap import Changed, Functions

pytestmark = pytest.mark.slow

TEXT = '''"""A module."""

from functools import lru_cache

MOST = 3


class Box:
    size: int = 2

    @property
    def full(self) -> bool:
        return self.size >= MOST


@lru_cache
def halved(
    number: int,
) -> int:
    return number // 2 if number else -1
'''


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "box.py").write_text(TEXT)
    return tmp_path


def imported(folder: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("box", folder / "box.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def mutant(folder: Path, function: str, change: str) -> Mutant:
    return next(
        each
        for each in mutants_of(folder, "box.py")
        if each.function == function and each.change == change
    )


def test_constants_properties_and_cached_functions_are_mutated(folder: Path) -> None:
    found = {(each.function, each.change) for each in mutants_of(folder, "box.py")}
    assert found >= {
        ("", "MOST = 3 → MOST = 4"),
        ("", "size: int = 2 → size: int = 3"),
        ("Box.full", "return self.size >= MOST → return self.size > MOST"),
        ("halved", "return number // 2 if number else -1 → return number // 3 if number else -1"),
    }
    names = [each.name for each in mutants_of(folder, "box.py")]
    assert len(set(names)) == len(names)


def test_what_is_logged_is_not_mutated(folder: Path) -> None:
    (folder / "box.py").write_text('log.info("half", of=2)\nresult(1)\n')
    assert {each.change for each in mutants_of(folder, "box.py")} == {
        "result(1) → result(2)",
        "result(1) → result(None)",
    }


def test_what_asserts_or_runs_in_a_process_of_its_own_is_not_mutated(folder: Path) -> None:
    text = "zip(a, strict=True)\nread(b, strict=True)\nif __name__ == '__main__':\n    main(1)\n"
    (folder / "box.py").write_text(text)
    assert {each.change for each in mutants_of(folder, "box.py")} == {
        "zip(a, strict=True) → zip(None, strict=True)",
        "zip(a, strict=True) → zip(strict=True)",
        *(
            f"read(b, strict=True) → read({arguments})"
            for arguments in (
                *("None, strict=True", "strict=True", "b, strict=None", "b, ", "b, strict=False"),
            )
        ),
    }


def test_what_a_struct_forbids_is_not_mutated(folder: Path) -> None:
    (folder / "box.py").write_text(
        "class Box(Struct, frozen=True, kw_only=True, tag=True):\n  a: b\n"
    )
    assert {each.change for each in mutants_of(folder, "box.py")} == {
        (
            "class Box(Struct, frozen=True, kw_only=True, tag=True): → "
            "class Box(Struct, frozen=True, kw_only=True, tag=False):"
        )
    }


def test_an_argument_that_is_false_becomes_true_and_not_none(folder: Path) -> None:
    (folder / "box.py").write_text("fill(box, False, deep=False)\n")
    assert {each.change for each in mutants_of(folder, "box.py")} == {
        f"fill(box, False, deep=False) → fill({arguments})"
        for arguments in (
            *("None, False, deep=False", "False, deep=False", "box, deep=False", "box, False, "),
            *("box, True, deep=False", "box, False, deep=True"),
        )
    }


def test_what_is_assigned_false_becomes_true_and_not_none(folder: Path) -> None:
    (folder / "box.py").write_text("box.full = False\nbox.lid = 7\nlog = logger()\n")
    assert {each.change for each in mutants_of(folder, "box.py")} == {
        "box.full = False → box.full = True",
        "box.lid = 7 → box.lid = 8",
        "box.lid = 7 → box.lid = None",
    }


def test_a_mutant_knows_the_lines_of_its_statement(folder: Path) -> None:
    last = len(TEXT.splitlines())
    change = "return number // 2 if number else -1 → return number // 2 if number else +1"
    assert mutant(folder, "halved", change).span == (last, last)


def test_what_runs_is_swapped_however_it_is_wrapped(folder: Path) -> None:
    module = imported(folder)
    gc.freeze()  # as tests/conftest.py does
    functions = Functions(folder)
    halved = "return number // 2 if number else -1 → return number / 2 if number else -1"
    functions.swap(mutant(folder, "halved", halved))
    assert module.halved(3) == 1.5
    box = module.Box()
    box.size = 3
    assert box.full
    functions.swap(mutant(folder, "Box.full", "return self.size >= MOST → return self.size > MOST"))
    assert not box.full


def test_what_runs_at_import_is_changed_when_it_is_imported(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed = Changed(folder, mutant(folder, "", "MOST = 3 → MOST = 4"))
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setattr(sys, "meta_path", [changed, *sys.meta_path])
    assert importlib.import_module("box").MOST == 4
    monkeypatch.delitem(sys.modules, "box")


def passes(_: object) -> bool:
    return True


def fails(_: object) -> bool:
    return False


def raises(_: object) -> bool:
    raise ValueError


def never_ends(_: object) -> bool:
    limit_time(0.05)
    while True:
        pass


def waits_forever(_: object) -> bool:
    limit_time(0.01, blocked=0.1)
    threading.Event().wait()
    return True


@pytest.mark.parametrize(
    ("run", "verdict"),
    [
        (passes, "survived"),
        (fails, "killed"),
        (raises, "killed"),
        (never_ends, "killed by time"),
        (waits_forever, "killed by time"),
    ],
)
def test_a_fork_is_judged_by_how_it_ends(run: Callable[[object], bool], verdict: Verdict) -> None:
    assert judged(run)[0] == verdict


def test_it_is_known_what_the_fork_was_at() -> None:
    def run(report: Callable[[str], None]) -> bool:
        report("a long name")
        report("the last")
        return False

    assert judged(run) == ("killed", "the last")


def test_the_words_of_a_page_are_read_back(folder: Path) -> None:
    mutants = list(mutants_of(folder, "box.py"))
    known = {each.name: f"word {number}" for number, each in enumerate(mutants)}
    written = folder / "page.md"
    written.write_text(page.text([(each, "survived") for each in mutants], known))
    assert page.words(written) == known


def test_the_shares_of_a_page_are_of_all_that_were_judged(folder: Path) -> None:
    verdicts: list[Verdict | None] = ["killed", "killed by time", "survived", "not run", None]
    judged_so = list(zip(mutants_of(folder, "box.py"), verdicts, strict=False))
    assert "| **all** | 5 | 4 | 2 | 1 | 2 | 50.0 % |" in page.text(judged_so, {})
