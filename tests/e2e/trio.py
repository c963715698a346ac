"""The three pods of the paper's figure 6, and what they are to have of their GPU."""

from e2e.space import IMAGE, Space
from e2e.stage import Place
from kubeshare.demo import figure
from wakeups import least_disturbed

PODS = tuple(job.name for job in figure.JOBS)
TARGETS = figure.targets(next(one for one in figure.STAGES if len(one.running) == len(PODS)))
TOLERANCE = 0.03


def come(space: Space) -> Place:
    """Apply the three, by affinity on one GPU, and wait until all are ready there."""
    for job in figure.JOBS:
        space.create(job.manifest(space.name, IMAGE))
    (place, *others) = [space.ready(pod) for pod in PODS]
    assert others == [place] * len(others), "affinity brings them together"
    return place


def assert_shares(space: Space, place: Place) -> None:
    """By the GPU's own log each has within three points of what it should have."""
    measured, lost = least_disturbed(lambda: space.stage.shares(place, TARGETS))
    off = {pod: abs(measured[pod] - target) for pod, target in TARGETS.items()}
    assert max(off.values()) < TOLERANCE + lost, f"{measured}, not {TARGETS}; {lost:.3f} lost"
