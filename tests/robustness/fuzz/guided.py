"""The token daemon's protocol fuzzed by what its code does with the bytes.

    pip install atheris
    PYTHONPATH=src:tests python -m robustness.fuzz.guided [CORPUS] -max_total_time=600

Atheris (libFuzzer for Python) counts the branches that an input reaches and keeps those
that reach new ones. It is not among the requirements: its wheels are 35 MB and only for
some Pythons on x86-64; hypothesis says such things in `make test`. The options are
libFuzzer's. An input that fails is written down and said; give it alone to see it fail
again.
"""

import importlib
import sys
from typing import Any

atheris: Any = importlib.import_module("atheris")

with atheris.instrument_imports(include=["kubeshare.tokens", "kubeshare.core.token"]):
    from kubeshare.tokens import arbitration  # noqa: F401
    from tokens.conversation import converse, said_by


def play(data: bytes) -> None:
    """One input."""
    converse(said_by(data))


if __name__ == "__main__":
    atheris.Setup(sys.argv, play)
    atheris.Fuzz()
