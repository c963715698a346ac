"""A training job of PyTorch, alone and beside another, where PyTorch is installed."""

import shutil
import subprocess
from collections.abc import Sequence

from bench.gpu.clients import Bench, Share
from bench.gpu.experiment import Experiment, LeftOutError, Result

_PROGRAM = "bench.gpu.train"
_MEMORY = "8Gi"


def run(bench: Bench) -> Result:
    """Steps a second with nothing of ours, with the library, and of two jobs that share."""
    python = _python_with_torch(bench)
    command = [python, "-m", _PROGRAM]
    bare = _rates(bench, command, [None])
    alone = _rates(bench, command, [Share("1", memory=_MEMORY)])
    shared = _rates(bench, command, [Share(".6", memory=_MEMORY), Share(".4", memory=_MEMORY)])
    return {
        "bare_steps_per_s": bare[0],
        "alone_lost": 1 - alone[0] / bare[0],
        "shares_of_bare": [rate / bare[0] for rate in shared],
        "asked": [0.6, 0.4],
    }


def _python_with_torch(bench: Bench) -> str:
    if bench.profile is not None:
        raise LeftOutError("PyTorch needs tables of the driver that the fake GPU has not")
    python = shutil.which("python3")
    has_it = (
        python is not None
        and not subprocess.run(
            [python, "-c", "import torch; assert torch.cuda.is_available()"],
            capture_output=True,
            check=False,
        ).returncode
    )
    if python is None or not has_it:
        raise LeftOutError("no PyTorch that sees a GPU is installed for python3")
    return python


def _rates(bench: Bench, command: list[str], shares: Sequence[Share | None]) -> list[float]:
    with bench.clients() as clients:
        for number, share in enumerate(shares):
            clients.start_command(f"job-{number}", share, command)
        seen = clients.watch(bench.seconds(15), bench.seconds(10))
        return [seen.rates[f"job-{number}"] for number in range(len(shares))]


TRAINING = Experiment("pytorch", "training with PyTorch", 85, run)
