"""Experiment 6 on this machine's own GPUs: PyTorch trains MNIST's network on pairs of them.

As in ``bench.gaia.training`` two jobs run at one time, on pairs that each run draws, and on those
that `kubeshare plan`'s core chooses by the links that ``nvidia-smi`` prints.
"""

import json
import os
import random
import subprocess
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

from bench.gaia.training import STEPS, Pair, drawn, links_of, pair, shown, times
from kubeshare.core.errors import InvalidValueError
from kubeshare.core.topology import read_matrix
from kubeshare.core.topology.links import Links
from kubeshare.simulator.figures import scenarios
from kubeshare.simulator.figures.gaia.placement import SEED

LEAST: Final = 4
"""GPUs: two jobs on two each."""
_MATRIX: Final = ("nvidia-smi", "topo", "-m")
_SECONDS: Final = 600
_JOB: Final = Path(__file__).with_name("mnist.py")
_LAST: Final = 500
"""Characters of a failed program's errors that are shown."""


class MachineError(Exception):
    """This machine cannot run the experiment."""


def run(python: str, runs: int, steps: int = STEPS) -> None:
    """Print the times of both ways to place the jobs.

    Args:
        python: a Python that has PyTorch.
        runs: of each way, in turns.
        steps: of a job.

    Raises:
        MachineError: it has too few GPUs, no driver, or no PyTorch.
    """
    text = _output(_MATRIX)
    try:
        links = read_matrix(text, "nvidia-smi topo -m")
    except InvalidValueError as error:
        raise MachineError(str(error)) from None
    if len(links) < LEAST:
        raise MachineError(f"two jobs need {LEAST} GPUs, and this machine has {len(links)}")
    ours, draw = placed(text, len(links)), random.Random(SEED)
    print(
        f"\nExperiment 6 with PyTorch on the {len(links)} GPUs of this machine: "
        f"two jobs of {steps} steps on two GPUs each, {runs} runs."
    )
    found: dict[str, list[float]] = {"stock": [], "Gaia": []}
    for number in range(1, runs + 1):
        stock = drawn(draw, len(links))
        for name, pairs in (("stock", stock), ("Gaia", ours)):
            found[name] += times(partial(_seconds, python, steps=steps), [pairs])
        seconds = ", ".join(f"{name} {each[-1]:.3f} s" for name, each in found.items())
        print(f"  run {number}: {_linked(stock, links)} and {_linked(ours, links)}: {seconds}")
    gain = 1 - sum(found["Gaia"]) / sum(found["stock"])
    print("  seconds, median (least to most)")
    for name, each in found.items():
        print(f"    {name:10s}{shown(each)}")
    print(f"    gain      {100 * gain:.1f}%")


def placed(matrix: str, count: int) -> tuple[Pair, Pair]:
    """The GPUs of two requests for two, by the links of a machine."""
    requests = [{"request": {"name": name, "cores": 200}} for name in ("first", "second")]
    node = {"name": "here", "gpus": count, "topoMatrix": matrix}
    found = scenarios.play({"policy": "topology", "nodes": [node], "events": requests})
    return pair(found["first"].gpus), pair(found["second"].gpus)


def _linked(pairs: tuple[Pair, Pair], links: Links) -> str:
    return "+".join(links_of(pairs, links))


def _seconds(python: str, gpus: Pair, steps: int) -> float:
    """How long a job takes on two GPUs, which have the numbers of ``nvidia-smi``."""
    seen = {"CUDA_VISIBLE_DEVICES": ",".join(map(str, gpus)), "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    printed = _output((python, str(_JOB), "--steps", str(steps)), seen)
    answer: dict[str, Any] = json.loads(printed.splitlines()[-1])
    return float(answer["seconds"])


def _output(command: tuple[str, ...], variables: Mapping[str, str] | None = None) -> str:
    try:
        done = subprocess.run(
            command,
            env={**os.environ, **(variables or {})},
            capture_output=True,
            text=True,
            check=False,
            timeout=_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise MachineError(f"{command[0]}: {error}") from None
    if done.returncode:
        raise MachineError(f"{' '.join(command)} failed: {done.stderr[-_LAST:].strip()}")
    return done.stdout
