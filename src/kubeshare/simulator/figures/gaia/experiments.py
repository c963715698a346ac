"""Gaia paper, experiments 5 and 6: times, quoted from kept results."""

from typing import Final

from kubeshare.simulator.experiment import Progress
from kubeshare.simulator.figures.figure import Claim, Figure, Quoted

SCHEDULING_RESULTS: Final = Quoted(
    file="bench/results/2026-11-23-gaia-experiments-two-cores.txt",
    date="2026-11-23",
    commit="235ec85d",
    machine="two cores of an AMD EPYC virtual machine",
)
TRAINING_RESULTS: Final = Quoted(
    file="bench/results/2026-11-28-gaia-experiment-6-two-cores.txt",
    date="2026-11-28",
    commit="8c5f7324",
    machine="two cores of an AMD EPYC virtual machine",
)

SCHEDULING: Final = (
    ("1 Simple, 1 GPU (table I)", "24 (31)", "65 (88)", "85 (141)"),
    ("1 Simple, 2 GPUs (table I)", "21 (26)", "74 (113)", "82 (103)"),
    ("2 Fragment, 0.4 and then 0.1 beside 0.5 (table II)", "-", "67 (86)", "69 (84)"),
    ("3 Singular, 1 GPU (table III)", "8 (13)", "51 (77)", "62 (83)"),
    ("4 Link, 2 GPUs (table IV)", "8 (19)", "65 (98)", "72 (104)"),
)
"""ms until a pod is bound, median (90th percentile): stock, KubeShare's scheduler, extender."""

TRAINING: Final = (
    ("Caffe (LeNet)", 0.297, 0.249, 10.3),
    ("PyTorch (examples/mnist)", 0.617, 0.485, 14.1),
    ("TensorFlow (deep MNIST)", 1.482, 1.121, 16.2),
)
"""Seconds of a job on two GPUs, medians of stock and Gaia, and the gain of the means in %."""

STOCK_SPLITS: Final = 6
TRAINING_RUNS: Final = 10


def experiment_5(seeds: int, progress: Progress) -> Figure:
    """How long scheduling takes."""
    del seeds, progress
    return Figure(
        name="gaia-experiment-5",
        title="Time until a pod is bound, ms, median (90th percentile)",
        table=[("case", "kube-scheduler", "kubeshare's scheduler", "with extender"), *SCHEDULING],
        claims=[
            Claim(
                paper="Kubernetes has no fragment scheduling, so no time for it (figure 10)",
                here=f"none either, and {SCHEDULING[2][2]} ms with KubeShare",
                holds=SCHEDULING[2][1] == "-",
            )
        ],
        chosen=[
            "the paper's figure has no numbers, and its cluster five servers; ours has two cores",
            "KubeShare's times contain the pod's gate and its removal, the holder and the claim",
        ],
        ran="a real API server",
        quoted=SCHEDULING_RESULTS,
    )


def experiment_6(seeds: int, progress: Progress) -> Figure:
    """How long jobs on two GPUs take."""
    del seeds, progress
    gains = [gain for *_, gain in TRAINING]
    return Figure(
        name="gaia-experiment-6",
        title="Seconds of a training job on two GPUs",
        table=[
            ("framework", "stock", "Gaia", "gain %"),
            *(
                (name, f"{stock:g}", f"{gaia:g}", f"{gain:g}")
                for name, stock, gaia, gain in TRAINING
            ),
        ],
        claims=[
            Claim(
                paper="stock Kubernetes may split a pair of linked GPUs, Gaia never does",
                here=f"split in {STOCK_SPLITS} of {TRAINING_RUNS} runs, and in none",
                holds=STOCK_SPLITS > 0,
            ),
            Claim(
                paper="jobs take less time with Gaia (figure 12)",
                here=f"{min(gains):g} to {max(gains):g} % less",
                holds=min(gains) > 0,
            ),
        ],
        chosen=[
            "the paper's figure has no numbers",
            "a step computes 250 us and copies all parameters; bandwidths as bench/gaia assumes",
            "a job is as large as the framework's network, and no framework runs",
        ],
        ran="fake GPUs",
        quoted=TRAINING_RESULTS,
    )
