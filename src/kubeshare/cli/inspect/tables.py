"""Formats the usage of GPU memory as Alibaba's ``kubectl inspect gpushare`` does.

Columns, totals and rules are those of that tool, so that scripts which read its output can read
this one. Blanks at the end of a line are left out.
"""

from collections.abc import Iterable, Iterator, Sequence

from kubeshare.cli.inspect.usage import NodeUsage, PodUsage

Row = Sequence[str]

_PADDING = 2
_CLUSTER = "Allocated/Total GPU Memory In Cluster:"


def summary(nodes: Sequence[NodeUsage], *, wide: bool = False) -> str:
    """One line for each node, and the sum.

    Args:
        nodes: the nodes, in order.
        wide: adds who owns the GPUs, and their models.
    """
    unit = next((node.unit for node in nodes if node.unit), "")
    gpus, pending = _gpus(nodes), any(node.pending for node in nodes)
    header = ["NAME", "IPADDRESS", *(f"GPU{gpu}(Allocated/Total)" for gpu in gpus)]
    header += ["PENDING(Allocated)"] if pending else []
    header += [f"GPU Memory({unit})"]
    rows = [_summary_row(node, gpus, pending=pending) for node in nodes]
    rule = _rule(rows[:1], 20)
    if wide:
        header += ["OWNED", "MODELS"]
        rows = [[*row, *_wide(node)] for row, node in zip(rows, nodes, strict=True)]
    return _lines([*_aligned([header, *rows]), rule, _CLUSTER, _total(nodes)])


def details(nodes: Sequence[NodeUsage]) -> str:
    """A table of pods for each node, and the sum."""
    lines: list[str] = []
    length = ""
    for node in nodes:
        gpus, pending = _gpus([node]), bool(node.pending)
        rows = [_pod_row(each, gpus, pending=pending) for each in node.pods]
        length = length or _rule(rows, 10, end="\t\n")
        header = ["NAME", "NAMESPACE", *(f"GPU{gpu}(Allocated)" for gpu in gpus)]
        header += ["Pending(Allocated)"] if pending else []
        sums = [
            ["Allocated :", f"{node.used} ({_percent(node.used, node.total)})"],
            ["Total :", str(node.total)],
        ]
        lines += [*_aligned([["NAME:", node.name], ["IPADDRESS:", node.address]]), ""]
        lines += [*_aligned([header, *rows, *sums]), length, ""]
    return _lines([*lines, "", f"{_CLUSTER}  {_total(nodes)}"])


def _summary_row(node: NodeUsage, gpus: Iterable[int], *, pending: bool) -> list[str]:
    allocated = node.allocated
    cells = [f"{allocated.get(gpu, 0)}/{node.totals.get(gpu, 0)}" for gpu in gpus]
    if pending:
        cells.append(str(node.pending) if node.pending else "")
    return [node.name, node.address, *cells, f"{node.used}/{node.total}"]


def _wide(node: NodeUsage) -> list[str]:
    models = dict.fromkeys(model for _, model in sorted(node.models.items()))
    return ["yes" if node.owned else "no", ", ".join(models)]


def _pod_row(pod: PodUsage, gpus: Iterable[int], *, pending: bool) -> list[str]:
    cells = [str(pod.gpus.get(gpu, 0)) for gpu in gpus]
    return [pod.name, pod.namespace, *cells, *([str(pod.pending)] if pending else [])]


def _gpus(nodes: Iterable[NodeUsage]) -> range:
    """The indices of the columns: those of the node with most GPUs."""
    return range(max((gpu + 1 for node in nodes for gpu in node.totals), default=0))


def _total(nodes: Iterable[NodeUsage]) -> str:
    known = list(nodes)
    used, total = sum(node.used for node in known), sum(node.total for node in known)
    return f"{used}/{total} ({_percent(used, total)})"


def _percent(used: int, total: int) -> str:
    """The share in whole percent, rounded down."""
    return f"{used * 100 // total if total else 0}%"


def _rule(rows: Sequence[Row], more: int, end: str = "\n") -> str:
    """A rule as long as the bytes of these rows with tabs, and some more."""
    return "-" * (sum(len(("\t".join(row) + end).encode()) for row in rows) + more)


def _aligned(rows: Sequence[Row]) -> Iterator[str]:
    """The rows with their cells under each other."""
    columns = max(map(len, rows))
    widths = [
        max(len(row[column]) for row in rows if column < len(row)) + _PADDING
        for column in range(columns)
    ]
    for row in rows:
        yield "".join(cell.ljust(width) for cell, width in zip(row, widths, strict=False)).rstrip()


def _lines(lines: Iterable[str]) -> str:
    return "\n".join(lines)
