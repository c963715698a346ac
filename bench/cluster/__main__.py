"""``make bench-cluster``: one JSON line a number; exit code 1 when a goal is missed.

With ``--before COMMIT`` another line for each number of that commit, and their ratio.
"""

import argparse
import sys

from bench.cluster import beside, rate
from bench.report import print_machine, report_runs, summarize


def main() -> int:
    """Run it and say how many goals are met."""
    parser = argparse.ArgumentParser(prog="bench.cluster")
    parser.add_argument("--nodes", type=int, default=rate.SMALL.nodes, help="of 8 GPUs each")
    parser.add_argument("--sharepods", type=int, default=rate.SMALL.sharepods)
    parser.add_argument("--full", action="store_true", help="500 nodes and 10 000 SharePods")
    parser.add_argument(
        "--runs", type=int, help="each on a control plane of its own; 3, or 1 with --full"
    )
    parser.add_argument("--before", help="a commit to run in turns with this one")
    options = parser.parse_args()
    small = rate.Size(options.nodes, options.sharepods, rate.SMALL.idle_seconds)
    size = rate.FULL if options.full else small
    runs = options.runs or (1 if options.full else 3)
    print_machine()
    if options.before:
        return summarize(beside.compare(options.before, size, runs))
    return summarize(report_runs([rate.run(size) for _ in range(runs)]))


if __name__ == "__main__":
    sys.exit(main())
