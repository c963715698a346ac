"""``make bench``: every number, one JSON line each; exit code 1 when a goal is missed.

``python -m bench placement`` measures only what one folder of benchmarks does.
"""

import argparse
import sys

from bench.node import allocation, alone, process_start, startup
from bench.placement import (
    binpack,
    extender,
    in_cluster,
    locality,
    node_scores,
    several_shares,
    topology,
    waiting,
)
from bench.report import print_machine, summarize
from bench.simulator import decisions, speed
from bench.tokens import figure_6, forced_drain, handover, hostile, mixes, shares

_ALL = (
    ("node", startup.run),
    ("placement", locality.run),
    ("placement", binpack.run),
    ("placement", topology.run),
    ("placement", node_scores.run),
    ("placement", several_shares.run),
    ("placement", in_cluster.run),
    ("placement", extender.run),
    ("placement", waiting.run),
    ("simulator", speed.run),
    ("simulator", decisions.run),
    ("node", alone.run),
    ("node", allocation.run),
    ("node", process_start.run),
    ("tokens", forced_drain.run),
    ("tokens", figure_6.run),
    ("tokens", shares.run),
    ("tokens", mixes.run),
    ("tokens", handover.run),
    ("tokens", hostile.run),
)


def main() -> int:
    """Run all of them, or one folder's, and say how many goals are met."""
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument("folder", nargs="?", choices=sorted({folder for folder, _ in _ALL}))
    chosen = parser.parse_args().folder
    print_machine()
    return summarize([met for folder, run in _ALL if chosen in (None, folder) for met in run()])


if __name__ == "__main__":
    sys.exit(main())
