"""Coverage-guided fuzzing of the token daemon's protocol.

    pip install atheris
    PYTHONPATH=src:tests python -m robustness.fuzz.guided [CORPUS] -max_total_time=600

Atheris (libFuzzer for Python) counts the branches that an input reaches and keeps those
that reach new ones. It is not among the requirements: its wheels are 35 MB and only for
some Pythons on x86-64; `make test` does the same with hypothesis. The options are
libFuzzer's. An input that fails is saved and its file named; pass that file alone to
reproduce the failure.
"""

import importlib
import sys
from typing import Any

atheris: Any = importlib.import_module("atheris")

with atheris.instrument_imports(include=["kubeshare.tokens", "kubeshare.core.token"]):
    from kubeshare.tokens import arbitration  # noqa: F401
    from tokens.conversation import converse, steps_of


def play(data: bytes) -> None:
    """One input."""
    converse(steps_of(data))


if __name__ == "__main__":
    atheris.Setup(sys.argv, play)
    atheris.Fuzz()
