"""Writes ``mutants.md``: how many mutants there are, which survive, and why each may."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from robustness.mutants.forks import Verdict
from robustness.mutants.mutations import Mutant
from robustness.mutants.record import ALIVE

PAGE: Final = Path(__file__).with_name("mutants.md")
"""The page that the repository has."""

UNTESTED: Final = "untested"
"""The word for a mutant that lives though it need not."""

_NUMBERS: Final = "## How many"
_ENTRY: Final = re.compile(r"- `(?P<name>.*?)`: (?P<word>.*)")
_BODY: Final = "(body)"


class Score(msgspec.Struct):
    """What became of the mutants of a module or folder."""

    mutants: int = 0
    judged: int = 0
    by_test: int = 0
    by_time: int = 0

    def add(self, verdict: Verdict | None) -> None:
        """Count one."""
        self.mutants += 1
        self.judged += verdict is not None
        self.by_test += verdict == "killed"
        self.by_time += verdict == "killed by time"

    @property
    def killed(self) -> int:
        """How many were killed, in whichever way."""
        return self.by_test + self.by_time

    @property
    def share(self) -> float:
        """Per cent of those judged that were killed."""
        return 100 * self.killed / self.judged if self.judged else 100.0


def scores(verdicts: Iterable[tuple[Mutant, Verdict | None]]) -> dict[str, Score]:
    """Folder of `src/kubeshare` -> what became of its mutants; "" is all of them."""
    found: dict[str, Score] = defaultdict(Score)
    for mutant, verdict in verdicts:
        folder = str(Path(mutant.module).parent)
        for place in ("", folder):
            found[place].add(verdict)
    return dict(sorted(found.items()))


def words(page: Path) -> dict[str, str]:
    """Name of a mutant on the page → why it lives."""
    known: dict[str, str] = {}
    module = ""
    for line in page.read_text().splitlines() if page.exists() else ():
        if line.startswith("### "):
            module = line.split("`")[1]
        elif entry := _ENTRY.fullmatch(line):
            known[f"{module} {entry['name'].removeprefix(_BODY)}"] = entry["word"]
    return known


def text(verdicts: Sequence[tuple[Mutant, Verdict | None]], known: Mapping[str, str]) -> str:
    """The page: its introduction as it is, a table, and each that lives with what is known."""
    rows = [
        f"| {place or '**all**'} | {score.mutants} | {score.judged} | {score.killed} "
        f"| {score.by_time} | {score.judged - score.killed} | {score.share:.1f} % |"
        for place, score in reversed(scores(verdicts).items())
    ]
    lines = [
        PAGE.read_text().partition(_NUMBERS)[0] + _NUMBERS,
        "",
        "| folder | mutants | judged | killed | of them by time | alive | killed |",
        "|---|---|---|---|---|---|---|",
        *rows,
        "",
        "## Who lives, and why",
    ]
    by_module: dict[str, list[tuple[Mutant, Verdict | None]]] = defaultdict(list)
    for mutant, verdict in verdicts:
        by_module[mutant.module].append((mutant, verdict))
    for module, judged in by_module.items():
        living = [mutant for mutant, verdict in judged if verdict in ALIVE]
        if living:
            lines += ["", f"### `{module}`: {len(living)} of {len(judged)}", ""]
            lines += [_entry(mutant, known.get(mutant.name, "")) for mutant in living]
    return "\n".join(lines) + "\n"


def _entry(mutant: Mutant, word: str) -> str:
    return f"- `{mutant.function or _BODY}: {mutant.change}`: {word}"
