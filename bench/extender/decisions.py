"""``python -m bench.extender.decisions --beside BINARY``: do both extenders decide the same?

Each has a cluster of its own, with equal nodes and pods, and gets the same calls. First the
worked examples of gpushare's design documents, then a random sequence of pods that come and go. Of
each pod the answers of ``filter`` are compared, then of ``bind`` for one node, which need not fit,
and the GPU that is written into the pod; after each pod that leaves, ``inspect``.
"""

import argparse
import asyncio
import json
import random
import sys
import tempfile
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import groupby
from pathlib import Path
from typing import Final

from bench.extender.api_server import serving
from bench.extender.comparison import WAITS, Cluster, Comparison
from bench.extender.objects import filter_arguments
from bench.extender.programs import (
    CallError,
    StartError,
    alibabas_extender,
    our_extender,
    write_kubeconfig,
)
from bench.report import at_most, print_machine, report, summarize

EXAMPLES: Final[Mapping[str, tuple[Mapping[str, Sequence[int]], Sequence[Sequence[int]]]]] = {
    "N1 has 4069 left in all": ({"n1": (16276, 12207)}, [(8138,)]),
    "N2 has 4069 left on each GPU": ({"n2": (12207, 12207)}, [(8138,)]),
    "of N1, N2 and N3, one has 8138 left on one GPU": (
        {"n1": (16276, 12207), "n2": (12207, 12207), "n3": (8138, 16276)},
        [(8138,)],
    ),
    "12207, 8138, 4069 and 16276 left": ({"n1": (4069, 8138, 12207, 0)}, [(8138,)]),
    "fifteen pods of 1024 fit a GPU": ({"n1": (0,)}, [(1024,)] * 16),
    "five halves on two GPUs": ({"n1": (0, 0)}, [(8138,)] * 5),
    "two free halves are no whole GPU": ({"n1": (8138, 8138)}, [(16276,)]),
    "a whole GPU leaves nothing": ({"n1": (0,)}, [(16276,), (1,)]),
    "a MiB more than a GPU has": ({"n1": (0, 0, 0, 0)}, [(16277,)]),
    "two containers need their sum on one GPU": (
        {"n1": (12207, 12207), "n2": (8138, 16276), "n3": (4069, 16276)},
        [(5000, 5000)],
    ),
}
"""Name → the MiB in use of each GPU by node, and the MiB of the containers of each pod."""
RANDOM_NODES: Final = {"one": (0,), "two": (0, 0), "three": (0, 0, 0), "other-two": (0, 0)}
STEPS: Final = 500
SEED: Final = 13

_SIZES = (1, 1000, 1024, 2048, 3072, 4069, 5000, 8138, 12207, 16000, 16276, 16277)
_COMING = 0.6
"""The part of the steps in which a pod comes; in the others one leaves."""
_ANYWHERE = 0.2
"""The part of the pods that are bound to any node, not to one that fits."""


async def _examples(both: Comparison) -> None:
    """Play the worked examples; print where the pods are at both."""
    print("\nexample | the pods ask for, MiB | KubeShare | Alibaba's")
    for number, (title, (nodes, pods)) in enumerate(EXAMPLES.items()):
        prefix = f"e{number}-"
        await both.add_nodes({f"{prefix}{name}": used for name, used in nodes.items()})
        names = [f"{prefix}{name}" for name in nodes]
        places = [
            await both.schedule(f"{prefix}{at}", units, names, lambda fit: min(fit, default=""))
            for at, units in enumerate(pods)
        ]
        columns = [[" + ".join(map(str, units)) for units in pods], *zip(*places, strict=True)]
        print(" | ".join([title, *(_counted(each).replace(prefix, "") for each in columns)]))
    print(flush=True)


def _counted(values: Iterable[str]) -> str:
    """The values, equal neighbours once."""
    groups = [(value, len([*equal])) for value, equal in groupby(values)]
    return ", ".join(value if count == 1 else f"{count} x ({value})" for value, count in groups)


async def _sequence(both: Comparison) -> None:
    """Let pods come and go."""
    draw = random.Random(SEED)
    used = {name: [*each] for name, each in RANDOM_NODES.items()}
    await both.add_nodes(RANDOM_NODES)
    bound: dict[str, tuple[str, int, int]] = {}

    def choose(fitting: list[str]) -> str:
        if draw.random() < _ANYWHERE:
            return draw.choice([*used])
        return draw.choice(fitting) if fitting else ""

    for number in range(STEPS):
        if not bound or draw.random() < _COMING:
            name, asked = f"pod-{number}", draw.choices(_SIZES, k=draw.choice((1, 1, 2)))
            place, other = await both.schedule(name, asked, [*used], choose)
            if place != other:
                return  # the clusters are no longer equal
            if place != WAITS:
                where, gpu = place.split(", GPU ")
                used[where][int(gpu)] += sum(asked)
                bound[name] = where, int(gpu), sum(asked)
            else:
                for cluster, _ in both.sides:
                    cluster.remove(name)
        else:
            name = draw.choice([*bound])
            node, index, units = bound.pop(name)
            used[node][index] -= units
            for cluster, _ in both.sides:
                cluster.remove(name)
            await both.settle(used)
    await both.settle(used)


@asynccontextmanager
async def _running(binary: Path) -> AsyncIterator[Comparison]:
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kubeshare-bench-")))
        sides = []
        for name in ("ours", "theirs"):
            cluster = Cluster()
            cluster.add_node("first", (0,))
            url = await stack.enter_async_context(serving(cluster.server))
            config = write_kubeconfig(folder / name, url)
            program = (
                our_extender(config, folder / "extender.log")
                if name == "ours"
                else alibabas_extender(binary, config)
            )
            extender = stack.enter_context(program)
            first = filter_arguments(1) | {"NodeNames": ["first"]}
            await asyncio.to_thread(extender.wait, json.dumps(first).encode())
            sides.append((cluster, extender))
        yield Comparison((sides[0], sides[1]))


async def _compare(binary: Path) -> Comparison:
    async with _running(binary) as both:
        await _examples(both)
        await _sequence(both)
        return both


def main() -> int:
    """Exit code 1 if an answer differs, 2 if there is no such binary."""
    parser = argparse.ArgumentParser(
        prog="bench.extender.decisions",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--beside", type=Path, required=True, metavar="BINARY")
    options = parser.parse_args()
    if not options.beside.is_file():
        parser.error(f"{options.beside} does not exist: build Alibaba's extender, see CONTRIBUTING")
    print_machine()
    try:
        both = asyncio.run(_compare(options.beside.resolve()))
    except (StartError, CallError) as error:
        print(error, file=sys.stderr)
        return 3 if isinstance(error, StartError) else 1
    for line in both.differences:
        print(line, file=sys.stderr)
    counts = {"filters": both.filters, "binds": both.binds}
    name = "extender beside Alibaba's: answers that differ"
    return summarize([report(name, at_most(0), len(both.differences), **counts)])


if __name__ == "__main__":
    sys.exit(main())
