"""``make bench``: every number, one JSON line each; exit code 1 when a goal is missed."""

import sys

from bench.node import allocation, alone, process_start, startup
from bench.placement import (
    binpack,
    in_cluster,
    locality,
    node_scores,
    several_shares,
    topology,
)
from bench.report import print_machine, summarize
from bench.tokens import figure_6, forced_drain, handover, shares


def main() -> int:
    """Run all of them and say how many goals are met."""
    print_machine()
    return summarize(
        [
            *startup.run(),
            *locality.run(),
            *binpack.run(),
            *topology.run(),
            *node_scores.run(),
            *several_shares.run(),
            *in_cluster.run(),
            *alone.run(),
            *allocation.run(),
            *process_start.run(),
            *forced_drain.run(),
            *figure_6.run(),
            *shares.run(),
            *handover.run(),
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
