"""The compiled modules of a handover: what runs, and that it decides as the sources do."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

from deadlines import DEADLINE_S
from kubeshare import compiled, native
from kubeshare.tokens.files.run_folder import Paths
from tokens.program import start_program

pytestmark = pytest.mark.slow

TESTS = Path(__file__).parents[1]
RUN_COMPILED = [
    *("core/token/test_debts.py", "core/token/test_drains.py", "core/token/test_limit_alone.py"),
    *("core/token/test_measures.py", "core/token/test_rules.py", "core/token/test_views.py"),
    "core/token/test_overtime.py",
    *("core/token/test_shares_of_several_gpus.py", "tokens/test_gangs.py", "tokens/test_turns.py"),
    *("tokens/session", "tokens/wire", "tokens/test_busy_for_ever.py"),
    "tokens/test_event_loop.py",
]
SETS_A_CONSTANT = "test_a_process_that_is_turned_away_is_told_whether_to_try_again"
"""Compiled modules have their constants in their code."""


@pytest.fixture
def folder() -> Path:
    """That of the compiled modules."""
    return native.path(compiled.FOLDER)


@pytest.fixture
def copied(folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(folder, tmp_path / "compiled"))


def run(*command: str) -> str:
    """Run a module of Python that finds the tests."""
    environment = os.environ | {"PYTHONPATH": str(TESTS)}
    done = subprocess.run(
        [sys.executable, "-m", *command],
        env=environment,
        capture_output=True,
        text=True,
        timeout=10 * DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout


@pytest.mark.slow
@pytest.mark.native
def test_compiled_and_pure_arbiters_decide_alike(folder: Path) -> None:
    decided = run("tokens.decisions")
    assert len(decided.splitlines()) > 3000
    assert run("tokens.decisions", str(folder)) == decided


@pytest.mark.slow
@pytest.mark.native
def test_the_compiled_modules_pass_the_tests_of_the_sources() -> None:
    paths = [str(TESTS / path) for path in RUN_COMPILED]
    plugins = ["-p", "tokens.with_compiled", "-p", "no:cacheprovider", "-p", "no:xdist"]
    printed = run("pytest", "-q", *plugins, "-k", f"not {SETS_A_CONSTANT}", *paths)
    assert " passed" in printed
    assert "skipped" not in printed


@pytest.mark.native
@pytest.mark.parametrize("is_compiled", [True, False])
def test_the_daemon_says_which_code_runs(
    paths: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_compiled: bool
) -> None:
    if not is_compiled:
        monkeypatch.setenv("KUBESHARE_NATIVE", str(tmp_path))
    daemon = start_program(paths)
    try:
        assert daemon.stdout is not None
        line = json.loads(daemon.stdout.readline())
    finally:
        daemon.terminate()
        daemon.communicate(timeout=DEADLINE_S)
    assert (line["event"], line["compiled"]) == ("code chosen", is_compiled)
    assert (str(tmp_path) in line["reason"]) is not is_compiled


def change(listed: Path) -> None:
    known = json.loads(listed.read_bytes())
    known["sources"]["kubeshare/core/token/arbiter.py"] = "0123456789abcdef"
    listed.write_text(json.dumps(known))


def name_a_missing_source(listed: Path) -> None:
    known = json.loads(listed.read_bytes())
    known["sources"]["kubeshare/core/token/gone.py"] = "0123456789abcdef"
    listed.write_text(json.dumps(known))


@pytest.mark.native
@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (change, "was made from other sources: run `make native`"),
        (name_a_missing_source, "gone.py does not exist: run `make native`"),
        (Path.unlink, "does not exist: run `make native`"),
    ],
)
def test_the_sources_run_where_the_library_is_not_theirs(
    copied: Path, spoil: Callable[[Path], None], reason: str
) -> None:
    spoil(compiled.manifest(copied))
    assert_sources_run(copied, reason)


@pytest.mark.parametrize("manifest", ["{", "[]", "{}", '{"sources": 1}', '{"sources": {}}'])
def test_the_sources_run_where_nobody_knows_what_the_library_is(
    tmp_path: Path, manifest: str
) -> None:
    compiled.manifest(tmp_path).write_text(manifest)
    assert_sources_run(tmp_path, "cannot be read")


@pytest.mark.native
def test_the_sources_run_where_the_library_cannot_be_loaded(copied: Path) -> None:
    compiled.library(copied).write_bytes(b"for another machine")
    assert_sources_run(copied, "cannot be loaded")
    compiled.library(copied).unlink()
    assert_sources_run(copied, "cannot be loaded")


def assert_sources_run(folder: Path, reason: str) -> None:
    before = list(sys.meta_path)
    code = compiled.use(folder)
    assert not code.is_compiled
    assert reason in code.why_not
    assert sys.meta_path == before


@pytest.mark.native
def test_each_python_has_a_library_of_its_own(folder: Path) -> None:
    assert compiled.library(folder).name.endswith(EXTENSION_SUFFIXES[0])
    assert compiled.library(folder).exists()


@pytest.mark.native
def test_nothing_compiled_lies_beside_the_sources() -> None:
    sources = Path(native.__file__).parent
    assert [path for path in sources.rglob("*") if path.suffix in (".so", ".c")] == []
