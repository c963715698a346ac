"""KubeShare paper, tables 1 to 3: features with their tests, notation, workloads."""

from pathlib import Path
from typing import Final

import kubeshare
from kubeshare.core.demand import Demand
from kubeshare.core.ledger.device import Device
from kubeshare.simulator.experiment import Progress
from kubeshare.simulator.figures.figure import Claim, Figure, NotReproducedError

_CLONE: Final = Path(kubeshare.__file__).parents[2]

FEATURES: Final = (
    (
        "Multi-GPUs per node",
        "tests/e2e/test_published_manifests.py",
        "test_four_halves_fill_two_gpus",
    ),
    (
        "Fine-grained allocation",
        "tests/e2e/test_sharing.py",
        "test_each_has_the_share_that_follows_from_the_requests",
    ),
    (
        "Memory isolation",
        "tests/e2e/test_memory.py",
        "test_a_job_over_its_memory_is_out_of_memory",
    ),
    (
        "Computation isolation",
        "tests/shares/test_shares.py",
        "test_figure_6_in_all_its_stages",
    ),
    (
        "First class with GPU identity",
        "tests/e2e/test_waiting.py",
        "test_two_that_name_the_same_gpuid_share_that_gpu",
    ),
    (
        "Locality constraint",
        "tests/core/policies/test_locality.py",
        "test_on_thousands_of_random_states_it_answers_as_the_slow_one",
    ),
    (
        "Co-exist with kube-scheduler",
        "tests/e2e/test_ending.py",
        "test_a_native_pod_gets_a_released_gpu_and_meets_nothing_of_ours",
    ),
)
"""Feature of table 1, all of which KubeShare has there → the test that shows it here."""

NOTATION: Final = (
    ("r.util", "the gpu_request of a container", Demand, "request_micros"),
    ("r.mem", "the gpu_mem of a container", Demand, "memory"),
    ("r.aff", "the sched_affinity label of a container", Demand, "affinity"),
    ("r.anti_aff", "the sched_anti-affinity label of a container", Demand, "anti_affinity"),
    ("r.excl", "the sched_exclusion label of a container", Demand, "exclusion"),
    ("d.util", "the residual computing capacity of a device", Device, "compute_left"),
    ("d.mem", "the residual memory space of a device", Device, "memory_left"),
    ("d.aff", "the set of affinity labels on a device", Device, "affinities"),
    ("d.anti_aff", "the set of anti-affinity labels on a device", Device, "anti_affinities"),
    ("d.excl", "the exclusion label on a device", Device, "exclusions"),
    ("d.idle", "whether a container is scheduled on the device", Device, "idle"),
)
"""Notation of Algorithm 1, its meaning, and the attribute that stands for it."""


def table_1(seeds: int, progress: Progress) -> Figure:
    """The features of KubeShare, each with its test.

    Raises:
        NotReproducedError: the tests are not here.
    """
    del seeds, progress
    if not (_CLONE / "tests").is_dir():
        raise NotReproducedError("table-1 names tests: run it in a clone of the repository")
    found = [_has_test(path, test) for _, path, test in FEATURES]
    return Figure(
        name="table-1",
        title="Features of KubeShare",
        table=[
            ("feature", "paper", "here", "shown by"),
            *(
                (feature, "Yes", "Yes" if there else "no test", f"{path}::{test}")
                for (feature, path, test), there in zip(FEATURES, found, strict=True)
            ),
        ],
        claims=[
            Claim(
                paper="KubeShare has all features",
                here=f"{sum(found)} of {len(found)} are shown by a test",
                holds=all(found),
            )
        ],
        ran="nothing: `make test` runs the tests",
    )


def table_2(seeds: int, progress: Progress) -> Figure:
    """The notation of Algorithm 1, and what stands for it in the code."""
    del seeds, progress
    found = [hasattr(kind, name) for *_, kind, name in NOTATION]
    return Figure(
        name="table-2",
        title="Notation of Algorithm 1 (core/policies/locality/policy.py)",
        table=[
            ("notation", "meaning", "here"),
            *((sign, means, f"{kind.__name__}.{name}") for sign, means, kind, name in NOTATION),
        ],
        claims=[
            Claim(
                paper="the algorithm reads these",
                here=f"{sum(found)} of {len(found)} are attributes of the core",
                holds=all(found),
            )
        ],
        ran="nothing",
    )


def table_3(seeds: int, progress: Progress) -> Figure:
    """The workloads, and what stands for them here."""
    del seeds, progress
    return Figure(
        name="table-3",
        title="Workloads",
        table=[
            ("job", "paper", "adjusted", "here without a GPU"),
            (
                "training",
                "ResNet-50, TensorFlow",
                "training steps",
                "burn --inflight 8: kernels without a pause",
            ),
            (
                "inference",
                "DeepLab V3, TF-Serving",
                "request numbers",
                "burn --rate R: a kernel for each request",
            ),
        ],
        claims=[],
        chosen=[
            "`burn` stands in for both models: neither computes anything here",
            "on a GPU, `python -m bench.gpu --only pytorch` trains six convolutions, not ResNet-50",
            "DeepLab is run nowhere",
        ],
        ran="nothing",
    )


def _has_test(path: str, test: str) -> bool:
    file = _CLONE / path
    return file.is_file() and f"def {test}(" in file.read_text()
