"""A program: trains a small convolutional network on made-up pictures until it is stopped.

Prints steps a second as ``burn`` prints kernels. Imports PyTorch alone, so that
any Python that has it can run this.
"""

import itertools
import json
import time
from typing import Any

import torch

_BATCH = 64
_PIXELS = 96
_CHANNELS = 64
_CLASSES = 10


def network() -> Any:
    """Six convolutions and a linear layer."""
    layers: list[Any] = [torch.nn.Conv2d(3, _CHANNELS, 3, padding=1), torch.nn.ReLU()]
    for _ in range(5):
        layers += [torch.nn.Conv2d(_CHANNELS, _CHANNELS, 3, padding=1), torch.nn.ReLU()]
    layers += [torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten()]
    return torch.nn.Sequential(*layers, torch.nn.Linear(_CHANNELS, _CLASSES)).cuda()


def main() -> None:
    """Train, and say each second how fast."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    pictures = torch.randn(_BATCH, 3, _PIXELS, _PIXELS, device="cuda")
    answers = torch.randint(0, _CLASSES, (_BATCH,), device="cuda")
    since, before = time.monotonic(), 0
    for step in itertools.count():
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(pictures), answers).backward()
        optimizer.step()
        if step % 8 == 0:
            torch.cuda.synchronize()
            now = time.monotonic()
            if now - since >= 1:
                rate = (step - before) / (now - since)
                print(json.dumps({"kernels_per_s": rate}), flush=True)
                since, before = now, step


if __name__ == "__main__":
    main()
