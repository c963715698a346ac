"""Draws the demo's live table, closing table and plot."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.table import Table

from kubeshare.demo.figure import CAPTION, JOBS
from kubeshare.demo.timeline import Sample, StageResult, sliding

_BAR_WIDTH = 30
_PLOT_WINDOW_NS = 2_000_000_000
_COLOURS = {"a": "#1f77b4", "b": "#d95f02", "c": "#1b9e77"}


def live_table(
    title: str,
    shares: Mapping[str, float],
    target: Mapping[str, float],
    natives: Mapping[str, str],
) -> Table:
    """Build the table of each job's share and target, and the native pods' phases."""
    table = Table(title=title, title_justify="left", min_width=70)
    for heading, justify in (("pod", "left"), ("asks", "left"), ("target", "right")):
        table.add_column(heading, justify=justify)  # type: ignore[arg-type]
    table.add_column("share", justify="right")
    table.add_column("", justify="left", min_width=_BAR_WIDTH)
    for job in JOBS:
        asks = f"{job.request} up to {job.limit}"
        if job.name in target:
            share = shares.get(job.name, 0.0)
            table.add_row(job.name, asks, f"{target[job.name]:.2f}", f"{share:.2f}", _bar(share))
        else:
            table.add_row(job.name, asks, "", "", "not there", style="dim")
    if natives:
        states = ", ".join(f"{name} {phase}" for name, phase in sorted(natives.items()))
        table.caption = f"native pods, a whole GPU each: {states}"
    return table


def live_line(title: str, shares: Mapping[str, float], target: Mapping[str, float]) -> str:
    """The same in one line, for output that is no terminal."""
    parts = (f"{job} {shares.get(job, 0.0):.2f} (target {target[job]:.2f})" for job in target)
    return f"{title}: " + ", ".join(parts)


def closing_table(results: Sequence[StageResult], source: str) -> Table:
    """Target, measured and charged of every job in every stage."""
    table = Table(title=f"Shares, measured by {source}")
    table.add_column("stage")
    table.add_column("pod")
    for heading in ("target", "measured", "charged", "off by"):
        table.add_column(heading, justify="right")
    for result in results:
        title = result.title
        for job in result.target:
            target, measured = result.target[job], result.measured[job]
            table.add_row(
                title,
                job,
                f"{target:.3f}",
                f"{measured:.3f}",
                f"{result.charged.get(job, 0.0):.3f}",
                f"{100 * (measured - target):+.1f} points",
            )
            title = ""
        total = sum(result.measured.values())
        table.add_row("", "all", f"{sum(result.target.values()):.3f}", f"{total:.3f}", "", "")
        table.add_section()
    return table


def plot(samples: list[Sample], results: Sequence[StageResult], path: Path) -> None:
    """Draw all stages, and in each the targets, into a PNG."""
    import matplotlib as mpl  # noqa: PLC0415 - half a second that `--help` does not pay

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415

    start = samples[0].at_ns

    def seconds(at_ns: int) -> float:
        return (at_ns - start) / 1e9

    figure, axes = plt.subplots(figsize=(10, 4.5), layout="constrained")
    for job, points in sliding(samples, (job.name for job in JOBS), _PLOT_WINDOW_NS).items():
        axes.plot(
            [seconds(at) for at, _ in points],
            [share for _, share in points],
            color=_COLOURS[job],
            label=f"{job.upper()}  ({_asks(job)})",
        )
    for result in results:
        axes.axvspan(seconds(result.start_ns), seconds(result.end_ns), color="0.94", zorder=0)
        middle = (seconds(result.start_ns) + seconds(result.end_ns)) / 2
        axes.text(middle, 0.02, result.title, ha="center", fontsize=9)
        for job, target in result.target.items():
            span = [seconds(result.start_ns), seconds(result.end_ns)]
            axes.plot(span, [target, target], "--", color=_COLOURS[job], linewidth=1)
    axes.set(ylim=(0, 1), xlabel="seconds", ylabel="share of the GPU (2 s window)")
    axes.legend(loc="upper center", ncols=len(JOBS), fontsize=9)
    figure.supxlabel(CAPTION, fontsize=7, color="0.35")
    figure.savefig(path, dpi=120)
    plt.close(figure)


def _asks(name: str) -> str:
    job = next(job for job in JOBS if job.name == name)
    return f"request {job.request}, limit {job.limit}"


def _bar(share: float) -> str:
    filled = round(min(share, 1.0) * _BAR_WIDTH)
    return "█" * filled + "·" * (_BAR_WIDTH - filled)
