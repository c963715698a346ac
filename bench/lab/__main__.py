"""``make bench-lab``: one JSON line a number; exit code 1 when a goal is missed."""

import argparse
import asyncio
import os
import sys
from collections import Counter
from pathlib import Path

from bench.lab.pods import Bench
from bench.lab.steps import Steps
from bench.report import Met, at_most, median, print_machine, ratios, report, summarize
from kubeshare.api.types.constants import NAMESPACE
from kubeshare.api.types.v1 import SHAREPODS
from kubeshare.install import manifests, rollout
from kubeshare.kube.client.client import Client
from kubeshare.kube.resources import CONFIG_MAPS, PODS
from kubeshare.lab.cluster import Lab, Shape
from kubeshare.lab.control_plane import audit
from kubeshare.lab.node import cgroups
from kubeshare.lab.progress import Progress

NODES, GPUS = 3, 16
"""For 32 native pods at once, and the vGPUs that are kept beside them."""
KEPT = 4
"""Reserved vGPUs of each node."""
TIMES = 9
LEVELS = (1, 2, 4, 8, 16, 32)
ROUNDS = 3
"""How often all levels are measured."""
IDLE_SECONDS, IDLE_WINDOWS = 30.0, 3
MODULES = {
    "kubeshare-scheduler": "kubeshare.scheduler",
    "kubeshare-device-manager": "kubeshare.device_manager",
    "kubeshare-node-agent": "kubeshare.node",
    "kubeshare-token-daemon": "kubeshare.tokens",
}
_ROLLOUT_SECONDS = 180.0
_TICKS = os.sysconf("SC_CLK_TCK")


def main() -> int:
    """Boot a lab, measure, take it down, and say how many goals are met."""
    argparse.ArgumentParser(prog="bench.lab", description=__doc__).parse_args()
    lab = Lab("bench")
    lab.down()
    try:
        lab.up(Shape(nodes=NODES, gpus=f"V100x{GPUS}"))
        print_machine()
        results = asyncio.run(_measure(lab))
    finally:
        lab.down()
    return summarize(results)


async def _measure(lab: Lab) -> list[Met]:
    async with Client.connect(lab.kubeconfig) as client:
        ours = manifests.load(manifests.Options())
        await rollout.install(client, ours, deadline=_ROLLOUT_SECONDS, say=Progress().say)
        bench = Bench(client)
        async with bench.watching():
            results = await _both(bench, "with a new vGPU", 1.5)
            await _reserve(client, bench)
            results += await _both(bench, "on a warm vGPU", 1.05)
            results += [await _freed(bench), await _concurrent(bench)]
            results += await _idle(lab)
        return results


async def _pairs(bench: Bench, what: str, most: float, *, token: bool) -> Met:
    """Native pods and SharePods in turn; the first of each warms up caches."""
    await bench.native(token=token)
    await bench.sharing(token=token)
    bench.steps.clear()
    native, sharing = [], []
    for number in range(TIMES):
        if number % 2 == 0:
            native += await bench.native(token=token)
            sharing += await bench.sharing(token=token)
        else:
            sharing += await bench.sharing(token=token)
            native += await bench.native(token=token)
    return _report_pairs(what, most, native, sharing, bench.steps)


async def _both(bench: Bench, where: str, most: float) -> list[Met]:
    """Pods without any volume, the fastest that there are, and pods as they are mostly written."""
    what = f"create to Running {where}, by that of a native pod, medians"
    usual = f"{what}, pods with a service account's token"
    return [
        await _pairs(bench, what, most, token=False),
        await _pairs(bench, usual, most, token=True),
    ]


def _report_pairs(
    what: str, most: float, native: list[float], sharing: list[float], steps: Steps
) -> Met:
    return report(
        what,
        at_most(most),
        ratios(sharing, native),
        native_s=[round(one, 3) for one in native],
        sharing_s=[round(one, 3) for one in sharing],
        native_steps_ms=steps.medians(PODS.plural),
        sharing_steps_ms=steps.medians(SHAREPODS.plural),
    )


