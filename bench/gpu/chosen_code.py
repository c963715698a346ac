"""Which code of the handover the token daemons of a bench run: compiled, or its sources.

As a program (``python -m bench.gpu.chosen_code``) it prints that, chosen as a daemon chooses at its
start: once chosen, a process imports nothing else.
"""

import json
import subprocess
import sys

from bench.gpu.clients import Bench
from bench.gpu.experiment import Result
from kubeshare import compiled


def chosen_code(bench: Bench) -> Result:
    """`is_compiled`, and where it is not, `why_not`."""
    done = subprocess.run(
        [sys.executable, "-m", "bench.gpu.chosen_code"],
        env=bench.environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    result: Result = json.loads(done.stdout)
    return result


def main() -> int:
    """Print it as one JSON line."""
    print(json.dumps(compiled.use()._asdict()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
