"""A program: PyTorch trains the network of its MNIST example on two GPUs, a step after another.

Each GPU has a copy of the network and half of a batch. The second one's gradients are copied to the
first, which averages them and steps, and the parameters are copied back, as in ``bench.gaia.job``.
The pictures are made up: only the time is of interest, and nothing is downloaded. Imports PyTorch
alone, so that any Python that has it can run this. Prints the seconds and the mean loss of the last
steps as one JSON line.
"""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from typing import Any

import torch

_BATCH = 64
"""Pictures of each GPU and step."""
_CLASSES = 10
_WARM_UP = 10
"""Steps before the clock starts: libraries are loaded and kernels chosen in them."""


def network() -> Any:
    """The layers of ``mnist/main.py`` in PyTorch's examples: 1 199 882 parameters."""
    nn = torch.nn
    return nn.Sequential(
        *(nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Dropout(0.25), nn.Flatten(), nn.Linear(9216, 128), nn.ReLU(), nn.Dropout(0.5)),
        nn.Linear(128, _CLASSES),
    )


class Training:
    """Two copies of the network, on two devices.

    Args:
        devices: as PyTorch names them, ``cuda:0``.
    """

    def __init__(self, devices: Sequence[str]) -> None:
        torch.manual_seed(1)
        self._devices = devices
        self.copies = [network().to(device) for device in devices]
        self._optimizer = torch.optim.SGD(self.copies[0].parameters(), lr=0.1)
        answers = torch.randint(0, _CLASSES, (_BATCH,))
        # A picture's brightest square is its answer, so that the loss falls.
        pictures = torch.randn(_BATCH, 1, 28, 28) / 10
        pictures[torch.arange(_BATCH), 0, 2 * answers, 2 * answers] = 5
        self._batches = [(pictures.to(device), answers.to(device)) for device in devices]
        self._share_parameters()

    def step(self) -> Any:
        """Train on one batch; the loss of the first device."""
        losses = []
        for copy, (pictures, answers) in zip(self.copies, self._batches, strict=True):
            copy.zero_grad()
            loss = torch.nn.functional.cross_entropy(copy(pictures), answers)
            loss.backward()
            losses.append(loss.detach())
        first, second = (copy.parameters() for copy in self.copies)
        for mine, other in zip(first, second, strict=True):
            mine.grad.add_(other.grad.to(mine.device, non_blocking=True)).div_(2)
        self._optimizer.step()
        self._share_parameters()
        return losses[0]

    def _share_parameters(self) -> None:
        first, second = (copy.parameters() for copy in self.copies)
        with torch.no_grad():
            for mine, other in zip(first, second, strict=True):
                other.copy_(mine, non_blocking=True)

    def wait(self) -> None:
        """Wait until the devices have done all of it."""
        for device in self._devices:
            if device.startswith("cuda"):
                torch.cuda.synchronize(device)


def main() -> int:
    """Run one job."""
    parser = argparse.ArgumentParser(prog="bench.gaia.mnist", description=__doc__)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--devices", nargs=2, default=["cuda:0", "cuda:1"])
    options = parser.parse_args()
    training = Training(options.devices)
    for _ in range(_WARM_UP):
        training.step()
    training.wait()
    started = time.monotonic()
    loss = [training.step() for _ in range(options.steps)][-1]
    training.wait()
    seconds = time.monotonic() - started
    print(json.dumps({"seconds": seconds, "loss": float(loss)}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
