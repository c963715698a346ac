"""The tiers of ``kubeshare sim``: the core, or the real programs."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NamedTuple, Protocol

import click

from kubeshare.simulator.engine.simulation import OnEnd
from kubeshare.simulator.errors import SimulationError
from kubeshare.simulator.experiment import Experiment, Progress, Run, run
from kubeshare.simulator.systems import check_name

PROGRAMS: Final = ("scheduler", "device-manager")
MAX_REQUEST_S: Final = 10.0
"""Clients give up after 15 s."""


class NoLooptimeError(click.ClickException):
    """Looptime is not installed."""

    exit_code = 3

    def __init__(self) -> None:
        super().__init__("no looptime here, for --tier control: pip install 'kubeshare[simulator]'")


class RunOne(Protocol):
    """Makes one run."""

    def __call__(
        self, experiment: Experiment, policy: str, seed: int, on_end: OnEnd, progress: Progress, /
    ) -> Run:
        """The numbers of a policy and a seed."""


class Tier(NamedTuple):
    """What runs an experiment.

    Attributes:
        run: makes one run.
        check: raises a :class:`SimulationError` about an experiment and the name of a policy
            that it cannot run.
    """

    run: RunOne
    check: Callable[[Experiment, str], None]


def parse_restarts(
    context: click.Context, option: click.Parameter, values: tuple[str, ...]
) -> tuple[tuple[str, float], ...]:
    """``scheduler@60`` → (scheduler, 60.0)."""
    restarts = []
    for text in values:
        program, _, at = text.partition("@")
        try:
            seconds = float(at)
        except ValueError:
            seconds = -1.0
        if program not in PROGRAMS or not 0 <= seconds < float("inf"):
            known = " or ".join(PROGRAMS)
            raise click.BadParameter(
                f"{text!r} is not PROGRAM@SECONDS with {known}", context, option
            )
        restarts.append((program, seconds))
    return tuple(restarts)


def tier(name: str, request_s: float, restarts: Sequence[tuple[str, float]]) -> Tier:
    """What runs an experiment.

    Args:
        name: ``core`` or ``control``.
        request_s: as in :class:`~kubeshare.simulator.control_tier.simulation.ControlSettings`.
        restarts: the same.

    Raises:
        SimulationError: what only the control tier has is given to the other one.
        NoLooptimeError: the control tier is not installed.
    """
    if name == "core":
        if request_s or restarts:
            raise SimulationError("--request-time and --restart are for --tier control")
        return Tier(run, lambda _, policy: check_name(policy))
    if not 0 <= request_s <= MAX_REQUEST_S:
        raise SimulationError(f"--request-time: {request_s:g} s is not from 0 to {MAX_REQUEST_S:g}")
    try:
        # Needs an extra, and imports the programs of the control plane.
        from kubeshare.simulator.control_tier.run import check_control, run_control  # noqa: PLC0415
        from kubeshare.simulator.control_tier.settings import ControlSettings  # noqa: PLC0415
    except ModuleNotFoundError as error:
        if error.name != "looptime":
            raise
        raise NoLooptimeError from error
    settings = ControlSettings(request_s=request_s, restarts=restarts)
    return Tier(partial(run_control, settings), check_control)
