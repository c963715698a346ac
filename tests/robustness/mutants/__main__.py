"""``make mutants``: breaks a package in thousands of small ways; its tests must notice."""

import argparse
import random
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Final, TypeAlias

import click

from robustness.mutants import page
from robustness.mutants.forks import Verdict
from robustness.mutants.mutations import Mutant, mutants_of
from robustness.mutants.record import ALIVE, Record
from robustness.mutants.suite import PACKAGES, REPOSITORY, SOURCES, Suite, with_suite

_RECORDS: Final = REPOSITORY / ".mutants"
_LISTED: Final = "core"
"""The package of which the page lists every mutant that lives; of the others the score counts."""
_EVERY_SECONDS: Final = 5.0
_ENOUGH: Final = 90.0
_GENERATED: Final = "_pb2"

_Verdicts: TypeAlias = Sequence[tuple[Mutant, Verdict | None]]


def main() -> int:
    """Judge all mutants that have no verdict yet; 1 when too many live, or one not listed."""
    parser = argparse.ArgumentParser(prog="mutants", description=__doc__)
    parser.add_argument("--package", choices=PACKAGES, default=_LISTED)
    parser.add_argument(
        "--only", nargs="+", default=[""], help="modules whose path in the package begins so"
    )
    parser.add_argument("--every", type=int, default=1, help="judge one in so many")
    parser.add_argument("--fresh", action="store_true", help="forget what earlier runs found")
    parser.add_argument("--write", action="store_true", help=f"write {page.PAGE.name} anew")
    asked = parser.parse_args()
    package = asked.package
    file = _RECORDS / f"{package}.jsonl"
    if asked.fresh:
        file.unlink(missing_ok=True)
    known = page.words(page.PAGE)
    excused = {name for name, word in known.items() if word not in ("", page.UNTESTED)}
    record = Record(file, package, excused)
    mutants = list(_mutants(package, tuple(asked.only)))
    todo = [mutant for mutant in mutants if record.verdict(mutant) is None][:: asked.every]
    # In one fixed random order: what a run that is stopped has judged is a fair sample.
    random.Random(0).shuffle(todo)
    click.echo(f"{len(mutants)} mutants, {len(todo)} without a verdict", err=True)
    if todo:
        with_suite(package, lambda suite: _judge(suite, todo, record))
    verdicts = [(mutant, record.verdict(mutant)) for mutant in mutants]
    if asked.write and package == _LISTED:
        page.PAGE.write_text(page.text(verdicts, known))
    if package != _LISTED:
        return 0 if _say_scores(verdicts) >= _ENOUGH else 1
    whole = asked.only == [""] and asked.every == 1
    return 0 if _report(verdicts, whole=whole) else 1


def _mutants(package: str, only: tuple[str, ...]) -> Iterator[Mutant]:
    for path in sorted((SOURCES / package).rglob("*.py")):
        if _GENERATED in path.name:
            continue
        module = path.relative_to(SOURCES / package).as_posix()
        if module.startswith(only):
            yield from mutants_of(SOURCES, f"{package}/{module}")


def _judge(suite: Suite, todo: Sequence[Mutant], record: Record) -> None:
    begun = shown = time.monotonic()
    living = 0
    for number, mutant in enumerate(todo, start=1):
        verdict, by = suite.judge(mutant)
        record.add(mutant, verdict, by)
        living += verdict in ALIVE
        now = time.monotonic()
        if now - shown > _EVERY_SECONDS:
            shown = now
            left = (len(todo) - number) * (now - begun) / number
            click.echo(
                f"{number:,} of {len(todo):,}, {living} live, {left:.0f} s left: {mutant.module}",
                err=True,
            )


def _say_scores(verdicts: _Verdicts) -> float:
    """Print how many were killed, by folder; per cent of all."""
    scores = page.scores(verdicts)
    for place, score in scores.items():
        click.echo(f"{score.share:6.1f} % of {score.judged:>5,} killed  {place or 'in all'}")
    return scores[""].share if scores else 100.0


def _report(verdicts: _Verdicts, *, whole: bool) -> bool:
    """Print how many were killed and where the page is wrong; whether all is well."""
    share = _say_scores(verdicts)
    known = page.words(page.PAGE)
    living = {mutant.name for mutant, verdict in verdicts if verdict in ALIVE}
    judged = {mutant.name for mutant, verdict in verdicts if verdict is not None}
    listed = set(known) if whole else set(known) & judged
    wrong = [
        *(f"lives and is not listed: {name}" for name in sorted(living - listed)),
        *(
            f"is listed without a word: {name}"
            for name in sorted(living & listed)
            if not known[name]
        ),
        *(f"is listed and does not live: {name}" for name in sorted(listed - living)),
    ]
    for line in wrong:
        click.echo(line)
    if wrong:
        click.echo(
            f"{page.PAGE.name} is to say why each lives; `ARGS=--write` brings it up to date"
        )
    return not wrong and share >= _ENOUGH


if __name__ == "__main__":
    sys.exit(main())