async def _reserve(client: Client, bench: Bench) -> None:
    text = f"pool: {{policy: reservation, minimum: {KEPT}}}"
    # Installed with its defaults.
    await client.merge_patch(CONFIG_MAPS, "kubeshare", {"data": {"config.yaml": text}}, NAMESPACE)
    await bench.until(lambda: bench.idle() >= NODES * KEPT, "the reserved vGPUs")


async def _freed(bench: Bench) -> Met:
    waits, starts = [], []
    for _ in range(TIMES):
        waits.append(await bench.freed())
        starts += await bench.sharing()
    start = median(starts)
    return report(
        "a freed share to the waiting SharePod Running, less a pod's start, s",
        at_most(1),
        [wait - start for wait in waits],
        freed_to_running_s=[round(one, 3) for one in waits],
        start_s=round(start, 3),
    )


async def _concurrent(bench: Bench) -> Met:
    """Both as more come at once (figure 10 of the paper): their ratio should not grow."""
    native: dict[int, list[float]] = {level: [] for level in LEVELS}
    sharing: dict[int, list[float]] = {level: [] for level in LEVELS}
    for _ in range(ROUNDS):
        for level in LEVELS:
            native[level].append(median(await bench.native(level)))
            sharing[level].append(median(await bench.sharing(level)))
    by_level = {level: ratios(sharing[level], native[level]) for level in LEVELS}
    growth = [
        max(by_level[level][number] for level in LEVELS) / by_level[LEVELS[0]][number]
        for number in range(ROUNDS)
    ]
    return report(
        f"create to Running of 1 to {LEVELS[-1]} at once on warm vGPUs by that of native pods: "
        "the worst ratio by that of one",
        at_most(1.25),
        growth,
        ratio={level: [round(each, 3) for each in found] for level, found in by_level.items()},
        native_s={level: [round(each, 3) for each in native[level]] for level in LEVELS},
        sharing_s={level: [round(each, 3) for each in sharing[level]] for level in LEVELS},
    )


async def _idle(lab: Lab) -> list[Met]:
    """What one process of each program does while nothing happens."""
    await asyncio.sleep(10)
    processes = {name: _pids(lab, module) for name, module in MODULES.items()}
    requests: dict[str, list[float]] = {name: [] for name in MODULES}
    cpu: dict[str, list[float]] = {name: [] for name in MODULES}
    for _ in range(IDLE_WINDOWS):
        asked, used = _asked(lab), _cpu(processes)
        await asyncio.sleep(IDLE_SECONDS)
        asked_after, used_after = _asked(lab), _cpu(processes)
        for name, pids in processes.items():
            sent = asked_after[name] - asked[name]
            requests[name].append(sent * 60 / IDLE_SECONDS / len(pids))
            cpu[name].append((used_after[name] - used[name]) / IDLE_SECONDS / len(pids))
    results = []
    for name in MODULES:
        results += [
            report(f"idle: requests of a {name} a minute", at_most(20), requests[name]),
            report(f"idle: CPU of a {name}, of a core", at_most(0.01), cpu[name]),
        ]
    return results


def _asked(lab: Lab) -> Counter[str]:
    begun = (
        one.account
        for one in audit.read(lab.layout.folder)
        if not (one.verb == "watch" and one.stage == "ResponseComplete")
    )
    return Counter(begun)


def _pids(lab: Lab, module: str) -> list[int]:
    members = [pid for node in lab.nodes for pid in cgroups.members(node.layout.cgroup)]
    return [pid for pid in members if _runs(pid, module)]


def _runs(pid: int, module: str) -> bool:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return b"-m" in words and module.encode() in words


def _cpu(processes: dict[str, list[int]]) -> dict[str, float]:
    """Seconds, by program."""
    return {name: sum(map(_seconds, pids)) for name, pids in processes.items()}


def _seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


if __name__ == "__main__":
    sys.exit(main())
