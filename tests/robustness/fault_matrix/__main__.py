"""Play all points, or those of one life, trouble or write, with one seed or with several."""

import argparse
import logging
import sys
import time
from collections.abc import Sequence

import structlog

from robustness.fault_matrix.lives import LIVES
from robustness.fault_matrix.matrix import Tally, play, points
from robustness.fault_matrix.troubles import TROUBLES


def main(arguments: Sequence[str] | None = None) -> int:
    """Play and print; returns 1 when something went wrong."""
    asked = _parser().parse_args(arguments)
    if asked.write is None:
        # What programs say of so many tellings nobody reads, and it takes a tenth of the time.
        structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    total = Tally()
    for life in [asked.life] if asked.life else LIVES:
        tally, began = Tally(), time.process_time()
        for seed in range(asked.seed, asked.seed + asked.seeds):
            for point in points(life, [asked.trouble] if asked.trouble else TROUBLES, seed):
                if asked.write in {None, point.write}:
                    play(point, tally)
        _say(f"{life:<10} {tally} ({time.process_time() - began:.1f} s of CPU)")
        for wrong in tally.wrong:
            _say(f"  {wrong}")
        total.add(tally)
    _say(f"{'all':<10} {total}")
    return 1 if total.wrong else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m robustness.fault_matrix", description=__doc__)
    parser.add_argument("life", nargs="?", choices=LIVES)
    parser.add_argument("trouble", nargs="?", choices=TROUBLES)
    parser.add_argument("write", nargs="?", type=int)
    parser.add_argument("--seed", type=int, default=0, help="the first one")
    parser.add_argument("--seeds", type=int, default=1, help="how many")
    return parser


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
