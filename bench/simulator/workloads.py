"""Compares ``gradient`` with ``fgd`` on all workloads of the trace ``openb``, seed by seed.

``python -m bench.simulator.workloads FOLDER RESULTS`` fills the cluster of the trace to 1.3 times
its GPUs with each of the files ``openb_pod_list_*.csv`` of the folder, as ``kubeshare sim --fill
1.3 --openb`` does, and appends a row for each run: what part of the GPUs was given away. Runs that
the file has already are left out, so that it can be stopped and continues where it stopped; each
seed is run for all workloads before the next one. At the end, or with ``--summary``, it prints
for each workload the means, the mean of the paired differences and its standard error. A run takes
3 s on an idle machine.
"""

import argparse
import csv
import sys
from pathlib import Path
from statistics import mean, stdev
from typing import Final, TypeAlias

from kubeshare.cli.simulate.bar import progress_bar
from kubeshare.core.units import MICROS
from kubeshare.simulator.cluster import build_cluster, gpu_count
from kubeshare.simulator.engine.simulation import Settings, Simulation
from kubeshare.simulator.systems import Setting, system
from kubeshare.simulator.workloads.filled import Filled
from kubeshare.simulator.workloads.openb import OpenbPods, read_nodes

POLICIES: Final = ("fgd", "gradient")

SEEDS: Final = 10

RATIO: Final = 1.3

Results: TypeAlias = dict[tuple[str, int, str], float]
"""Workload, seed and policy → the part of all GPUs that was given away, in %."""


def given_away(folder: Path, workload: str, seed: int, policy: str) -> float:
    """The part of all GPUs that a policy gives away, in %."""
    nodes = read_nodes(folder / "openb_node_list_gpu_node.csv")
    pods = OpenbPods(folder / f"openb_pod_list_{workload}.csv")
    gpus = gpu_count(nodes)
    filled = Filled(pods.draw(), gpus, RATIO)
    cluster = build_cluster(nodes, owned=True)
    chosen = system(policy, Setting(seed, nodes, filled.draw))
    for _ in Simulation(cluster, chosen, Settings()).run(filled.draw(seed)):
        pass
    devices = cluster.ledger.devices.values()
    return sum(device.totals.request_micros for device in devices) / MICROS / gpus * 100


def read_results(path: Path) -> Results:
    """What the file has."""
    if not path.exists():
        return {}
    with path.open(newline="") as file:
        rows = csv.reader(line for line in file if not line.startswith(("#", "workload,")))
        return {(row[0], int(row[1]), row[2]): float(row[3]) for row in rows}


def summary(results: Results) -> list[str]:
    """A line for each workload, of the seeds that both policies were run for."""
    lines = ["workload      seeds  fgd     gradient  difference  standard error"]
    for workload in sorted({workload for workload, _, _ in results}):
        pairs = [
            tuple(results[workload, seed, policy] for policy in POLICIES)
            for seed in range(SEEDS)
            if all((workload, seed, policy) in results for policy in POLICIES)
        ]
        if len(pairs) > 1:
            both, more = [*zip(*pairs, strict=True)], [ours - fgd for fgd, ours in pairs]
            error = stdev(more) / len(more) ** 0.5
            lines.append(
                f"{workload:12}  {len(pairs):5}  {mean(both[0]):.3f}  {mean(both[1]):.3f}    "
                f"{mean(more):+10.3f}  {error:14.3f}"
            )
    return lines


def main(folder: Path, path: Path, *, run: bool) -> None:
    """Run what is missing, and print what there is."""
    prefix = "openb_pod_list_"
    workloads = sorted(each.stem.removeprefix(prefix) for each in folder.glob(f"{prefix}*.csv"))
    if not workloads:
        sys.exit(f"{folder} has no file {prefix}*.csv: give the folder of the trace's CSV files")
    results = read_results(path)
    todo = [
        (workload, seed, policy)
        for seed in range(SEEDS)
        for workload in workloads
        for policy in POLICIES
        if (workload, seed, policy) not in results
    ]
    if run:
        with progress_bar(len(todo), "runs") as progress:
            for workload, seed, policy in todo:
                part = results[workload, seed, policy] = given_away(folder, workload, seed, policy)
                with path.open("a") as file:
                    file.write(f"{workload},{seed},{policy},{part:.4f}\n")
                progress(1)
    print("\n".join(summary(results)))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="bench.simulator.workloads", description=__doc__)
    parser.add_argument("folder", type=Path, help="of the trace's CSV files")
    parser.add_argument("results", type=Path, help="a CSV file, which is continued")
    parser.add_argument("--summary", action="store_true", help="only print what there is")
    options = parser.parse_args()
    main(options.folder, options.results, run=not options.summary)
