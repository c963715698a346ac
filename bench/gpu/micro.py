"""What a launch, an allocation and an event cost, and which work an event waits for."""

import json
import subprocess
import sys
from statistics import median

from bench.gpu.clients import Bench, Share
from bench.gpu.experiment import Experiment, Result
from kubeshare import native

_PAIRS = 3
_WHOLE = Share("1", memory="4Gi")


def launch(bench: Bench) -> Result:
    """Nanoseconds a launch, through the open gate and without the library, in turns."""
    program = [str(native.path("launch-bench"))]
    bare, shared = [], []
    for _ in range(_PAIRS):
        bare.append(_printed(bench, program, None)["launch_ns"])
        shared.append(_printed(bench, program, _WHOLE)["launch_ns"])
    return {"bare_ns": bare, "shared_ns": shared, "added_ns": median(shared) - median(bare)}


def memory(bench: Bench) -> Result:
    """For each size: what the driver took, and what the library charged."""
    program = [sys.executable, "-m", "bench.gpu.allocate"]
    bare = _printed(bench, program, None)["rows"]
    shared = _printed(bench, program, _WHOLE)["rows"]
    rows = [
        {"bytes": one["bytes"], "taken": one["taken"], "charged": other["taken"]}
        for one, other in zip(bare, shared, strict=True)
    ]
    return {"rows": rows}


def markers(bench: Bench) -> Result:
    """Which streams' work an event of the context waits for, and ns a call, without the library."""
    return _printed(bench, [str(native.path("marker-bench"))], None)


def entry_points(bench: Bench) -> Result:
    """Whose functions a program gets by each way, without the library and with it."""
    program = [sys.executable, "-m", "bench.gpu.entry_points"]
    return {
        "bare": _printed(bench, program, None),
        "shared": _printed(bench, program, _WHOLE),
    }


def _printed(bench: Bench, program: list[str], share: Share | None) -> Result:
    environment = bench.outside() if share is None else bench.environment
    command = bench.command(program, share)
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False, timeout=60
    )
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip() or done.stdout.strip()}")
    result: Result = json.loads(done.stdout.splitlines()[-1])
    return result


LAUNCH = Experiment("launch", "what a launch costs", 30, launch)
MEMORY = Experiment("memory", "what an allocation takes and is charged", 10, memory)
MARKERS = Experiment("markers", "what events wait for and cost", 10, markers)
ENTRY_POINTS = Experiment("entry-points", "whose functions a program gets", 10, entry_points)
