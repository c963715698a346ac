"""Draws a node's access-cost tree as an image, and its matrix."""

from collections.abc import Iterator
from typing import Final, NamedTuple
from xml.sax.saxutils import escape

from kubeshare.api.topology.node_topology import NodeTopology
from kubeshare.core.topology.links import name_of
from kubeshare.core.topology.tree import bits

LEGEND: Final = """\
  X    = the GPU itself
  SYS  = across the interconnect between sockets
  NODE = across the interconnect between host bridges of one NUMA node
  PHB  = across a PCIe host bridge
  PXB  = across several PCIe bridges, and no host bridge
  PIX  = across at most one PCIe bridge
  NV#  = across # NVLinks"""

_COLOURS: Final = {"group": "white", "healthy": "lightgreen", "unhealthy": "salmon"}
"""The kinds of shapes, which are also their classes in CSS."""
_ROW, _MARGIN, _GAP, _LEAST, _LETTER = 70, 30, 14, 116, 7
"""Pixels; a letter of the font is at most so wide."""


def matrix_text(topology: NodeTopology) -> str:
    """The matrix, with tabs between the columns as NVIDIA's tool writes them."""
    names = [f"GPU{gpu.index}" for gpu in topology.gpus]
    lines = ["\t".join(["", *names, "CPU Affinity", "NUMA Affinity"])]
    for name, gpu, levels in zip(names, topology.gpus, topology.levels, strict=True):
        row = [" X " if level == "X" else level for level in levels]
        numa = str(gpu.numa_node) if gpu.numa_node >= 0 else "N/A"
        lines.append("\t".join([name, *row, gpu.cpu_list or "N/A", numa]))
    return "\n".join(lines)


def svg(topology: NodeTopology) -> str:
    """The tree as an image: the GPUs in a row at the bottom, their groups above them."""
    shapes = list(_shapes(topology))
    longest = max((len(word) for shape in shapes for word in shape.words), default=0)
    box = max(_LEAST, _LETTER * longest + _GAP)
    column = box + _GAP
    width = _MARGIN * 2 + column * max(1, len(topology.gpus))
    height = _MARGIN * 2 + _ROW * (1 + max((shape.y for shape in shapes), default=0))
    style = 'font-family="sans-serif" font-size="12" text-anchor="middle"'
    size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} {style}>',
        f"<title>GPUs of {escape(topology.name)}</title>",
    ]
    for shape in shapes:
        if shape.parent is not None:
            x, y = shape.parent
            lines.append(
                f'<line x1="{_x(x, column):g}" y1="{_y(y):g}" '
                f'x2="{_x(shape.x, column):g}" y2="{_y(shape.y):g}" '
                'stroke="gray"/>'
            )
    for shape in shapes:
        x, top = _x(shape.x, column), _y(shape.y)
        place = f'x="{x - box / 2:g}" y="{top - 18:g}" width="{box}" height="36" rx="6"'
        fill = f'class="{shape.kind}" fill="{_COLOURS[shape.kind]}"'
        lines.append(f'<rect {place} {fill} stroke="gray"/>')
        first = top + 4 - 7 * (len(shape.words) - 1)
        for line, text in enumerate(shape.words):
            lines.append(f'<text x="{x:g}" y="{first + 14 * line:g}">{escape(text)}</text>')
    return "\n".join([*lines, "</svg>"])


class _Shape(NamedTuple):
    """A group or a GPU: its place in columns and rows, and that of its group."""

    x: float
    y: int
    words: tuple[str, ...]
    parent: tuple[float, int] | None
    kind: str = "group"


def _x(at: float, column: int) -> float:
    return _MARGIN + column * (at + 0.5)


def _y(row: float) -> float:
    return _MARGIN + _ROW * (row + 0.5)


def _shapes(topology: NodeTopology) -> Iterator[_Shape]:
    """The groups from the root down, then the GPUs."""
    columns = _columns(topology)
    rows: dict[int, int] = {}
    places: dict[int, tuple[float, int]] = {}
    for number in range(len(topology.tree.groups) - 1, -1, -1):
        group = topology.tree.groups[number]
        parent = group.above[0] if group.above else None
        rows[number] = 0 if parent is None else rows[parent] + 1
        inside = [columns[leaf] for leaf in bits(group.members)]
        places[number] = (sum(inside) / len(inside), rows[number])
        above = None if parent is None else places[parent]
        yield _Shape(*places[number], (name_of(group.level),), above)
    bottom = max(rows.values(), default=-1) + 1
    for position, gpu in enumerate(topology.gpus):
        around = topology.tree.around(position)
        words = tuple(word for word in (f"GPU{gpu.index}", gpu.model) if word)
        above = places[around[0]] if around else None
        kind = "healthy" if gpu.healthy else "unhealthy"
        yield _Shape(columns[position], bottom, words, above, kind)


def _columns(topology: NodeTopology) -> dict[int, int]:
    """Position of each GPU → its column, so that the GPUs of a group are side by side."""

    def leaves(number: int) -> Iterator[int]:
        for first, child in topology.members(number):
            if child is None:
                yield first
            else:
                yield from leaves(child)

    root = topology.root
    order = range(len(topology.gpus)) if root is None else leaves(root)
    return {position: column for column, position in enumerate(order)}
