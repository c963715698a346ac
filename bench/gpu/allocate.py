"""A program: allocates a few sizes, and prints how much less memory is then free.

Without the library that is what the driver takes; with it, what is charged.
"""

import ctypes
import json
import sys

MEBIBYTE = 1 << 20
SIZES = (1, 512, MEBIBYTE - 1, MEBIBYTE, 2 * MEBIBYTE + 1, 64 * MEBIBYTE, 1024 * MEBIBYTE + 1)


class DriverError(Exception):
    """A call of the driver failed."""


class Driver:
    """The few calls that this takes, on the primary context of the first GPU."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL("libcuda.so.1")
        context = ctypes.c_void_p()
        self._call("cuInit", 0)
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
        self._call("cuCtxSetCurrent", context)

    def free_bytes(self) -> int:
        """What a program sees."""
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self._call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return free.value

    def allocate(self, size: int) -> ctypes.c_uint64:
        """Device memory, never freed but with the process."""
        pointer = ctypes.c_uint64()
        self._call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(size))
        return pointer

    def release(self, pointer: ctypes.c_uint64) -> None:
        """Give it back."""
        self._call("cuMemFree_v2", pointer)

    def _call(self, name: str, *arguments: object) -> None:
        result = getattr(self._library, name)(*arguments)
        if result != 0:
            raise DriverError(f"{name} answered {result}")


def main() -> int:
    """Print one line: ``{"rows": [{"bytes": …, "taken": …}]}``."""
    try:
        driver = Driver()
        rows = []
        for size in SIZES:
            before = driver.free_bytes()
            pointer = driver.allocate(size)
            rows.append({"bytes": size, "taken": before - driver.free_bytes()})
            driver.release(pointer)
    except (DriverError, OSError) as error:
        print(f"allocate: {error}", file=sys.stderr)
        return 3
    print(json.dumps({"rows": rows}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
