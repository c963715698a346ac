"""Draw the cost of a decision against the size of the cluster from the lines of the bench.

``PYTHONPATH=tests python -m bench | python -m bench.placement.plot docs/placement-cost.svg``
"""

import json
import re
import sys
from typing import Any

import matplotlib as mpl

mpl.use("svg")

from matplotlib import pyplot as plt

_SIZE = re.compile(r"locality, mixed, (\d+) GPUs: bound decision and its record, µs$")


def main() -> None:
    """Read lines, write the picture."""
    rows = sorted(_rows())
    holders = [row[0] for row in rows]
    figure, axes = plt.subplots(figsize=(7, 4.5))
    axes.plot(holders, [row[1]["value"] for row in rows], "o-", label="index, median")
    axes.plot(holders, [row[1]["p99"] for row in rows], "o:", color="C0", label="index, p99")
    scans = [row[1]["linear_scan_of_sharepods_us"] for row in rows]
    axes.plot(holders, scans, "s--", color="C7", label="scan of all SharePods, in Python")
    axes.set(xscale="log", yscale="log", xlabel="pods that share GPUs", ylabel="µs a decision")
    axes.grid(visible=True, which="major", alpha=0.3)
    axes.legend(frameon=False)
    figure.tight_layout()
    figure.savefig(sys.argv[1], metadata={"Date": None})


def _rows() -> list[tuple[int, dict[str, Any]]]:
    lines = [json.loads(text) for text in sys.stdin if text.startswith("{")]
    return [(line["holders"], line) for line in lines if _SIZE.match(line.get("what", ""))]


if __name__ == "__main__":
    main()
