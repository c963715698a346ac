"""Prints what an arbiter decides about random jobs: ``python -m tokens.decisions [FOLDER]``.

With a folder its compiled modules decide, else the sources.
"""

import random
import sys
from pathlib import Path

from kubeshare import compiled

GPUS = ("gpu-0", "gpu-1", "gpu-2")
SEEDS = range(6)


def main(folder: str | None = None) -> None:
    if folder is not None:
        code = compiled.use(Path(folder))
        assert code.is_compiled, code.why_not
    from core.token.simulation import MS, SECOND, Simulation  # noqa: PLC0415  what was chosen
    from kubeshare.core.token import DECAYED_AVERAGE, SLIDING_WINDOW  # noqa: PLC0415

    for seed in SEEDS:
        choose = random.Random(seed)
        measure = SLIDING_WINDOW if seed % 3 == 2 else DECAYED_AVERAGE
        # Late on the clock, where an integer of nanoseconds is no exact float any more.
        simulation = Simulation(seed, choose.choice([20, 100]) * MS, measure)
        simulation.now = 2**53 + choose.randrange(2**53)
        for number in range(choose.randint(3, 6)):
            gpus = choose.sample(GPUS, choose.choice([1, 1, 2, 3]))
            request = choose.choice([0, 0.1, 0.2])
            limit = choose.choice([0.3, 0.6, 1])
            drain_ms = choose.choice([1, 30, 300])
            alone = choose.choice([0, 1])
            simulation.join(
                f"job-{number}",
                request,
                limit,
                alone=alone,
                latency_sensitive=choose.random() < 0.5,
                drain_ms=drain_ms,
                gpus=gpus,
            )
            simulation.run(choose.randrange(SECOND))
        simulation.run(5 * SECOND)
        simulation.leave("job-0")
        simulation.run(5 * SECOND)
        decided = [f"{at} {action}" for at, action in simulation.actions]
        shown = [str(view) for view in simulation.arbiter.views(simulation.now)]
        sys.stdout.write("\n".join([f"seed {seed}", *decided, *shown, ""]))


if __name__ == "__main__":
    main(*sys.argv[1:])
