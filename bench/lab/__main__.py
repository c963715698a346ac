"""``make bench-lab``: one JSON line a number; exit code 1 when a goal is missed."""

import asyncio
import json
import os
import sys
from collections import Counter
from pathlib import Path

from bench.lab.pods import Bench
from bench.lab.steps import Steps
from bench.report import line, median
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
IDLE_SECONDS = 60.0
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
    lab = Lab("bench")
    lab.down()
    try:
        lab.up(Shape(nodes=NODES, gpus=f"V100x{GPUS}"))
        results = asyncio.run(_measure(lab))
    finally:
        lab.down()
    print(json.dumps({"goals": len(results), "met": sum(results)}))
    return 0 if all(results) else 1


async def _measure(lab: Lab) -> list[bool]:
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


async def _pairs(bench: Bench, what: str, most: float, *, token: bool) -> bool:
    """Native pods and SharePods, one after the other; the first of each warms caches up."""
    await bench.native(token=token)
    await bench.sharing(token=token)
    bench.steps.clear()
    native, sharing = [], []
    for _ in range(TIMES):
        native += await bench.native(token=token)
        sharing += await bench.sharing(token=token)
    return _told(what, most, native, sharing, bench.steps)


async def _both(bench: Bench, where: str, most: float) -> list[bool]:
    """Pods without any volume, the fastest that there are, and pods as they are mostly written."""
    what = f"create to Running {where}, by that of a native pod, medians"
    usual = f"{what}, pods with a service account's token"
    return [
        await _pairs(bench, what, most, token=False),
        await _pairs(bench, usual, most, token=True),
    ]


def _told(what: str, most: float, native: list[float], sharing: list[float], steps: Steps) -> bool:
    ratio = median(sharing) / median(native)
    return line(
        what,
        f"<= {most} x",
        ratio,
        met=ratio <= most,
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


async def _freed(bench: Bench) -> bool:
    waits = [await bench.freed() for _ in range(TIMES)]
    start = median([one for _ in range(TIMES) for one in await bench.sharing()])
    extra = median(waits) - start
    return line(
        "a freed share to the waiting SharePod Running, less a pod's start, s",
        "<= 1",
        extra,
        met=extra <= 1,
        freed_to_running_s=[round(one, 3) for one in waits],
        start_s=round(start, 3),
    )


async def _concurrent(bench: Bench) -> bool:
    """Both as more come at once (figure 10 of the paper): their ratio should not grow."""
    ratios, seconds = {}, {}
    for level in LEVELS:
        native, sharing = await bench.native(level), await bench.sharing(level)
        ratios[level] = median(sharing) / median(native)
        seconds[level] = [round(median(native), 3), round(median(sharing), 3)]
    growth = max(ratios.values()) / ratios[LEVELS[0]]
    return line(
        f"create to Running of 1 to {LEVELS[-1]} at once on warm vGPUs by that of native pods: "
        "the worst ratio by that of one",
        "<= 1.25",
        growth,
        met=growth <= 1.25,
        ratio={level: round(ratio, 3) for level, ratio in ratios.items()},
        native_and_sharing_s=seconds,
    )


async def _idle(lab: Lab) -> list[bool]:
    """What one process of each program does while nothing happens."""
    await asyncio.sleep(10)
    processes = {name: _pids(lab, module) for name, module in MODULES.items()}
    asked, used = _asked(lab), _cpu(processes)
    await asyncio.sleep(IDLE_SECONDS)
    requests, cpu = _asked(lab) - asked, _cpu(processes)
    results = []
    for name, pids in processes.items():
        a_minute = requests[name] * 60 / IDLE_SECONDS / len(pids)
        share = (cpu[name] - used[name]) / IDLE_SECONDS / len(pids)
        results += [
            line(f"idle: requests of a {name} a minute", "<= 20", a_minute, met=a_minute <= 20),
            line(f"idle: CPU of a {name}, of a core", "<= 0.01", share, met=share <= 0.01),
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
