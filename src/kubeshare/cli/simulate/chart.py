"""Line charts as SVG, to be put into a page."""

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Final

Line = Sequence[tuple[float, float]]
"""Points, x and y from 0 on, in the order of x."""

COLOURS: Final = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#767676")
"""Of Okabe and Ito: people with any colour vision tell them apart; they repeat after the last."""

_DASHES: Final = ("", "6 3", "2 3")
"""Of lines whose colours repeat."""

_WIDTH: Final = 640
_HEIGHT: Final = 220
_LEFT: Final = 56
_RIGHT: Final = 16
_TOP: Final = 10
_BOTTOM: Final = 40
_TICKS: Final = 5

_UNITS: Final = ((172_800.0, 86_400.0, "days"), (7200.0, 3600.0, "hours"), (600.0, 60.0, "minutes"))
"""From how many seconds on time is in which unit, and its seconds."""


def chart(title: str, lines: Mapping[str, Line]) -> str:
    """Lines over time in seconds, as an ``svg`` element.

    Args:
        title: what it shows, for who cannot see it.
        lines: name → the line.
    """
    last = max((point[0] for line in lines.values() for point in line), default=0.0)
    most = max((point[1] for line in lines.values() for point in line), default=0.0)
    seconds, unit = next(((by, name) for at, by, name in _UNITS if last >= at), (1.0, "seconds"))
    across, up = ticks(last / seconds), ticks(most)
    parts = [
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(title)}">',
        *(_horizontal(value, _y(value, up[-1])) for value in up),
        *(_vertical(value, _x(value, across[-1])) for value in across),
        _text((_LEFT + _WIDTH - _RIGHT) / 2, _HEIGHT - 4, unit),
    ]
    for number, line in enumerate(lines.values()):
        points = " ".join(f"{_x(x / seconds, across[-1]):.1f},{_y(y, up[-1]):.1f}" for x, y in line)
        parts.append(f'<polyline points="{points}" {stroke(number)}/>')
    return "".join([*parts, "</svg>"])


def stroke(number: int) -> str:
    """The attributes of the line of a number, from 0."""
    dash = _DASHES[number // len(COLOURS) % len(_DASHES)]
    dashed = f' stroke-dasharray="{dash}"' if dash else ""
    return f'fill="none" stroke-width="2" stroke="{COLOURS[number % len(COLOURS)]}"{dashed}'


def ticks(most: float) -> list[float]:
    """Round numbers from 0 to the first that is not less than the most."""
    if most <= 0:
        return [0.0, 1.0]
    rough = most / _TICKS
    power = 10.0 ** math.floor(math.log10(rough))
    step = power * next(each for each in (1, 2, 5, 10) if each * power >= rough * (1 - 1e-9))
    return [step * at for at in range(math.ceil(most / step - 1e-9) + 1)]


def _x(value: float, last: float) -> float:
    return _LEFT + (_WIDTH - _LEFT - _RIGHT) * value / last


def _y(value: float, most: float) -> float:
    return _HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * value / most


def _horizontal(value: float, y: float) -> str:
    return (
        f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        f'<text class="axis" x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{value:g}</text>'
    )


def _vertical(value: float, x: float) -> str:
    return _text(x, _HEIGHT - _BOTTOM + 16, f"{value:g}")


def _text(x: float, y: float, words: str) -> str:
    return f'<text class="axis" x="{x:.1f}" y="{y:.1f}" text-anchor="middle">{words}</text>'
