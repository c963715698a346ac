"""Prices of what is left of a GPU, and a bound.

How much of the GPUs a workload can fill is a linear program: choose how many GPUs are cut in
which pattern of shares, each share no more often than it is offered. Relaxed in the sense of
Lagrange, a share pays a fine for being scarce, and each GPU takes the pattern that earns most
after the fines. What the best pattern of a part of a GPU earns is its *price*: a part that only
scarce shares could use is worth little. Any fines give an upper bound; the least one is sought
by the subgradient method with Polyak's steps (Held, Wolfe and Crowder, 1974). For cutting stock
the program is that of Gilmore and Gomory, 1961.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Final

import msgspec

from kubeshare.core.units import MICROS

STEPS: Final = 100
"""Parts of a GPU are told apart in such steps."""

_STEP: Final = MICROS // STEPS
_PATIENCE: Final = 15
_ITERATIONS: Final = 70
"""The most iterations, by the patience."""

PATIENT: Final = 200
"""The patience for a bound that is printed, which a second may be spent on."""

_ENOUGH: Final = 1e-5
_PATTERNS: Final = 64


class Prices(msgspec.Struct, frozen=True):
    """Prices of the parts of a GPU.

    Attributes:
        of_steps: the price of what is left, in GPUs, by how many steps it has; never falling.
        bound: the part of all GPUs that no placement can exceed.
    """

    of_steps: tuple[float, ...]
    bound: float

    def lost(self, left: int, asked: int) -> float:
        """By how much a share lowers the price of a GPU, in GPUs.

        Args:
            left: the micros that are left of it before.
            asked: those of the share.
        """
        return self.of_steps[left // _STEP] - self.of_steps[(left - asked) // _STEP]


class _Share(msgspec.Struct, frozen=True):
    """Shares of one size: their steps, what each earns in GPUs, how many a GPU are offered."""

    steps: int
    earns: float
    offered: float


def find_prices(offered: Mapping[int, float], patience: int = _PATIENCE) -> Prices:
    """The prices for a workload.

    Args:
        offered: micros of a share → how many of them are asked for at once, for each GPU.
        patience: after so many steps in vain smaller ones are taken. The more, the lower the
            bound: where it is a tenth of a percent below all GPUs, few find nothing.
    """
    shares = _shares(offered)
    fines = dict.fromkeys(shares, 0.0)
    best, best_fines, since, ambition = 2.0, fines, 0, 0.05
    prices: tuple[float, ...] = (0.0,) * (STEPS + 1)
    for _ in range(_ITERATIONS * patience):
        values, used = _best_pattern(fines)
        bound = values[-1] + sum(fine * share.offered for share, fine in fines.items())
        if bound < best - _ENOUGH:
            best, best_fines, prices, since = bound, fines, tuple(values), 0
        elif since == patience:
            fines, since, ambition = best_fines, 0, ambition * 0.6
            if ambition * best < _ENOUGH:
                break  # the bound is convex, so no step lowers it by more than it aims at
            continue
        else:
            since += 1
        slope = {share: share.offered - used[share] for share in shares}
        slope = {at: by for at, by in slope.items() if fines[at] > 0 or by < 0}
        length = sum(by * by for by in slope.values())
        if not length:
            break
        step = (bound - best * (1 - ambition)) / length
        fines = {share: max(0.0, fines[share] - step * slope.get(share, 0.0)) for share in shares}
    return Prices(prices, min(best, 1.0))


def can_fill(offered: Mapping[int, float], part: float) -> bool:
    """Whether some placement is known that fills at least this part of all GPUs.

    If so, the bound of :func:`find_prices` is no less, which takes a few hundred times as long.
    GPUs are filled in one pattern after the other, at most ``_PATTERNS``: the largest share that is
    left, and beside it what fills the rest of a GPU best.

    Args:
        offered: as there.
        part: of all GPUs.
    """
    rest = {share: share.offered for share in _shares(offered)}
    gpus, filled = 1.0, 0.0
    for _ in range(_PATTERNS):
        if not rest or gpus < _ENOUGH or filled >= part:
            break
        largest = next(reversed(rest))
        values, pattern = _best_pattern(dict.fromkeys(rest, 0.0), STEPS - largest.steps)
        pattern[largest] += 1
        times = min(gpus, *[rest[share] / count for share, count in pattern.items()])
        filled += times * (largest.earns + values[-1])
        gpus -= times
        for share, count in pattern.items():
            rest[share] -= times * count
            if rest[share] < _ENOUGH:
                del rest[share]
    return filled >= part


def _shares(offered: Mapping[int, float]) -> list[_Share]:
    """Shares by steps, rounded down so that a bound stays one."""
    counts: dict[tuple[int, float], float] = defaultdict(float)
    for micros, count in offered.items():
        if micros >= _STEP:
            counts[micros // _STEP, micros / MICROS] += count
        elif micros:
            counts[1, 1 / STEPS] += count * micros / _STEP
    return [_Share(steps, earns, count) for (steps, earns), count in sorted(counts.items())]


def _best_pattern(
    fines: Mapping[_Share, float], most: int = STEPS
) -> tuple[list[float], Counter[_Share]]:
    """What the best pattern of each number of steps earns after fines, and that of the most.

    Args:
        fines: of the shares, in ascending order of their steps.
        most: so many steps; those of a whole GPU if not given.
    """
    values = [0.0]
    shares = [(share.steps, share.earns, fine, share) for share, fine in fines.items()]
    fitting: list[tuple[int, float, float, _Share]] = []
    for steps in range(1, most + 1):
        while len(fitting) < len(shares) and shares[len(fitting)][0] <= steps:
            fitting.append(shares[len(fitting)])
        earned = [values[steps - size] + earns - fine for size, earns, fine, _ in fitting]
        values.append(max(values[-1], *earned) if earned else values[-1])
    used: Counter[_Share] = Counter()
    left = most
    while left:
        if values[left] == values[left - 1]:
            left -= 1
            continue
        for size, earns, fine, share in fitting:
            if size <= left and values[left - size] + earns - fine == values[left]:
                used[share] += 1
                left -= size
                break
    return values, used
