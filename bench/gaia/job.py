"""A program: a data-parallel training job on two GPUs, one step after another.

Both GPUs compute; then the second one's gradients are copied to the first, which averages them, and
the parameters are copied back, as frameworks of 2018 do in one process. Prints the seconds between
its first and its last event, by the clock of the first GPU, as one JSON line.
"""

import argparse
import ctypes
import json
import sys

_IMAGE = b".version 6.0\n.target sm_50\n.address_size 64\n\0"
_KERNEL = b"kubeshare_spin_us"
"""Of a fake GPU: it takes the microseconds of its argument."""
AHEAD_US = 100_000
"""The GPU is busy so long before the first event: this program queues steps ahead meanwhile."""


class CudaError(Exception):
    """A call of the driver failed."""


class Driver:
    """The calls of CUDA's driver API that the job needs; each raises ``CudaError``."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL("libcuda.so.1")
        self("cuInit", 0)

    def __call__(self, name: str, *arguments: object) -> None:
        result = getattr(self._library, name)(*arguments)
        if result:
            raise CudaError(f"{name}: error {result}")


class Gpu:
    """A GPU with its context, a stream, and memory for the parameters."""

    def __init__(self, driver: Driver, index: int, size: int) -> None:
        self._driver = driver
        device = ctypes.c_int()
        self.context, self.stream = ctypes.c_void_p(), ctypes.c_void_p()
        module, self._kernel = ctypes.c_void_p(), ctypes.c_void_p()
        self.memory = ctypes.c_uint64()
        driver("cuDeviceGet", ctypes.byref(device), index)
        driver("cuDevicePrimaryCtxRetain", ctypes.byref(self.context), device)
        self.enter()
        driver("cuStreamCreate", ctypes.byref(self.stream), 1)
        driver("cuModuleLoadData", ctypes.byref(module), _IMAGE)
        driver("cuModuleGetFunction", ctypes.byref(self._kernel), module, _KERNEL)
        driver("cuMemAlloc_v2", ctypes.byref(self.memory), ctypes.c_size_t(size))

    def enter(self) -> None:
        """Make its context the current one."""
        self._driver("cuCtxSetCurrent", self.context)

    def compute(self, microseconds: int) -> None:
        """Queue a kernel of this length."""
        argument = ctypes.c_uint32(microseconds)
        pointers = (ctypes.c_void_p * 1)(ctypes.addressof(argument))
        shape = (1, 1, 1, 1, 1, 1, 0)
        self.enter()
        self._driver("cuLaunchKernel", self._kernel, *shape, self.stream, pointers, None)


def train(size: int, compute_us: int, steps: int) -> float:
    """Run the job on the first two GPUs that this process sees.

    Args:
        size: bytes of the parameters.
        compute_us: microseconds that a step computes.
        steps: how many.

    Returns:
        Seconds, by the first GPU's own clock.
    """
    driver = Driver()
    first, second = (Gpu(driver, index, size) for index in range(2))
    length = ctypes.c_size_t(size)
    begin, end = ctypes.c_void_p(), ctypes.c_void_p()
    first.enter()
    for event in (begin, end):
        driver("cuEventCreate", ctypes.byref(event), 0)
    first.compute(AHEAD_US)
    driver("cuEventRecord", begin, first.stream)
    for _ in range(steps):
        second.compute(compute_us)
        first.compute(compute_us)
        for to, source in ((first, second), (second, first)):
            ends = (to.memory, to.context, source.memory, source.context)
            driver("cuMemcpyPeerAsync", *ends, length, first.stream)
    driver("cuEventRecord", end, first.stream)
    driver("cuEventSynchronize", end)
    milliseconds = ctypes.c_float()
    driver("cuEventElapsedTime", ctypes.byref(milliseconds), begin, end)
    return milliseconds.value / 1000


def main() -> int:
    """Run one job."""
    parser = argparse.ArgumentParser(prog="bench.gaia.job", description=__doc__)
    parser.add_argument("--size", type=int, required=True, help="bytes of the parameters")
    parser.add_argument("--compute-us", type=int, required=True, help="of a step")
    parser.add_argument("--steps", type=int, required=True)
    options = parser.parse_args()
    seconds = train(options.size, options.compute_us, options.steps)
    print(json.dumps({"seconds": seconds}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
