"""``make bench-cluster``: one JSON line a number; exit code 1 when a goal is missed.

First SharePods a second on a real API server, then what a large cluster costs our programs beside
an API server in memory. ``--rate`` prints the first alone. ``--before COMMIT`` runs that commit and
this one in turns: SharePods a second, then what load costs (``--load`` alone).
"""

import argparse
import sys

from bench.cluster import beside, drain, load, rate, start
from bench.placement import gang, waiting
from bench.report import print_machine, report_runs, summarize

_WAITING = ((10_000, 100), (start.GPUS, 1_000))
"""GPUs of a full cluster, and the SharePods that wait for one of them."""


def main() -> int:
    """Run it and say how many goals are met."""
    parser = argparse.ArgumentParser(prog="bench.cluster")
    parser.add_argument("--nodes", type=int, default=rate.SMALL.nodes, help="of 8 GPUs each")
    parser.add_argument("--sharepods", type=int, default=rate.SMALL.sharepods)
    parser.add_argument("--full", action="store_true", help="500 nodes and 10 000 SharePods")
    parser.add_argument(
        "--runs", type=int, help="each on a control plane of its own; 3, or 1 with --full"
    )
    only = parser.add_mutually_exclusive_group()
    only.add_argument("--rate", action="store_true", help="only SharePods a second")
    only.add_argument("--load", action="store_true", help="with --before, only what load costs")
    parser.add_argument("--before", help="a commit to run in turns with this one")
    options = parser.parse_args()
    if options.load and not options.before:
        parser.error("--load compares with a commit: add --before COMMIT")
    small = rate.Size(options.nodes, options.sharepods, rate.SMALL.idle_seconds)
    size = rate.FULL if options.full else small
    runs = options.runs or (1 if options.full else 3)
    print_machine()
    if options.before:
        met = [] if options.load else beside.compare(options.before, size, runs)
        met += [] if options.rate else load.compare(options.before)
        return summarize(met)
    met = report_runs([rate.run(size) for _ in range(runs)])
    if not options.rate:
        met += [each for gpus, waiters in _WAITING for each in waiting.run((gpus,), waiters)]
        met += waiting.run((start.GPUS,), 1_000, selecting=True)
        met += gang.run()
        met += drain.run()
        met += start.run(start.GPUS, start.SHAREPODS_IN_ALL)
    return summarize(met)


if __name__ == "__main__":
    sys.exit(main())
