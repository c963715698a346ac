"""``python -m bench.gaia``: the paper's experiments, their frequencies beside the paper's.

With ``--cluster`` also on a real API server, with the time until a pod is bound (experiment 5,
twenty runs more, a pod after another).
With ``--lab`` also on an owned node of a lab. With ``--experiment 6`` instead, the time of jobs on
two fake GPUs by who places them; with ``--pytorch`` too, on this machine's own GPUs.
"""

import argparse
import sys
from collections.abc import Mapping

from bench.gaia import cluster, lab, pytorch, training
from bench.report import print_machine
from kubeshare.simulator.figures.gaia import placement
from kubeshare.simulator.figures.gaia.cases import CASES, Case


def main() -> int:
    """Run all; exit code 1 where a frequency differs from the paper's by more than a tie."""
    parser = argparse.ArgumentParser(prog="bench.gaia", description=__doc__)
    parser.add_argument("--runs", type=int, default=placement.RUNS, help="of each case")
    parser.add_argument(
        "--cluster", type=int, metavar="RUNS", help="also on a real API server, so often"
    )
    parser.add_argument("--lab", type=int, metavar="RUNS", help="also in a lab (root), so often")
    parser.add_argument("--experiment", type=int, choices=[6], help="this one alone")
    parser.add_argument(
        "--pytorch",
        metavar="PYTHON",
        help="with --experiment 6: train with PyTorch, which this Python has, on the GPUs of this "
        "machine, four or more, in place of fake ones",
    )
    options = parser.parse_args()
    if options.pytorch and options.experiment != training.EXPERIMENT:
        parser.error("--pytorch goes with --experiment 6")
    print_machine()
    if options.pytorch:
        try:
            pytorch.run(options.pytorch, training.RUNS)
        except pytorch.MachineError as error:
            print(f"bench.gaia: {error}", file=sys.stderr)
            return 3
        return 0
    if options.experiment == training.EXPERIMENT:
        return int(training.run(training.RUNS))
    print(f"\nExperiments 1 to 4 with the core of `kubeshare plan`, {options.runs} runs each")
    differs = False
    for case in CASES:
        differs |= _show(case, placement.play(case, options.runs), options.runs)
    if options.cluster:
        differs |= cluster.run(options.cluster)
    if options.lab:
        differs |= lab.run(options.lab)
    return int(differs)


def _show(case: Case, found: placement.Frequencies, runs: int) -> bool:
    """Print the frequencies of a case; whether they contradict the paper's."""
    print(f"\n{case.name}: {case.tree}, in use {dict(case.before) or 'nothing'}")
    contradicts = False
    papers: tuple[Mapping[str, int], ...] = case.paper or ({},) * len(found)
    for cores, counts, paper in zip(case.requests, found, papers, strict=True):
        here = ", ".join(f"gpu {gpus}: {count}" for gpus, count in sorted(counts.items()))
        numbers = [f"gpu {gpus}: {count}" for gpus, count in paper.items()]
        there = ", ".join([*numbers, "others: 0"]) if numbers else "no numbers"
        print(f"  {cores:3d} cores   here {here:24s} paper {there}")
        contradicts |= bool(paper) and not counts.keys() <= paper.keys()
        contradicts |= sum(counts.values()) != runs
    if case.tie:
        print(f"  {case.tie}")
    return contradicts


if __name__ == "__main__":
    sys.exit(main())
