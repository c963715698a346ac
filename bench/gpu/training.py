"""Programs of PyTorch and CuPy, alone and beside another, where these are installed."""

import shutil
import subprocess
from collections.abc import Sequence

from msgspec import Struct

from bench.gpu.clients import Bench, Share
from bench.gpu.experiment import Experiment, LeftOutError, Result

_MEMORY = "8Gi"


class _Framework(Struct, frozen=True):
    """A framework and the program that uses it.

    Attributes:
        name: for people.
        sees_a_gpu: Python that fails where it is not installed or sees no GPU.
        program: a module that prints its rate.
    """

    name: str
    sees_a_gpu: str
    program: str

    def run(self, bench: Bench) -> Result:
        """Steps a second with nothing of ours, with the library, and of two jobs that share."""
        command = [self._python(bench), "-m", self.program]
        bare = _rates(bench, command, [None])
        alone = _rates(bench, command, [Share("1", memory=_MEMORY)])
        shared = _rates(bench, command, [Share(".6", memory=_MEMORY), Share(".4", memory=_MEMORY)])
        return {
            "bare_steps_per_s": bare[0],
            "alone_lost": 1 - alone[0] / bare[0],
            "shares_of_bare": [rate / bare[0] for rate in shared],
            "asked": [0.6, 0.4],
        }

    def _python(self, bench: Bench) -> str:
        if bench.profile is not None:
            raise LeftOutError("kernels of a fake GPU compute nothing, and its images have no data")
        python = shutil.which("python3")
        command = [python or "", "-c", self.sees_a_gpu]
        if python is None or subprocess.run(command, capture_output=True, check=False).returncode:
            raise LeftOutError(f"no {self.name} that sees a GPU is installed for python3")
        return python


def _rates(bench: Bench, command: list[str], shares: Sequence[Share | None]) -> list[float]:
    with bench.clients() as clients:
        for number, share in enumerate(shares):
            clients.start_command(f"job-{number}", share, command)
        seen = clients.watch(bench.seconds(15), bench.seconds(10))
        return [seen.rates[f"job-{number}"] for number in range(len(shares))]


_TORCH = _Framework("PyTorch", "import torch; assert torch.cuda.is_available()", "bench.gpu.train")
_CUPY = _Framework("CuPy", "import cupy; assert cupy.cuda.is_available()", "bench.gpu.multiply")
TRAINING = Experiment("pytorch", "training with PyTorch", 85, _TORCH.run)
PRODUCTS = Experiment("cupy", "products of matrices with CuPy", 85, _CUPY.run)
