"""``make prove``: every policy beside its slow reference on millions of random states."""

import argparse
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed

import click

from robustness.prove.binpack import BINPACK
from robustness.prove.engine import Failure, Seen, Trial, among_many, run
from robustness.prove.locality import LOCALITY
from robustness.prove.several_shares import SEVERAL_SHARES
from robustness.prove.topology import TOPOLOGY

_ON_FEW = (LOCALITY, BINPACK, TOPOLOGY, *SEVERAL_SHARES)
TRIALS = (*_ON_FEW, *map(among_many, _ON_FEW))

_EVERY_SECONDS = 5.0


def main() -> int:
    """Try each policy, on all processors, and say what was seen; 1 when one differs."""
    parser = argparse.ArgumentParser(prog="prove", description=__doc__)
    parser.add_argument("--states", type=int, default=1_000_000, help="random states a policy")
    parser.add_argument("--seed", type=int, default=2020)
    parser.add_argument("--policy", choices=[trial.name for trial in TRIALS])
    asked = parser.parse_args()
    names = [trial.name for trial in TRIALS if asked.policy in (None, trial.name)]
    differs = False
    with ProcessPoolExecutor() as pool:
        tries = [pool.submit(_try, name, asked.states, asked.seed) for name in names]
        for each in as_completed(tries):
            agrees, report = each.result()
            click.echo(report)
            differs = differs or not agrees
    return int(differs)


def _try(name: str, states: int, seed: int) -> tuple[bool, str]:
    """Whether a policy and its reference agree, and what was seen."""
    trial = next(each for each in TRIALS if each.name == name)
    try:
        return True, _report(trial, _watched(trial, states, seed))
    except Failure as failure:
        return False, str(failure)


def _watched(trial: Trial, states: int, seed: int) -> Seen:
    begun = shown = time.monotonic()
    seen = Seen()
    for seen in run(trial, states, seed):
        now = time.monotonic()
        if now - shown > _EVERY_SECONDS:
            shown = now
            left = (states - seen.states) * (now - begun) / seen.states
            click.echo(f"{trial.name}: {seen.states:,} of {states:,}, {left:.0f} s left", err=True)
    return seen


def _report(trial: Trial, seen: Seen) -> str:
    lines = [f"{trial.name}: {seen.states:,} states agree, at least {seen.distinct:,} distinct"]
    lines += [f"  {times:>10,}  {branch}" for branch, times in sorted(seen.branches.items())]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
