"""Which GPU is measured: asked of NVML, in a process with the right libraries before it."""

import json
import subprocess
import sys

from bench.gpu.clients import Bench
from bench.gpu.experiment import Result


def describe(bench: Bench) -> Result | None:
    """Model, memory in bytes and driver of the first GPU; None where NVML shows none."""
    done = subprocess.run(
        [sys.executable, "-m", "bench.gpu.gpus"],
        env=bench.outside(),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    return json.loads(done.stdout) if done.returncode == 0 else None


def main() -> int:
    """Print it as one JSON line; 3 where there is none."""
    import pynvml  # noqa: PLC0415  looks for its library where the environment says

    try:
        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByIndex(0)
        found = {
            "model": pynvml.nvmlDeviceGetName(handle),
            "memory": pynvml.nvmlDeviceGetMemoryInfo(handle).total,
            "driver": pynvml.nvmlSystemGetDriverVersion(),
        }
    except pynvml.NVMLError as error:
        print(f"gpus: {error}", file=sys.stderr)
        return 3
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
