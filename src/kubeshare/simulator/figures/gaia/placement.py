"""Plays each Gaia case often, after pods in random order."""

import random
from collections import Counter
from collections.abc import Sequence

from kubeshare.dialects.vcuda import CORES
from kubeshare.simulator.figures import scenarios
from kubeshare.simulator.figures.gaia.cases import BLOCKS, Case

SEED = 20181203
RUNS = 500

Frequencies = list[Counter[str]]
"""For each request of a case, how often which GPUs were given."""


def play(case: Case, runs: int = RUNS) -> Frequencies:
    """How often each request got which GPUs.

    For each run a seed draws the order in which the GPUs in use are listed, the pods that came and
    went before, and, where the case says so, the order of the requests.
    """
    draw = random.Random(SEED)  # noqa: S311 - repeatable on purpose
    found: Frequencies = [Counter() for _ in case.requests]
    for _ in range(runs):
        order = list(range(len(case.requests)))
        if case.shuffled:
            draw.shuffle(order)
        for number, gpus in zip(order, _play_once(case, order, draw), strict=True):
            found[number][gpus] += 1
    return found


def _play_once(case: Case, order: Sequence[int], draw: random.Random) -> list[str]:
    used = list(case.before.items())
    draw.shuffle(used)
    vgpus = [_left(gpu, CORES - cores) for gpu, cores in used]
    count = case.tree.count(",") + 1
    node = {"name": "n1", "topology": case.tree, "vgpus": vgpus}
    visitors = [f"visitor-{number}" for number in range(draw.randrange(count))]
    events: list[dict[str, object]] = [
        {"request": {"name": name, "cores": CORES}} for name in visitors
    ]
    draw.shuffle(visitors)
    events += [{"release": name} for name in visitors]
    events += [{"request": _request(f"p{number}", case.requests[number])} for number in order]
    placed = scenarios.play({"policy": "topology", "nodes": [node], "events": events})
    return [",".join(sorted(placed[f"p{number}"].gpus)) for number in order]


def _left(gpu: str, cores: int) -> dict[str, object]:
    memory = "15Gi" if cores else "0Mi"
    return {"id": gpu, "compute": cores / CORES, "memory": memory}


def _request(name: str, cores: int) -> dict[str, object]:
    blocks = {} if cores >= CORES else {"memoryBlocks": BLOCKS}
    return {"name": name, "cores": cores} | blocks
