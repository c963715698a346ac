"""A program: multiplies matrices with CuPy until it is stopped.

Prints products a second as ``burn`` prints kernels. Imports CuPy alone, so that
any Python that has it can run this.
"""

import itertools
import json
import time

import cupy

_SIZE = 2048


def main() -> None:
    """Multiply, and say each second how fast."""
    one = cupy.ones((_SIZE, _SIZE), dtype=cupy.float32)
    product = cupy.empty_like(one)
    since, before = time.monotonic(), 0
    for step in itertools.count():
        cupy.matmul(one, one, out=product)
        if step % 8 == 0:
            cupy.cuda.Device().synchronize()
            now = time.monotonic()
            if now - since >= 1:
                rate = (step - before) / (now - since)
                print(json.dumps({"kernels_per_s": rate}), flush=True)
                since, before = now, step


if __name__ == "__main__":
    main()
