"""Runs a bench of this commit with the programs of an earlier one, whose sources come first.

``PYTHONPATH=EARLIER/src python -m bench.cluster.earlier bench.placement.gang 400``. The bench is
this commit's on both sides; what it needs and the earlier commit does not have is added here. With
the programs of this commit nothing is. The API server in memory is part of the earlier sources, so
where its time is counted, it is that of either commit.
"""

import importlib.util
import runpy
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

MEASURING: Final = (
    "kubeshare.simulator.control.generated_lists",
    "kubeshare.simulator.control.step_times",
)
"""Modules that the benches use and the programs do not."""
_SOURCES: Final = Path(__file__).parents[2] / "src"


def add_modules(names: tuple[str, ...] = MEASURING) -> list[str]:
    """Import from this commit those modules that the programs' commit does not have.

    Returns:
        their names.
    """
    missing = [name for name in names if importlib.util.find_spec(name) is None]
    for name in missing:
        path = _SOURCES.joinpath(*name.split(".")).with_suffix(".py")
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    return missing


def add_names(tuning: Any, program: Any) -> None:
    """What a start is measured with, for programs that do not know it.

    Args:
        tuning: the module for the garbage collector; programs without a pause make none.
        program: the class of a program, which becomes able to tell when its lists are there.
    """
    if not hasattr(tuning, "collections_paused"):
        tuning.collections_paused = _nothing_paused
    if not hasattr(program, "wait_for_sync"):
        program.wait_for_sync = _wait_for_sync


@asynccontextmanager
async def _nothing_paused(_: object) -> AsyncIterator[None]:
    yield


async def _wait_for_sync(program: Any) -> None:
    from kubeshare.simulator.control import until  # noqa: PLC0415 - of the programs' commit

    await until(lambda: all(each.synced for each in program._reflectors), seconds=600.0)  # noqa: SLF001


def main() -> None:
    """Run the module that the first argument names, with the other arguments."""
    from kubeshare.kube.controller import gc_tuning, runtime  # noqa: PLC0415 - see _wait_for_sync

    add_modules()
    add_names(gc_tuning, runtime.Program)
    sys.argv = sys.argv[1:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
