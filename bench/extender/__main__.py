"""``python -m bench.extender --beside BINARY``: a filter by our extender and by Alibaba's own.

Both run as processes beside a fake API server, with the same nodes and pods; ours counts the
holders, Alibaba's the annotations. Each request goes to both in turn, after a pod has come to a GPU
or left one and both had time to see it. It asks for most of a GPU, so a quarter of the nodes do
not fit. The binary is the user's: https://github.com/AliyunContainerService/gpushare-scheduler-extender,
``go build -o gpushare-extender ./cmd``.
"""

import argparse
import asyncio
import json
import sys
import tempfile
from collections.abc import Iterable
from contextlib import AsyncExitStack
from pathlib import Path

from bench.extender.api_server import serving
from bench.extender.objects import GPUS, SharedCluster, filter_arguments
from bench.extender.programs import (
    Answer,
    Extender,
    StartError,
    alibabas_extender,
    our_extender,
    write_kubeconfig,
)
from bench.placement.extender import GOALS_MS
from bench.report import (
    NO_GOAL,
    Goal,
    Met,
    at_most,
    percentile,
    print_machine,
    ratios,
    report,
    summarize,
)

LEVELS = (100, 1_000, 5_000)
"""Nodes."""
REQUESTS = 300
"""To each extender."""

_WARM_UP = 20
_UNITS = 14
"""GiB of the pod that is filtered: a GPU fits it that has no pod."""
_SETTLE_SECONDS = 0.02
"""What both get to see a change."""
_PATIENCE_SECONDS = 2.0
"""What both get once more where their answers differ."""


def main() -> int:
    """Exit code 1 if a goal is missed or answers differ, 2 if there is no such binary."""
    parser = argparse.ArgumentParser(
        prog="bench.extender",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--beside", type=Path, required=True, metavar="BINARY")
    parser.add_argument("--nodes", type=int, nargs="+", default=list(LEVELS))
    options = parser.parse_args()
    if not options.beside.is_file():
        parser.error(f"{options.beside} does not exist: build Alibaba's extender, see --help")
    print_machine()
    try:
        results = [
            met
            for nodes in options.nodes
            for met in asyncio.run(_measure(nodes, options.beside.resolve()))
        ]
    except StartError as error:
        print(error, file=sys.stderr)
        return 3
    return summarize(results)


async def _measure(nodes: int, binary: Path) -> list[Met]:
    cluster = SharedCluster(nodes)
    first = json.dumps(filter_arguments(_UNITS) | {"NodeNames": cluster.names[:1]}).encode()
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kubeshare-bench-")))
        url = await stack.enter_async_context(serving(cluster.server))
        kubeconfig = write_kubeconfig(folder / "kubeconfig", url)
        ours = stack.enter_context(our_extender(kubeconfig, folder / "extender.log"))
        theirs = stack.enter_context(alibabas_extender(binary, kubeconfig))
        for each in (ours, theirs):
            await asyncio.to_thread(each.wait, first)
        return await _compare(cluster, ours, theirs)


async def _compare(cluster: SharedCluster, ours: Extender, theirs: Extender) -> list[Met]:
    body = json.dumps(filter_arguments(_UNITS) | {"NodeNames": cluster.names}).encode()
    answers: list[tuple[Answer, Answer]] = []
    differing = 0
    began: tuple[float, float] = (0.0, 0.0)
    for number in range(_WARM_UP + REQUESTS):
        if number == _WARM_UP:
            began = ours.cpu_seconds(), theirs.cpu_seconds()
        cluster.change()
        await asyncio.sleep(_SETTLE_SECONDS)
        pair = (ours, theirs) if number % 2 else (theirs, ours)
        found = await _filter(pair, body)
        answers.append((found[ours], found[theirs]))
        if found[ours].names != found[theirs].names:  # one may not have seen the change yet
            await asyncio.sleep(_PATIENCE_SECONDS)
            found = await _filter(pair, body)
            differing += found[ours].names != found[theirs].names
    used = ours.cpu_seconds() - began[0], theirs.cpu_seconds() - began[1]
    memory = [round(each.resident_mib()) for each in (ours, theirs)]
    measured = answers[_WARM_UP:]
    whole = [round(seconds * 1e3 / REQUESTS, 2) for seconds in used]
    sides = {"with_watches_mean": whole, "resident_mib": memory, "pods": cluster.pods}
    fitting = percentile([len(our.names) for our, _ in measured], 50)
    results = _report(len(cluster.names), measured, sides | {"fitting": fitting})
    name = f"extender beside Alibaba's: filter of {len(cluster.names)} nodes, answers that differ"
    return [*results, report(name, at_most(0), differing)]


async def _filter(pair: Iterable[Extender], body: bytes) -> dict[Extender, Answer]:
    return {each: await asyncio.to_thread(each.filter, body) for each in pair}


def _report(
    nodes: int, answers: list[tuple[Answer, Answer]], sides: dict[str, object]
) -> list[Met]:
    """Print the numbers of a level; of a pair of numbers, the first is ours."""
    name = f"extender beside Alibaba's: filter of {nodes} nodes x {GPUS} GPUs by names"
    cpu = [our.cpu_ms for our, _ in answers], [their.cpu_ms for _, their in answers]
    wall = [our.wall_ms for our, _ in answers], [their.wall_ms for _, their in answers]
    goal = at_most(GOALS_MS[nodes]) if nodes in GOALS_MS else NO_GOAL
    results = _compared(f"{name}, processor time", goal, cpu, sides)
    return results + _compared(f"{name}, wall time", NO_GOAL, wall, {})


def _compared(
    name: str, goal: Goal, times: tuple[list[float], list[float]], sides: dict[str, object]
) -> list[Met]:
    both = {
        f"{side}_p{percent}": round(percentile(taken, percent), 2)
        for side, taken in zip(("ours", "theirs"), times, strict=True)
        for percent in (50, 99)
    }
    return [
        report(f"{name}, p99, ms", goal, percentile(times[0], 99), **both, **sides),
        report(f"{name}, ours / theirs", NO_GOAL, ratios(*times)),
    ]


if __name__ == "__main__":
    sys.exit(main())
