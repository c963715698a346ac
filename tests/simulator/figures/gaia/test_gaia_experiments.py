"""Experiments 5 and 6 of the Gaia paper: what is quoted is what was measured."""

from pathlib import Path

from kubeshare.simulator.experiment import no_progress
from kubeshare.simulator.figures.gaia import experiments

ROOT = Path(__file__).parents[4]


def test_the_times_of_scheduling_are_those_of_the_kept_result() -> None:
    text = (ROOT / experiments.SCHEDULING_RESULTS.file).read_text().split("Experiment 5: ms")[1]
    rows = {line.strip()[:50].strip(): line.split() for line in text.splitlines() if line}
    for name, *times in experiments.SCHEDULING:
        line = next(" ".join(of) for key, of in rows.items() if name.startswith(key))
        measured = line.removeprefix(name).split()
        shown = [word for word in measured if not word.startswith("x")]
        assert " ".join(shown) == " ".join(times)


def test_the_times_of_training_are_those_of_the_kept_result() -> None:
    lines = (ROOT / experiments.TRAINING_RESULTS.file).read_text().splitlines()
    for name, stock, gaia, gain in experiments.TRAINING:
        line = next(line for line in lines if line.strip().startswith(name))
        words = line.strip().removeprefix(name).split()
        assert (float(words[0]), float(words[4]), words[-1]) == (stock, gaia, f"{gain:g}%")
    splits = f"in {experiments.STOCK_SPLITS} of {experiments.TRAINING_RUNS} runs, Gaia in none"
    assert any(splits in line for line in lines)


def test_both_name_their_results() -> None:
    for make in (experiments.experiment_5, experiments.experiment_6):
        figure = make(1, no_progress)
        assert figure.holds
        assert "quoted from bench/results/" in figure.where
