"""The slowest of hundreds of starts, and starts beside those of another driver's claims, in a lab.

``python -m bench.lab.starts`` (root; 40 minutes). SharePods start one at a time, half of them with
a new vGPU and half on a warm one, in turn with pods of NVIDIA's device plugin and with pods that
have a claim of a DRA driver (the lab's stand-in for NVIDIA's). kube-scheduler makes that claim for
an extended resource, as it makes those of SharePods, so the two starts differ only by what
KubeShare does. One start among hundreds used to take ten seconds more: docs/designs/017.
"""

import argparse
import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import Final

from bench.lab.pods import Bench
from bench.report import NO_GOAL, Met, at_most, median, print_machine, report, summarize
from kubeshare.api.types.constants import NAMESPACE
from kubeshare.install import manifests, rollout
from kubeshare.kube.client.client import Client
from kubeshare.kube.resources import CONFIG_MAPS, EVENTS
from kubeshare.lab.cluster import Lab, Shape
from kubeshare.lab.progress import Progress

_SHAPE: Final = Shape(nodes=2, gpus="V100x8", dra=1)
_KEPT: Final = 2
"""Reserved vGPUs of each node, while SharePods start on warm ones."""
_STARTS: Final = 500
_WARM_UP: Final = 3
_ROLLOUT_SECONDS: Final = 180.0
_REFUSED: Final = "reason=FailedPrepareDynamicResources"

_Start = Callable[[], Awaitable[list[float]]]


def main() -> int:
    """Boot a lab, measure, take it down, and say how many goals are met."""
    parser = argparse.ArgumentParser(prog="bench.lab.starts", description=__doc__)
    parser.add_argument("--starts", type=int, default=_STARTS, help="SharePods that are started")
    starts = parser.parse_args().starts
    lab = Lab("starts")
    lab.down()
    try:
        lab.up(_SHAPE)
        print_machine()
        results = asyncio.run(_measure(lab, starts // 2))
    finally:
        lab.down()
    return summarize(results)


async def _measure(lab: Lab, times: int) -> list[Met]:
    async with Client.connect(lab.kubeconfig) as client:
        ours = manifests.load(manifests.Options())
        await rollout.install(client, ours, deadline=_ROLLOUT_SECONDS, say=Progress().say)
        bench = Bench(client)
        async with bench.watching():
            plugin, claim, new = await _in_turn(times, bench.native, bench.claiming, bench.sharing)
            await _reserve(client, bench)
            claim_again, warm = await _in_turn(times, bench.claiming, bench.sharing)
        refused = len((await client.list(EVENTS, "default", fields=_REFUSED)).items)
    return [
        _report_worst("with a new vGPU", new),
        _report_worst("on a warm vGPU", warm),
        _report_worst("pods with a claim of another driver", claim + claim_again, goal=False),
        report("starts that a kubelet has refused at first", NO_GOAL, refused),
        report(
            "starts of SharePods that the device manager has repeated",
            NO_GOAL,
            len(bench.repeated),
            repeated_after_s=[round(one, 3) for one in bench.repeated_after()],
        ),
        report(
            "create to Running on a warm vGPU, by that of a pod with a claim of another driver",
            at_most(1.05),
            median(warm) / median(claim_again),
            sharing_s=round(median(warm), 3),
            claim_s=round(median(claim_again), 3),
        ),
        report(
            "create to Running with a new vGPU, by a start with the device plugin and one with "
            "a claim of another driver, one after the other",
            at_most(1.3),
            median(new) / (median(plugin) + median(claim)),
            sharing_s=round(median(new), 3),
            plugin_s=round(median(plugin), 3),
            claim_s=round(median(claim), 3),
        ),
    ]


async def _in_turn(times: int, *starts: _Start) -> list[list[float]]:
    """The seconds of each kind of start, after some that warm up caches."""
    took: list[list[float]] = [[] for _ in starts]
    for turn in range(_WARM_UP + times):
        for start, seconds in zip(starts, took, strict=True):
            started = await start()
            if turn >= _WARM_UP:
                seconds.extend(started)
    return took


async def _reserve(client: Client, bench: Bench) -> None:
    text = f"pool: {{policy: reservation, minimum: {_KEPT}}}"
    await client.merge_patch(CONFIG_MAPS, "kubeshare", {"data": {"config.yaml": text}}, NAMESPACE)
    await bench.until(lambda: bench.idle() >= _SHAPE.nodes * _KEPT, "the reserved vGPUs")


def _report_worst(what: str, seconds: list[float], *, goal: bool = True) -> Met:
    in_order = sorted(seconds)
    return report(
        f"the slowest of {len(seconds)} starts, less their median, s: {what}",
        at_most(1.5) if goal else NO_GOAL,
        in_order[-1] - median(seconds),
        median_s=round(median(seconds), 3),
        slowest_s=[round(one, 3) for one in in_order[-5:]],
    )


if __name__ == "__main__":
    sys.exit(main())
