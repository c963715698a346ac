"""``make bench-cluster``: one JSON line a number; exit code 1 when a goal is missed."""

import argparse
import json
import sys

from bench.cluster import rate


def main() -> int:
    """Run it and say how many goals are met."""
    parser = argparse.ArgumentParser(prog="bench.cluster")
    parser.add_argument("--nodes", type=int, default=rate.SMALL.nodes, help="of 8 GPUs each")
    parser.add_argument("--sharepods", type=int, default=rate.SMALL.sharepods)
    parser.add_argument("--full", action="store_true", help="500 nodes and 10 000 SharePods")
    options = parser.parse_args()
    small = rate.Size(options.nodes, options.sharepods, rate.SMALL.idle_seconds)
    results = rate.run(rate.FULL if options.full else small)
    print(json.dumps({"goals": len(results), "met": sum(results)}))
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
