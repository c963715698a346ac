"""What an upgrade from an earlier commit does to twenty pods that share GPUs, in the lab.

``PYTHONPATH=tests python -m bench.lab.upgrade [--from COMMIT]`` (root; five minutes): fourteen
SharePods and six pods of a Deployment fill four GPUs and work all the time, and one more SharePod
is pending. ``kubeshare install`` of this clone then upgrades all programs, while each version of
each pod and vGPU is compared with what it was before. Shares come from the GPUs' own logs.
"""

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import NamedTuple, TypeVar

from bench.lab.earlier_version import EarlierVersion
from bench.lab.unchanged import Unchanged
from bench.report import Met, at_least, at_most, print_machine, report, summarize
from e2e.booting import GPUS, booted, gpus_found, install, space_in
from e2e.manifests import deployment, template
from e2e.space import Space
from e2e.stage import Place, Raw, Stage, eventually
from kubeshare.demo.meter import Meter
from kubeshare.demo.timeline import shares
from kubeshare.kube.client.client import Client
from wakeups import Wakeups

BEFORE = "b0c227e"
"""The last commit in which a demand was a number of equal shares, and no node was owned."""
SHAREPODS, REPLICAS = 14, 6
REQUEST = "0.2"
"""Five fill a GPU, so twenty leave no room on four."""
BURN = ("burn", "--kernel-us", "10000", "--inflight", "8", "--seconds", "3600")
"""Few launches: twenty programs of them need little of the machine's processors."""
WINDOW_SECONDS = 10.0
MOST = 0.03
"""By how much a share may move, as a fraction of the GPU."""


Result = TypeVar("Result")


class Window(NamedTuple):
    """Shares over a window of time.

    Attributes:
        shares: pod -> its share of its GPU.
        lost: the part of the time in which the machine woke programs late, 0 to 1.
    """

    shares: dict[str, float]
    lost: float


def main() -> int:
    """Boot a lab with the earlier version, upgrade, and say how many goals are met."""
    parser = argparse.ArgumentParser(prog="python -m bench.lab.upgrade", description=__doc__)
    parser.add_argument("--from", dest="commit", default=BEFORE, help="by default %(default)s")
    commit = parser.parse_args().commit
    with tempfile.TemporaryDirectory(prefix="kubeshare-before-") as folder:
        before = EarlierVersion(commit, Path(folder))
        with (
            booted("upgrade", kubeshare=lambda stage: _install(before, stage)) as stage,
            space_in(stage) as space,
        ):
            print_machine()
            return summarize(_measure(stage, space))


def _install(before: EarlierVersion, stage: Stage) -> None:
    before.install(stage.lab)
    eventually(lambda: gpus_found(stage) == GPUS, "the GPUs to be found")


def _measure(stage: Stage, space: Space) -> list[Met]:
    places = _fill(space)
    assert "compute 0 left" in space.waits("pending", "NoRoom")
    meters = {name: stage.meter(place, [name]) for name, place in places.items()}
    before, _ = _during(meters, lambda: None)
    during, (unchanged, took) = _during(meters, lambda: asyncio.run(_upgrade(stage, space)))
    after, _ = _during(meters, lambda: None)
    return [
        *unchanged.report(),
        _report_moved("during the upgrade", before, during, took_s=round(took, 1)),
        _report_moved("after it", before, after),
        _pending_runs(space),
    ]


def _during(meters: Mapping[str, Meter], act: Callable[[], Result]) -> tuple[Window, Result]:
    """The shares while something is done, for ten seconds at least."""
    first = {name: meter.sample() for name, meter in meters.items()}
    began = time.monotonic()
    with Wakeups() as wakeups:
        result = act()
        time.sleep(max(0.0, WINDOW_SECONDS - (time.monotonic() - began)))
    last = {name: meter.sample() for name, meter in meters.items()}
    seen = {name: shares(first[name], last[name], [name])[name] for name in meters}
    return Window(seen, wakeups.lost), result


def _fill(space: Space) -> dict[str, Place]:
    """Start twenty pods, and one more that has no room; pod -> where it runs."""
    gpu = {"request": REQUEST, "limit": REQUEST}
    names = [f"share-{number}" for number in range(SHAREPODS)]
    for name in names:
        space.share(name, gpu, BURN)
    limit = {"kubeshare.nthu/limit": REQUEST}
    space.create(deployment("plain", template("plain", REQUEST, BURN, limit), REPLICAS))
    for name in names:
        space.ready(name)
    space.until_running(REPLICAS, app="plain")
    space.share("pending", gpu, BURN)
    return {
        holder["name"]: Place(vgpu["spec"]["nodeName"], _gpuid(vgpu), vgpu["spec"]["uuid"])
        for vgpu in space.stage.vgpus()
        for holder in vgpu["status"]["holders"]
    }


def _gpuid(vgpu: Raw) -> str:
    return str(vgpu["spec"].get("gpuid") or vgpu["metadata"]["name"])


async def _upgrade(stage: Stage, space: Space) -> tuple[Unchanged, float]:
    """Upgrade while every change is compared; the seconds that it took."""
    async with Client.connect(stage.lab.kubeconfig) as client, AsyncExitStack() as stack:
        unchanged = Unchanged(client, space.name, pods=SHAREPODS + REPLICAS)
        await stack.enter_async_context(unchanged.watching())
        began = time.monotonic()
        await asyncio.to_thread(install, stage)
        return unchanged, time.monotonic() - began


def _report_moved(when: str, before: Window, now: Window, **more: float) -> Met:
    """What a share has lost because the machine stood still is not held against it."""
    moved = {name: now.shares[name] - share for name, share in before.shares.items()}
    excused = {name: now.lost * share for name, share in before.shares.items()}
    beyond = max(max(0.0, abs(moved[name]) - excused[name]) for name in moved)
    worst = max(moved, key=lambda name: abs(moved[name]))
    return report(
        f"by how much a share has moved {when}, beyond what the machine lost",
        at_most(MOST),
        beyond,
        moved=round(moved[worst], 4),
        of_machine_lost=round(now.lost, 3),
        before=_extremes(before),
        now=_extremes(now),
        **more,
    )


def _extremes(window: Window) -> list[float]:
    seen = window.shares.values()
    return [round(min(seen), 3), round(max(seen), 3)]


def _pending_runs(space: Space) -> Met:
    """The new programs go on with what the earlier ones left pending."""
    space.delete("sharepod", "share-0")
    began = time.monotonic()
    space.ready("pending")
    took = round(time.monotonic() - began, 1)
    what = "pending SharePods that run when one has gone"
    return report(what, at_least(1), 1, took_s=took)


if __name__ == "__main__":
    sys.exit(main())
