"""Boot a lab, play the points and print them; 1 when something went wrong."""

import argparse
import logging
import sys
from collections.abc import Sequence

from e2e.booting import booted, space_in
from robustness.lab_faults.playing import count_writes, play, runs, troubled
from robustness.lab_faults.troubles import TROUBLES


def main(arguments: Sequence[str] | None = None) -> int:
    """Play and print."""
    parser = argparse.ArgumentParser(prog="python -m robustness.lab_faults", description=__doc__)
    parser.add_argument("troubles", nargs="*", metavar="TROUBLE", help=", ".join(TROUBLES))
    parser.add_argument("--rounds", type=int, default=1, help="runs with each trouble")
    asked = parser.parse_args(arguments)
    # It tells of each connection that a killed program leaves behind.
    logging.getLogger("asyncio").setLevel(logging.ERROR)
    with booted("faults") as stage, space_in(stage) as space, troubled(space) as lab:
        writes, writes_of_two = count_writes(lab)
        _say(f"the life has {writes} writes, {writes_of_two} of scheduler and device manager")
        chosen = runs(writes, writes_of_two, asked.rounds)
        wanted = [one for one in chosen if one.trouble in (asked.troubles or TROUBLES)]
        tally = play(lab, wanted, _say)
    for wrong in tally.wrong:
        _say(f"  {wrong}")
    _say(f"all: {tally}")
    return 1 if tally.wrong else 0


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
