"""Figure 3 of the KubeShare paper."""

from kubeshare.simulator.experiment import no_progress
from kubeshare.simulator.figures.kubeshare.fragmentation import DEMANDS, figure_3


def test_round_robin_promises_too_much_and_locality_leaves_a_gpu_empty() -> None:
    figure = figure_3(1, no_progress)
    turns, ours = ([point.y.mean for point in line] for line in figure.lines.values())
    a, b, c, d, e, f = DEMANDS.values()
    assert [round(each, 6) for each in turns] == [round(each, 6) for each in (a + e, b + f, c, d)]
    assert sorted(round(each, 6) for each in ours) == [0, 0.9, 0.9, 1]
    assert figure.holds
