"""Results of simulations as one page of HTML, which needs nothing else."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Final

import msgspec

from kubeshare.cli.reproduce.provenance import Provenance
from kubeshare.cli.simulate.chart import Line, chart, stroke
from kubeshare.cli.simulate.output import Results, omissions, remarks, table
from kubeshare.simulator.experiment import Run
from kubeshare.simulator.measurements import Summary

_GAUGES: Final = {
    "used_gpus": "GPUs in use by jobs",
    "reserved_gpus": "GPUs reserved by holders",
    "active_gpus": "GPUs with holders",
    "waiting_jobs": "Waiting jobs",
}

_STYLE: Final = """
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 84rem; margin: 2rem auto; padding: 0 1rem;
  font-variant-numeric: tabular-nums; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: 0.9rem; }
th, td { padding: 0.2rem 0.7rem; text-align: right; white-space: nowrap;
  border-bottom: 1px solid #8884; }
th:first-child, td:first-child { text-align: left; padding-left: 0; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(26rem, 1fr)); gap: 1rem; }
figure { margin: 0; } figcaption { font-weight: 600; }
svg .grid { stroke: #8884; } svg .axis { fill: currentColor; font-size: 12px; }
.legend span { margin-right: 1.5rem; } .legend svg { width: 28px; height: 8px; }
.partial { border-left: 4px solid #d55e00; padding-left: 0.7rem; }
""".strip()

_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'"
"""Whatever is in the page, a browser loads nothing for it."""


def write_report(path: Path, results: Results, options: Mapping[str, object]) -> None:
    """Write the page.

    Args:
        path: the file.
        results: of the command.
        options: those that were given, by name.

    Raises:
        OSError: it cannot be written.
    """
    path.write_text(as_html(results, options), encoding="utf-8")


def as_html(results: Results, options: Mapping[str, object]) -> str:
    """The page: the table of the policies, their course over time, each run, and the options."""
    title, rows = table(results)
    words = [*remarks(results), *omissions(results)]
    made = Provenance.here(len({run.seed for run in results.runs}))
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
        '<meta name="viewport" content="width=device-width">',
        f"<title>kubeshare sim: {escape(title)}</title><style>{_STYLE}</style></head><body>",
        f"<h1>kubeshare sim: {escape(title)}</h1>",
        *_partial(results),
        _table(rows),
        *(["<ul>", *(f"<li>{escape(each)}</li>" for each in words), "</ul>"] if words else []),
        *_course(results.by_policy()),
        "<h2>Runs</h2>",
        _table(_runs(results.runs)),
        "<h2>Options</h2>",
        _table([("option", "value"), *((name, _value(of)) for name, of in options.items())]),
        f"<p>{escape(_made_from(made))}</p>",
        "</body></html>",
    ]
    return "\n".join(parts) + "\n"


def _value(option: object) -> str:
    return ", ".join(map(str, option)) if isinstance(option, tuple) else str(option)


def _made_from(made: Provenance) -> str:
    commit = made.commit or "not known"
    return (
        f"Made {made.date} by KubeShare {made.version}, commit {commit}, on {made.machine}, "
        f"Python {made.python}."
    )


def _partial(results: Results) -> list[str]:
    """Why there are fewer results than were asked for."""
    why = results.failed or ("it was interrupted" if results.interrupted else "")
    return [f'<p class="partial">Partial: {escape(why)}.</p>'] if why else []


def _table(rows: Iterable[Sequence[str]]) -> str:
    head, *rest = rows
    cells = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in head)
    lines = ("".join(f"<td>{escape(cell)}</td>" for cell in row) for row in rest)
    body = "\n".join(f"<tr>{line}</tr>" for line in lines)
    return (
        f'<div class="wide"><table><thead><tr>{cells}</tr></thead>\n<tbody>{body}</tbody>'
        "</table></div>"
    )


def _course(policies: Mapping[str, Sequence[Run]]) -> list[str]:
    """A chart of each gauge, with a line for the first run of each policy."""
    first = {policy: runs[0] for policy, runs in policies.items()}
    legend = "".join(
        f'<span><svg viewBox="0 0 28 8" aria-hidden="true"><path d="M0 4h28" {stroke(number)}/>'
        f"</svg> {escape(policy)}</span>"
        for number, policy in enumerate(first)
    )
    seeds = ", ".join(sorted({f"seed {run.seed}" for run in first.values()}))
    charts = (
        f"<figure><figcaption>{title}</figcaption>"
        f"{chart(title, {policy: _line(run, gauge) for policy, run in first.items()})}</figure>"
        for gauge, title in _GAUGES.items()
    )
    return [
        f"<h2>Course of one run each ({seeds})</h2>",
        f'<p class="legend">{legend}</p>',
        f'<div class="charts">{"".join(charts)}</div>',
    ]


def _line(run: Run, gauge: str) -> Line:
    return [(row["time_s"], row[gauge]) for row in run.series]


def _runs(runs: Sequence[Run]) -> list[Sequence[str]]:
    """Every number of each run."""
    names = Summary.__struct_fields__
    rows = [
        [run.policy, str(run.seed), *map(_number, msgspec.structs.astuple(run.summary))]
        for run in runs
    ]
    return [("policy", "seed", *(name.replace("_", " ") for name in names)), *rows]


def _number(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
