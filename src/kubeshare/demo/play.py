"""Plays the stages of the figure on a cluster that has KubeShare."""

import time
from collections.abc import Callable

from msgspec import Struct
from rich.console import Console
from rich.live import Live

from kubeshare.demo import figure, show
from kubeshare.demo.cluster import NAMESPACE, Cluster, DemoError, Place
from kubeshare.demo.meter import Charges, Meter, Recorder
from kubeshare.demo.timeline import Sample, StageResult, shares

_SHOW_SECONDS = 0.5
_LINE_SECONDS = 5.0
_RECENT_NS = 2_000_000_000
_NATIVES_COME_AT = "C comes"


class Pace(Struct, frozen=True):
    """How long each stage settles before its window, and the window, in seconds."""

    settle: float = 6.0
    window: float = 10.0


class Outcome(Struct, frozen=True):
    """The result of a play."""

    results: list[StageResult]
    samples: list[Sample]
    source: str


class Play:
    """Plays the stages and records the results.

    Args:
        cluster: where.
        image: of the jobs.
        natives: how many native pods are created, one more than there are free GPUs.
        meter_for: makes the meter once it is known which GPU is shared.
        gpu_of: the UUID of the GPU that a native pod uses.
        console: where to show it.
        pace: how long each stage lasts.
    """

    def __init__(  # noqa: PLR0913 - the facts of a play
        self,
        cluster: Cluster,
        *,
        image: str,
        natives: int,
        meter_for: Callable[[Place], Meter],
        gpu_of: Callable[[str], str | None],
        console: Console,
        pace: Pace,
    ) -> None:
        self._cluster = cluster
        self._image = image
        self._natives = [f"native-{n + 1}" for n in range(natives)]
        self._native_phases: dict[str, str] = {}
        self._meter_for = meter_for
        self._gpu_of = gpu_of
        self._console = console
        self._pace = pace

    def run(self) -> Outcome:
        """Play all stages, then the release of the shared GPU.

        Raises:
            DemoError: something that KubeShare promises did not happen.
        """
        self._cluster.start_afresh()
        first, *later = figure.STAGES
        place = self._come(first)
        self._console.print(f"a shares {place.gpuid} ({place.uuid}) on {place.node}")
        meter, charges = self._meter_for(place), Charges(self._cluster.kubectl, place.node)
        with Recorder(meter) as recorder:
            results = [self._watch(first, recorder, charges)]
            for stage in later:
                self._change_to(stage, place)
                results.append(self._watch(stage, recorder, charges))
        self._release(place)
        return Outcome(results, recorder.samples, meter.source)

    def _change_to(self, stage: figure.Stage, place: Place) -> None:
        """Create the jobs that join at a stage and delete those that leave."""
        if stage.comes and (beside := self._come(stage)) != place:
            raise DemoError(f"{stage.comes} should share {place} and is at {beside}")
        if stage.goes:
            self._cluster.delete("sharepod", stage.goes)
            self._cluster.wait_until_gone("pod", stage.goes)
        if stage.title == _NATIVES_COME_AT:
            self._natives_come()

    def _come(self, stage: figure.Stage) -> Place:
        job = next(job for job in figure.JOBS if job.name == stage.comes)
        self._cluster.create(job.manifest(NAMESPACE, self._image))
        return self._cluster.place_of(job.name)

    def _watch(self, stage: figure.Stage, recorder: Recorder, charges: Charges) -> StageResult:
        target = figure.targets(stage)
        with Live(console=self._console, auto_refresh=False, transient=True) as live:
            self._look(stage, recorder, self._pace.settle, live)
            charged_before, before = charges.sample(), recorder.sample()
            self._look(stage, recorder, self._pace.window, live)
            charged_after, after = charges.sample(), recorder.sample()
        measured = shares(before, after, target)
        self._console.print(show.live_line(stage.title, measured, target))
        return StageResult(
            title=stage.title,
            start_ns=before.at_ns,
            end_ns=after.at_ns,
            target=target,
            measured=measured,
            charged=shares(charged_before, charged_after, target),
        )

    def _look(self, stage: figure.Stage, recorder: Recorder, seconds: float, live: Live) -> None:
        """Show the live table for a while."""
        target, ends = figure.targets(stage), time.monotonic() + seconds
        line_due = time.monotonic() + _LINE_SECONDS
        while (now := time.monotonic()) < ends:
            recent = _recent(recorder.samples, target)
            if self._console.is_terminal:
                table = show.live_table(stage.title, recent, target, self._native_phases)
                live.update(table, refresh=True)
            elif now >= line_due:
                self._console.print(show.live_line(f"  {stage.title}", recent, target))
                line_due += _LINE_SECONDS
            time.sleep(_SHOW_SECONDS)

    def _natives_come(self) -> None:
        """See that all but one of the native pods run, since the shared GPU is taken."""
        if not self._natives:
            return
        for name in self._natives:
            self._cluster.create(figure.native_pod(name, NAMESPACE, self._image))

        def all_but_one_run() -> bool:
            phases = self._cluster.phases()
            self._native_phases = {name: phases.get(name, "") for name in self._natives}
            return sorted(self._native_phases.values()) == sorted(
                ["Pending"] + ["Running"] * (len(self._natives) - 1)
            )

        self._cluster.wait(all_but_one_run, f"{len(self._natives) - 1} native pods to run")
        waiting = self._waiting_native()
        self._console.print(f"{len(self._natives)} native pods came: {waiting} waits for a GPU")

    def _waiting_native(self) -> str:
        return next(name for name, phase in self._native_phases.items() if phase == "Pending")

    def _release(self, place: Place) -> None:
        """See that the last job's GPU goes back to Kubernetes and to the pending pod."""
        for job in figure.STAGES[-1].running:
            self._cluster.delete("sharepod", job)
        self._cluster.wait_until_gone("vgpu", place.gpuid)
        self._console.print(f"A ends: {place.gpuid} is released")
        if self._natives:
            waiting = self._waiting_native()
            uuid = self._cluster.wait(
                lambda: self._gpu_of(waiting), f"{waiting} to get a GPU", f"pod/{waiting}"
            )
            if uuid != place.uuid:
                raise DemoError(f"{waiting} should have got {place.uuid} and runs on {uuid}")
            self._console.print(f"{waiting} runs on that very GPU ({uuid})")


def _recent(samples: list[Sample], target: dict[str, float]) -> dict[str, float]:
    """Shares over the last two seconds; none before there are two seconds of samples."""
    last = samples[-1:]
    earlier = [one for one in samples if last and one.at_ns <= last[0].at_ns - _RECENT_NS]
    return shares(earlier[-1], last[0], target) if earlier else {}
