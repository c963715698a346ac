"""``make bench``: every number, one JSON line each; exit code 1 when a goal is missed."""

import json
import sys

from bench import (
    allocation,
    alone,
    binpack,
    figure_6,
    forced_drain,
    in_cluster,
    placement,
    process_start,
    shares,
    startup,
    tokens,
    topology,
)


def main() -> int:
    """Run all of them and say how many goals are met."""
    results = [
        *startup.run(),
        *placement.run(),
        *binpack.run(),
        *topology.run(),
        *in_cluster.run(),
        *alone.run(),
        *allocation.run(),
        *process_start.run(),
        *forced_drain.run(),
        *figure_6.run(),
        *shares.run(),
        *tokens.run(),
    ]
    print(json.dumps({"goals": len(results), "met": sum(results)}))
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
