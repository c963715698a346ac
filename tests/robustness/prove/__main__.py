"""``make prove``: every policy beside its slow reference on millions of random states."""

import argparse
import sys
import time

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
    """Try each policy, show progress, and say what was seen; 1 when one differs."""
    parser = argparse.ArgumentParser(prog="prove", description=__doc__)
    parser.add_argument("--states", type=int, default=5_000_000, help="random states a policy")
    parser.add_argument("--seed", type=int, default=2020)
    parser.add_argument("--policy", choices=[trial.name for trial in TRIALS])
    asked = parser.parse_args()
    for trial in TRIALS:
        if asked.policy in (None, trial.name):
            try:
                _report(trial, _watched(trial, asked.states, asked.seed))
            except Failure as failure:
                click.echo(failure)
                return 1
    return 0


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


def _report(trial: Trial, seen: Seen) -> None:
    click.echo(f"{trial.name}: {seen.states:,} states agree, at least {seen.distinct:,} distinct")
    for branch, times in sorted(seen.branches.items()):
        click.echo(f"  {times:>10,}  {branch}")


if __name__ == "__main__":
    sys.exit(main())
