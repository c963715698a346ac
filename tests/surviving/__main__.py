"""Play all points, or those of one life, trouble or write: ``[LIFE [TROUBLE [WRITE]]]``."""

import sys
import time

from surviving.lives import LIVES
from surviving.matrix import Tally, play, points
from surviving.troubles import TROUBLES


def main(arguments: list[str]) -> int:
    """Play and print; returns 1 when something went wrong."""
    lives = arguments[:1] or list(LIVES)
    troubles = arguments[1:2] or list(TROUBLES)
    total = Tally()
    for life in lives:
        tally, began = Tally(), time.process_time()
        for point in points(life, troubles):
            if arguments[2:] in ([], [str(point.write)]):
                play(point, tally)
        _say(f"{life:<10} {tally} ({time.process_time() - began:.1f} s of CPU)")
        for wrong in tally.wrong:
            _say(f"  {wrong}")
        total.add(tally)
    _say(f"{'all':<10} {total}")
    return 1 if total.wrong else 0


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
