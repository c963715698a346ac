"""What the programs hold beside SharePods and pods as large as an API server accepts.

``python -m bench.cluster.large 1000`` starts each program, in a process of its own, with so many
SharePods and as many pods of 1.5 MB each, as those are that were created before KubeShare's policy
for their size: many environment variables, one argument, affinity, or 256 KiB of annotations with
KubeShare's prefix. The objects are computed page by page; a page that is too large is answered by
as many bytes as the client reads of it. Up to 2.3 GiB of memory, half a minute for each.

The programs keep affinity as it is, so 1000 SharePods with 1.5 MB of it exceed the limit.
"""

import argparse
import asyncio
import json
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from bench.cluster.start import PROGRAMS, generated, program_of
from bench.report import Met, at_most, print_machine, report, summarize
from kubeshare.api.types.v1 import SHAREPODS
from kubeshare.kube.client.listing import PAGE_BYTES
from kubeshare.kube.controller.gc_tuning import collections_paused
from kubeshare.kube.resources import PODS, Raw
from kubeshare.simulator.control.generated_lists import Generated, GeneratedLists
from kubeshare.simulator.control.requests import Answer, Request

OBJECTS: Final = 1000
BYTES: Final = 1_500_000
"""etcd accepts requests of at most 1.5 MiB."""
LIMIT_MIB: Final = 1024
_GPUS: Final = 8_000
_ENTRY: Final = 100


def _environment(obj: Raw) -> None:
    entries = [{"name": f"V{number}", "value": "x" * 64} for number in range(BYTES // _ENTRY)]
    obj["spec"]["containers"][0]["env"] = entries


def _argument(obj: Raw) -> None:
    obj["spec"]["containers"][0]["args"] = ["x" * BYTES]


def _annotations(obj: Raw) -> None:
    """The API server accepts 256 KiB of them."""
    notes = {f"kubeshare.example/{number}": "x" * 64 for number in range((256 << 10) // _ENTRY)}
    obj["metadata"]["annotations"] = notes


def _affinity(obj: Raw) -> None:
    """Which nodes are eligible is kept as it is."""
    values = [f"zone-{number:>095}" for number in range(BYTES // _ENTRY)]
    term = {"matchExpressions": [{"key": "zone", "operator": "NotIn", "values": values}]}
    required = {"nodeSelectorTerms": [term]}
    affinity = {"requiredDuringSchedulingIgnoredDuringExecution": required}
    obj["spec"]["affinity"] = {"nodeAffinity": affinity}


KINDS: Final[dict[str, Callable[[Raw], None]]] = {
    "environment": _environment,
    "argument": _argument,
    "annotations": _annotations,
    "affinity": _affinity,
}


class LargeObjects(GeneratedLists):
    """Generated lists that do not make a page of which a client reads only the beginning."""

    def _answer(self, request: Request) -> Answer:
        large = request.path.plural in (SHAREPODS.plural, PODS.plural)
        count = int(request.query.get("limit", "1")) if request.verb == "list" else 1
        if large and count > 1 and count * BYTES > PAGE_BYTES:
            return Answer(200, bytes(PAGE_BYTES + 1))
        return super()._answer(request)


def run(objects: int) -> list[Met]:
    """Each program with each kind of large object."""
    met = []
    for program in PROGRAMS:
        for kind in KINDS:
            command = [sys.executable, "-m", "bench.cluster.large", str(objects)]
            command += ["--program", program, "--kind", kind]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
            peak = json.loads(done.stdout.splitlines()[-1])["peak_mib"]
            what = f"{program}, {objects} SharePods and pods of 1.5 MB ({kind}): peak memory, MiB"
            met.append(report(what, at_most(LIMIT_MIB), peak))
    return met


async def _start(name: str, objects: int, kind: str) -> dict[str, float]:
    enlarge = KINDS[kind]

    def large(made: Generated) -> Generated:
        def make(number: int) -> Raw:
            obj = made.make(number)
            enlarge(obj)
            return obj

        return Generated(made.size, make)

    lists: dict[Any, Generated] = dict(generated(_GPUS, objects))
    server = LargeObjects(lists | {kind: large(lists[kind]) for kind in (SHAREPODS, PODS)})
    program = program_of(name, server.client(name), elect=False)
    built = asyncio.Event()

    async def set_built() -> None:
        built.set()

    program.add_preparation(set_built)
    async with collections_paused(program.wait_for_sync):
        running = asyncio.create_task(program.run())
        await built.wait()
        await asyncio.sleep(2)
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running
    return {"peak_mib": _peak_mib()}


def _peak_mib() -> float:
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


def main() -> int:
    """Run it and say how many goals are met."""
    parser = argparse.ArgumentParser(prog="bench.cluster.large")
    parser.add_argument("objects", type=int, nargs="?", default=OBJECTS)
    parser.add_argument("--program", choices=PROGRAMS, help="measure this one, in this process")
    parser.add_argument("--kind", choices=KINDS, default="environment")
    options = parser.parse_args()
    if options.program:
        found = asyncio.run(_start(options.program, options.objects, options.kind))
        sys.stdout.write(json.dumps(found) + "\n")
        return 0
    print_machine()
    return summarize(run(options.objects))


if __name__ == "__main__":
    sys.exit(main())
