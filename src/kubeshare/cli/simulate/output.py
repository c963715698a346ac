"""Results of simulations as text, JSON and CSV."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import msgspec

from kubeshare.cli.output import aligned, csv_text
from kubeshare.cli.simulate.files import as_parquet, table_file
from kubeshare.simulator.control_numbers import ControlNumbers, Latency
from kubeshare.simulator.engine.fragments import Fragments
from kubeshare.simulator.engine.simulation import Ended
from kubeshare.simulator.experiment import Run, differences, estimates
from kubeshare.simulator.measurements import GAUGES, Estimate, Summary

_SHOWN: Final = (
    ("jobs/min", "jobs_per_minute", 1.0, "{:.1f}"),
    ("makespan s", "makespan_s", 1.0, "{:.0f}"),
    ("wait s", "wait_mean_s", 1.0, "{:.1f}"),
    ("completion s", "completion_mean_s", 1.0, "{:.1f}"),
    ("active GPUs", "active_gpus_mean", 1.0, "{:.1f}"),
    ("reserved %", "reserved_fraction", 100.0, "{:.1f}"),
    ("peak %", "reserved_peak_fraction", 100.0, "{:.2f}"),
    ("used %", "used_fraction", 100.0, "{:.1f}"),
    ("used % of active", "used_fraction_of_active", 100.0, "{:.1f}"),
)
"""Head, number, factor and format of each column."""

_OF_REQUESTS: Final = (
    ("p50 ms", "latency_p50_s", 1000.0, "{:.1f}"),
    ("p99 ms", "latency_p99_s", 1000.0, "{:.1f}"),
)
"""The same of those that are shown where jobs serve requests."""


class Results(msgspec.Struct, frozen=True, kw_only=True):
    """The results of a command.

    Attributes:
        gpus: the GPUs of the cluster.
        skipped: the lines of the file that were skipped.
        left_out: the jobs of the file that never ran.
        runs: all runs.
        compared: two policies whose runs are compared seed by seed, if any.
        interrupted: whether the work was interrupted from the keyboard.
        failed: the error of a run, after which no more were begun; "" if none failed.
    """

    gpus: int
    skipped: int
    left_out: int
    runs: Sequence[Run]
    compared: tuple[str, str] | None = None
    interrupted: bool = False
    failed: str = ""

    @property
    def columns(self) -> Sequence[tuple[str, str, float, str]]:
        """What is shown: head, number, factor and format."""
        serves = any(run.summary.requests for run in self.runs)
        return (*_SHOWN, *_OF_REQUESTS) if serves else _SHOWN

    def by_policy(self) -> dict[str, list[Run]]:
        """Name of a policy → its runs, in the order given."""
        found: dict[str, list[Run]] = {}
        for run in self.runs:
            found.setdefault(run.policy, []).append(run)
        return found

    def differences(self) -> dict[str, Estimate]:
        """What each number of the second policy is more; empty if none are compared."""
        if self.compared is None:
            return {}
        of = self.by_policy()
        return differences(*(of.get(name, []) for name in self.compared))


def as_text(results: Results) -> str:
    """A table with a line for each policy, and what was not finished."""
    title, rows = table(results)
    next_step = "Next: -o json has every number."
    return "\n".join([title, *aligned(rows, words=1), *remarks(results), next_step])


def table(results: Results) -> tuple[str, list[list[str]]]:
    """What was run, and a row for each policy, the header first."""
    columns = results.columns
    head = ["policy", *(title for title, *_ in columns)]
    lines = [head]
    for policy, runs in results.by_policy().items():
        if of := estimates(runs):
            cells = [_cell(of[key], factor, shown) for _, key, factor, shown in columns]
            lines.append([policy, *cells])
            continue
        (run,) = runs  # the only one is partial: none is begun after it
        parts = ((getattr(run.summary, key), factor, shown) for _, key, factor, shown in columns)
        cells = [shown.format(value * factor) for value, factor, shown in parts]
        lines.append([f"{policy} (partial)", *cells])
    if of := results.differences():
        less, more = results.compared or ("", "")
        cells = [_cell(of[key], factor, shown) for _, key, factor, shown in columns]
        lines.append([f"{more} - {less}", *cells])
    first = results.runs[0].summary
    seeds = max(map(len, results.by_policy().values()))
    counts = _count(first.arrived, "job"), _count(results.gpus, "GPU"), _count(seeds, "run")
    return f"{', '.join(counts)} each", lines


def as_json(results: Results) -> str:
    """One object: each run, and the estimates for each policy."""
    runs = [
        {
            "policy": run.policy,
            "seed": run.seed,
            **msgspec.to_builtins(run.summary),
            "bound": run.bound,
            "fragments": msgspec.to_builtins(run.fragments),
            "refused_because": dict(run.refused),
            **({"control": msgspec.to_builtins(run.control)} if run.control else {}),
        }
        for run in results.runs
    ]
    policies: dict[str, Any] = {
        policy: {name: msgspec.to_builtins(value) for name, value in estimates(of).items()}
        for policy, of in results.by_policy().items()
    }
    return json.dumps(
        {
            "gpus": results.gpus,
            "skipped_lines": results.skipped,
            "left_out": results.left_out,
            "interrupted": results.interrupted,
            "failed": results.failed or None,
            "policies": policies,
            "compared": results.compared,
            "differences": msgspec.to_builtins(results.differences()),
            "runs": runs,
        }
    )


def as_csv(results: Results) -> str:
    """A line for each run."""
    return csv_text([_RUN, *_rows(results)])


def runs_parquet(results: Results) -> bytes:
    """The same as the content of a Parquet file.

    Raises:
        NoPolarsError: polars is not installed.
    """
    return as_parquet(_RUN, _rows(results))


_RUN: Final = ("policy", "seed", *Summary.__struct_fields__)


def _rows(results: Results) -> list[Sequence[object]]:
    return [(run.policy, run.seed, *msgspec.structs.astuple(run.summary)) for run in results.runs]


FORMATS: Final[Mapping[str, Callable[[Results], str | bytes]]] = {
    "text": as_text,
    "json": as_json,
    "csv": as_csv,
    "parquet": runs_parquet,
}


def write_series(path: Path, runs: Iterable[Run]) -> None:
    """Write the course of all runs over time: a line for each step."""
    with table_file(path, "policy", "seed", "time_s", *GAUGES) as writer:
        for run in runs:
            for row in run.series:
                writer.writerow([run.policy, run.seed, *row.values()])


def ended_writer(stack: ExitStack, path: Path | None) -> Callable[[str, int, Ended], None]:
    """Writes a line for each job that finishes, at once; nothing without a path."""
    if path is None:
        return lambda *_: None
    times = "arrival_s", "placed_s", "finished_s"
    writer = stack.enter_context(table_file(path, "policy", "seed", "job", *times, "node", "gpus"))

    def write(policy: str, seed: int, ended: Ended) -> None:
        times = ended.job.arrival_s, ended.placed_s, ended.finished_s
        gpus = " ".join(ended.devices)
        writer.writerow([policy, seed, ended.job.name, *times, ended.node, gpus])

    return write


def omissions(results: Results) -> list[str]:
    """What of the file was not simulated."""
    lines = []
    if results.skipped:
        lines.append(f"{_count(results.skipped, 'invalid line')} of the file skipped.")
    if results.left_out:
        lines.append(f"{_count(results.left_out, 'job')} of the trace never ran: left out.")
    return lines


def _cell(value: Estimate, factor: float, shown: str) -> str:
    mean = shown.format(value.mean * factor)
    if value.half_width is None:
        return mean
    return f"{mean} ±{shown.format(value.half_width * factor)}"


def _count(number: int, of: str) -> str:
    return f"{number} {of}{'s' * (number != 1)}"


def remarks(results: Results) -> list[str]:
    """What was refused, still waits or runs, by policy."""
    lines = []
    for policy, runs in results.by_policy().items():
        for run in runs:
            numbers = run.summary
            seed = f" (seed {run.seed})" if len(runs) > 1 else ""
            if numbers.partial and len(runs) > 1:
                lines.append(f"{policy}{seed}: interrupted, so it does not count in the means")
            if numbers.waiting:
                lines.append(f"{policy}{seed}: {_count(numbers.waiting, 'job')} never placed")
            if run.bound < 1:
                most = f"{100 * run.bound:.2f} % of the GPUs, by relaxation"
                lines.append(f"{policy}{seed}: no placement gives away more than {most}")
            if run.fragments and not numbers.finished:
                lines.append(f"{policy}{seed}: {_fragments(run.fragments)}")
            if numbers.evicted:
                lines.append(f"{policy}{seed}: {_count(numbers.evicted, 'eviction')}")
            lines += [f"{policy}{seed}: {many} refused: {why}" for why, many in run.refused.items()]
            if run.control is not None:
                lines += [f"{policy}{seed}: {each}" for each in _of_control(run.control, numbers)]
    return lines


def _fragments(points: Sequence[Fragments]) -> str:
    """How much of the GPUs no job could use, for people."""
    each = [
        f"{100 * point.fragmented:.1f} % (of {100 * point.idle:.1f} % idle) "
        f"at {100 * point.requested:.0f} %"
        for point in points
    ]
    return f"fragmented GPUs, by how much was requested: {', '.join(each)}"


def _of_control(control: ControlNumbers, numbers: Summary) -> list[str]:
    """What the control tier measured, for people."""
    created, ran = _times(control.created), _times(control.ran)
    lines = [f"from the decision to the pod {created}, until it runs {ran}"]
    jobs = max(1, numbers.arrived)
    for program, writes in control.writes.items():
        kinds = ", ".join(f"{what} {many / jobs:.2f}" for what, many in writes.items())
        lines.append(f"{program}: {sum(writes.values()) / jobs:.2f} writes a job: {kinds}")
    for program, refused in control.conflicts.items():
        kinds = ", ".join(f"{what} {many}" for what, many in refused.items())
        lines.append(f"{program}: {_count(sum(refused.values()), 'conflict')}: {kinds}")
    lines += [
        f"{program} was restarted {_count(many, 'time')}"
        for program, many in control.restarts.items()
    ]
    return lines + [f"error: {each}" for each in control.errors]


def _times(latency: Latency) -> str:
    return f"{latency.mean_s:.3f} s (99 % within {latency.p99_s:.3f} s)"
