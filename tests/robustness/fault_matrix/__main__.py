"""Plays all points, or those of one life, trouble or write, with one seed or with several."""

import argparse
import gc
import os
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial

from robustness.fault_matrix.lives import LIVES
from robustness.fault_matrix.matrix import Tally, log_nothing, play, points
from robustness.fault_matrix.troubles import TROUBLES


def main(arguments: Sequence[str] | None = None) -> int:
    """Play and print; returns 1 when a point, or the matrix itself, went wrong."""
    asked = _parser().parse_args(arguments)
    total = Tally()
    chosen = [asked.life] if asked.life else list(LIVES)
    # In this process one point can be debugged.
    spread = map if len(chosen) == 1 else ProcessPoolExecutor(os.cpu_count()).map
    results = spread(partial(_play, asked), chosen)
    for life, (tally, seconds) in zip(chosen, results, strict=True):
        _say(f"{life:<10} {tally} ({seconds:.1f} s of CPU)")
        for wrong in tally.wrong:
            _say(f"  {wrong}")
        total.add(tally)
    _say(f"{'all':<10} {total}")
    for name in total.unseen:
        _say(f"  {name}: no effect of it was seen")
    # Of one write, chance may have hidden the effect.
    return 1 if total.wrong or (asked.write is None and total.unseen) else 0


def _play(asked: argparse.Namespace, life: str) -> tuple[Tally, float]:
    if asked.write is None:
        log_nothing()
    # A run leaves cycles behind, of which few collections are enough.
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    tally, began = Tally(), time.process_time()
    for seed in range(asked.seed, asked.seed + asked.seeds):
        for point in points(life, [asked.trouble] if asked.trouble else TROUBLES, seed):
            if asked.write in {None, point.write}:
                play(point, tally)
    return tally, time.process_time() - began


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
