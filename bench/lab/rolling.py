"""What a rolling restart of all of KubeShare does to those who share a GPU, in the lab.

``PYTHONPATH=tests python -m bench.lab.rolling`` (root; two minutes besides the boot): the pods of
figure 6 work at full load while ``kubectl rollout restart`` restarts one program after the
other, as an upgrade does. Their shares come from the GPU's own log, over windows of at least ten
seconds: before, during each restart, and after. Finally two pods that use more than they request,
during a restart of the token daemon: without it each gets its request.
"""

import sys
import time

from bench.report import NO_GOAL, Met, at_most, print_machine, report, summarize
from e2e import trio
from e2e.booting import booted, space_in
from e2e.space import Space
from e2e.stage import DEVICE_MANAGER, NODE_AGENT, SCHEDULER, TOKEN_DAEMON, Place, Stage
from kubeshare.api.types.constants import NAMESPACE
from kubeshare.demo import figure
from kubeshare.demo.timeline import shares

WINDOW_SECONDS = 10.0
MOST = 0.03
"""By how much a share may move, as a fraction of the GPU."""
WORKLOADS = {
    TOKEN_DAEMON: "daemonset",
    NODE_AGENT: "daemonset",
    SCHEDULER: "deployment",
    DEVICE_MANAGER: "deployment",
}
PAIR = ("a", "b")


def main() -> int:
    """Boot a lab, measure, take it down, and say how many goals are met."""
    with booted("rolling") as stage, space_in(stage) as space:
        print_machine()
        return summarize(_measure(stage, space))


def _measure(stage: Stage, space: Space) -> list[Met]:
    place = trio.come(space)
    stage.settle(place, trio.TARGETS)
    lives = {pod: space.lives(pod) for pod in trio.PODS}
    before = _window(stage, place)
    results: list[Met] = []
    for component in WORKLOADS:
        during, seconds = _restart(stage, place, component)
        results.append(
            _report_moved(f"of the {component}", before, during, took_s=round(seconds, 1))
        )
    after = _window(stage, place)
    results.append(_report_moved("of all, afterwards", before, after))
    ended = [pod for pod in trio.PODS if space.lives(pod) != lives[pod]]
    what = "pods that a rolling restart of all programs has ended"
    results.append(report(what, at_most(0), len(ended), pods=list(trio.PODS)))
    results.append(_without_guarantee(stage, space, place))
    return results


def _restart(stage: Stage, place: Place, component: str) -> tuple[dict[str, float], float]:
    """The shares from the command to restart a program until it is back, and the seconds."""
    workload = f"{WORKLOADS[component]}/kubeshare-{component}"
    meter, began = stage.meter(place, trio.PODS), time.monotonic()
    first = meter.sample()
    stage.kubectl("rollout", "restart", "-n", NAMESPACE, workload)
    stage.kubectl("rollout", "status", "-n", NAMESPACE, workload, "--timeout=120s")
    took = time.monotonic() - began
    time.sleep(max(0.0, WINDOW_SECONDS - took))
    return shares(first, meter.sample(), trio.PODS), took


def _window(stage: Stage, place: Place) -> dict[str, float]:
    meter = stage.meter(place, trio.PODS)
    first = meter.sample()
    time.sleep(WINDOW_SECONDS)
    return shares(first, meter.sample(), trio.PODS)


def _report_moved(of: str, before: dict[str, float], now: dict[str, float], **more: float) -> Met:
    moved = max(abs(now[pod] - before[pod]) for pod in trio.PODS)
    seen = {"before": _rounded(before), "now": _rounded(now)}
    what = f"by how much a share has moved by a rolling restart {of}"
    return report(what, at_most(MOST), moved, **seen, **more)


def _without_guarantee(stage: Stage, space: Space, place: Place) -> Met:
    """Two pods use what a third one left: no goal, since nothing guarantees it to them."""
    space.delete("sharepod", trio.PODS[-1])
    targets = figure.targets(next(one for one in figure.STAGES if one.running == PAIR))
    stage.settle(place, targets)
    before = _window(stage, place)
    during, seconds = _restart(stage, place, TOKEN_DAEMON)
    _window(stage, place)
    after = _window(stage, place)
    return report(
        "by how much a share beyond the request moves while the token daemon restarts",
        NO_GOAL,
        max(abs(during[pod] - before[pod]) for pod in PAIR),
        before=_rounded(before),
        during=_rounded(during),
        after=_rounded(after),
        took_s=round(seconds, 1),
    )


def _rounded(seen: dict[str, float]) -> dict[str, float]:
    return {pod: round(share, 3) for pod, share in seen.items()}


if __name__ == "__main__":
    sys.exit(main())
