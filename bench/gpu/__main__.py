"""``python -m bench.gpu``: the numbers of this machine's GPU (``--help`` has the options)."""

import sys

from bench.gpu import search_path


def main() -> None:
    """Find what the program needs, then run it."""
    try:
        search_path.extend()
    except search_path.WheelError as error:
        print(f"bench.gpu: {error}", file=sys.stderr)
        sys.exit(2)
    missing = search_path.missing()
    if missing:
        why = "; ".join(f"{name} ({reason})" for name, reason in missing.items())
        print(
            f"bench.gpu: this Python cannot import {why}: put the packages, or their wheels, into "
            f"{search_path.PACKAGES}, as `make gpu-tree` does elsewhere; where there is a network, "
            "`make setup` gets them",
            file=sys.stderr,
        )
        sys.exit(2)
    from bench.gpu.program import main as program  # noqa: PLC0415  before, nothing is found

    program(prog_name="python -m bench.gpu")


if __name__ == "__main__":
    main()
